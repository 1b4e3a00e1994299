// Programmatic dependent launch: every kernel waits for the one before it before it touches memory.
#pragma once

namespace binmoe::cuda::device {

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
