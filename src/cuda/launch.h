// The one way to launch a kernel: checked, and started while the kernel before it ends where the device can do that.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace binmoe::cuda {

constexpr int kOldestMajor = 8;  ///< compute capability

/// What choosing a kernel depends on, of the current device.
struct Device {
  int ordinal;
  int sms;
  int major;                ///< compute capability
  size_t shared_per_block;  ///< at most, in dynamic shared memory
  size_t shared_per_sm;
};
/// Throws binmoe::Error when it is older than the kernels were made for.
const Device& current_device(const char* operation);

/// Throws binmoe::Error: "[operation] what: the driver's text".
void check(cudaError_t error, const char* operation, const char* what);

struct Launcher {
  const char* operation;
  cudaStream_t stream;
  const Device& device;
  void* workspace;

  /// `kernel` calls wait_for_previous() (device/launch.cuh) before it touches memory. blocks < 2^31.
  template <class... Parameters>
  void launch(const char* name, void (*kernel)(Parameters...), int64_t blocks, int threads, size_t shared_bytes,
              const Parameters&... arguments) const {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
    launch_kernel(name, reinterpret_cast<const void*>(kernel), blocks, threads, shared_bytes, pointers);
  }

 private:
  void launch_kernel(const char* name, const void* kernel, int64_t blocks, int threads, size_t shared_bytes,
                     void** arguments) const;
};

}  // namespace binmoe::cuda
