// The table's entry: the current device, its memory, and the way from a job to its launches.
#include "backend.h"

#include <cuda_runtime_api.h>

#include <array>
#include <cstdio>
#include <string>

#include "cuda/launch.h"
#include "cuda/operations.h"

namespace binmoe {
namespace {

cudaStream_t stream_of(const Resources& resources) {
  return static_cast<cudaStream_t>(resources.stream);
}

cuda::Launcher launcher(const char* operation, const Resources& resources) {
  return {operation, stream_of(resources), cuda::current_device(operation), resources.workspace};
}

std::vector<BackendOption> options() {
  return {};
}

std::string check_options(const char* options) {
  return *options == '\0' ? "" : std::string("the backend cuda takes no options, but was given ") + options;
}

size_t plan_workspace_bytes(const Sizes& sizes, DropPolicy policy, DType priority_type, const Executor&) {
  return cuda::plan_workspace_bytes(sizes, policy, priority_type);
}

std::optional<Fault> plan(const PlanJob& job, const Resources& resources) {
  cuda::plan(job, launcher("plan", resources));
  return std::nullopt;  // the status tells
}

void plan_from_bins(const PlanFromBinsJob& job, const Resources& resources) {
  cuda::plan_from_bins(job, launcher("plan_from_bins", resources));
}

void gather(const GatherJob& job, const Resources& resources) {
  cuda::gather(job, launcher("gather", resources));
}

void scatter(const ScatterJob& job, const Resources& resources) {
  cuda::scatter(job, launcher("scatter", resources));
}

void wgrad(const WgradJob& job, const Resources& resources) {
  cuda::wgrad(job, launcher("wgrad", resources));
}

void scatter_backward(const ScatterBackwardJob& job, const Resources& resources) {
  cuda::scatter_backward(job, launcher("scatter_backward", resources));
}

void* allocate(size_t bytes, const Resources&) {
  void* block = nullptr;
  const cudaError_t error = cudaMalloc(&block, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  cuda::check(error, "memory", "cudaMalloc");
  return block;
}

void release(void* block, const Resources&) {
  cudaFree(block);
}

void copy_in(void* device, const void* host, size_t bytes, const Resources& resources) {
  cuda::check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_of(resources)), "memory",
              "cudaMemcpyAsync to the device");
}

void copy_out(void* host, const void* device, size_t bytes, const Resources& resources) {
  cuda::check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_of(resources)), "memory",
              "cudaMemcpyAsync from the device");
  cuda::check(cudaStreamSynchronize(stream_of(resources)), "memory", "cudaStreamSynchronize");
}

/// Bytes read and written per second by the best of a few copies; 0 when there is no room for it.
double copy_bytes_per_second() {
  constexpr size_t kBytes = size_t{1} << 30;
  std::array<void*, 2> blocks = {};
  std::array<cudaEvent_t, 2> events = {};
  float best_ms = 0;
  if (cudaMalloc(&blocks[0], kBytes) == cudaSuccess && cudaMalloc(&blocks[1], kBytes) == cudaSuccess &&
      cudaEventCreate(&events[0]) == cudaSuccess && cudaEventCreate(&events[1]) == cudaSuccess) {
    for (int i = 0; i < 10; ++i) {
      float ms = 0;
      cudaEventRecord(events[0]);
      cudaMemcpyAsync(blocks[1], blocks[0], kBytes, cudaMemcpyDeviceToDevice);
      cudaEventRecord(events[1]);
      if (cudaEventSynchronize(events[1]) != cudaSuccess ||
          cudaEventElapsedTime(&ms, events[0], events[1]) != cudaSuccess)
        break;
      if (best_ms == 0 || ms < best_ms) best_ms = ms;
    }
  }
  for (cudaEvent_t event : events)
    if (event != nullptr) cudaEventDestroy(event);
  for (void* block : blocks) cudaFree(block);
  cudaGetLastError();
  return best_ms > 0 ? 2.0 * static_cast<double>(kBytes) / (best_ms * 1e-3) : 0;
}

std::vector<BackendProperty> properties() {
  const cuda::Device& device = cuda::current_device("info");
  cudaDeviceProp found = {};
  cuda::check(cudaGetDeviceProperties(&found, device.ordinal), "info", "cudaGetDeviceProperties");
  const auto text = [](const char* format, double value) {
    char buffer[32];
    std::snprintf(buffer, sizeof(buffer), format, value);
    return std::string(buffer);
  };
  return {{"device", found.name},
          {"compute capability", std::to_string(found.major) + "." + std::to_string(found.minor)},
          {"multiprocessors", std::to_string(device.sms)},
          {"memory", text("%.1f GiB", static_cast<double>(found.totalGlobalMem) / (1 << 30))},
          {"copy", text("%.2f TB/s", copy_bytes_per_second() * 1e-12)}};
}

constexpr DeviceMemory kMemory = {allocate, release, copy_in, copy_out};

constexpr BackendOperations kOperations = {
    .options = options,
    .check_options = check_options,
    .plan_workspace_bytes = plan_workspace_bytes,
    .plan = plan,
    .plan_from_bins = plan_from_bins,
    .gather = gather,
    .scatter = scatter,
    .wgrad = wgrad,
    .scatter_backward = scatter_backward,
    .memory = &kMemory,
    .properties = properties,
};

/// Null when one of the devices is new enough; current_device() looks at the one in use.
const char* reason_against() {
  static const std::string reason = []() -> std::string {
    int count = 0;
    if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
      cudaGetLastError();
      return std::string("cudaGetDeviceCount: ") + cudaGetErrorString(error);
    }
    for (int device = 0; device < count; ++device) {
      int major = 0;
      if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
          major >= cuda::kOldestMajor)
        return "";
    }
    return count == 0 ? "there is no CUDA device" : "every device is older than sm_80";
  }();
  return reason.empty() ? nullptr : reason.c_str();
}

}  // namespace

Backend cuda_backend() {
  return {"cuda", "NVIDIA GPUs, sm_80 and newer", reason_against(), &kOperations, kAllDTypes, false, Memory::cuda};
}

}  // namespace binmoe
