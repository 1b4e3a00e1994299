#include <map>
#include <mutex>
#include <string>
#include <utility>
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
  const int major = attribute(cudaDevAttrComputeCapabilityMajor);
  if (major < kOldestMajor) throw Error(ErrorKind::unsupported, operation, "the current device is older than sm_80");
  return {ordinal, attribute(cudaDevAttrMultiProcessorCount), major,
          static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)),
          static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor))};
}

/// The limit belongs to the kernel, not to a launch: it is raised only, so that threads cannot take it from each other.
cudaError_t allow_shared_memory(const void* kernel, int ordinal, size_t bytes) {
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, size_t> allowed;
  const std::lock_guard lock(mutex);
  size_t& limit = allowed[{kernel, ordinal}];
  if (bytes <= limit) return cudaSuccess;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error == cudaSuccess) limit = bytes;
  return error;
}

}  // namespace

void check(cudaError_t error, const char* operation, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // the next call must not report this one
  throw Error(ErrorKind::device, operation, std::string(what) + ": " + cudaGetErrorString(error));
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
    check(allow_shared_memory(kernel, device.ordinal, shared_bytes), operation, what.c_str());
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
