#include <mutex>
#include <string>
#include <vector>

#include "binmoe/types.h"
#include "cuda/launch.h"

namespace binmoe::cuda {
namespace {

Device read_device(const char* operation, int ordinal) {
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, ordinal), operation, "cudaDeviceGetAttribute");
    return value;
  };
  return {ordinal, attribute(cudaDevAttrMultiProcessorCount), attribute(cudaDevAttrComputeCapabilityMajor),
          static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)),
          static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor))};
}

}  // namespace

void check(cudaError_t error, const char* operation, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // the next call must not report this one
  throw Error(error == cudaErrorMemoryAllocation ? ErrorKind::out_of_memory : ErrorKind::device, operation,
              std::string(what) + ": " + cudaGetErrorString(error));
}

const Device& current_device(const char* operation) {
  static std::mutex mutex;
  static std::vector<const Device*> known;  // by ordinal; entries live as long as the process
  int ordinal = 0;
  check(cudaGetDevice(&ordinal), operation, "cudaGetDevice");
  const std::lock_guard lock(mutex);
  const auto index = static_cast<size_t>(ordinal);
  if (known.size() <= index) known.resize(index + 1, nullptr);
  if (known[index] == nullptr) known[index] = new Device(read_device(operation, ordinal));
  return *known[index];
}

void Launcher::launch_kernel(const char* name, const void* kernel, int64_t blocks, int threads, size_t shared_bytes,
                             void** arguments) const {
  constexpr size_t kAlwaysAllowed = 48 * 1024;
  const std::string what = std::string("launching ") + name;
  if (shared_bytes > kAlwaysAllowed)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
          operation, what.c_str());
  cudaLaunchAttribute dependent = {};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &dependent;
  config.numAttrs = device.major >= 9 ? 1 : 0;
  check(cudaLaunchKernelExC(&config, kernel, arguments), operation, what.c_str());
}

}  // namespace binmoe::cuda
