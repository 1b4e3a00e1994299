#include "bench/cuda/device.h"
#include "bench/cuda/previous_kernel.h"

namespace binmoe::bench {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 132;  // one an SM of an H200

__global__ void copy_kernel(uint4* to, const uint4* from, size_t count) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) to[i] = from[i];
}

}  // namespace

void launch_previous(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  copy_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<uint4*>(to), static_cast<const uint4*>(from),
                                                bytes / sizeof(uint4));
  check_cuda(cudaGetLastError());
}

}  // namespace binmoe::bench
