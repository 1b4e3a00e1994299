// Programmatic dependent launch: every kernel waits for the one before it before it touches memory.
#pragma once

namespace binmoe::cuda::device {

/// For __launch_bounds__: `wanted` blocks of `threads` on a multiprocessor, or as many as its architecture has room
/// for.
constexpr int blocks_per_sm(int threads, int wanted) {
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
  constexpr int kMaxThreadsOfSm = 1536;
#else
  constexpr int kMaxThreadsOfSm = 2048;
#endif
  return wanted * threads <= kMaxThreadsOfSm ? wanted : kMaxThreadsOfSm / threads;
}

/// Until every kernel before this one has ended and its writes are visible.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// The next kernel of the stream may start; it waits for this one's end itself.
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace binmoe::cuda::device
