// Bulk copies between global and shared memory, and the barrier that counts their bytes (sm_90 and newer).
#pragma once

#include <cstdint>

namespace binmoe::cuda::device {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/// A barrier in shared memory that a phase's bytes complete.
struct BulkBarrier {
  uint64_t state;

  /// By one thread, before the block's first __syncthreads(): `arrivals` calls of expect() or arrive() end a phase.
  __device__ __forceinline__ void start(uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&state)), "r"(arrivals) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }

  /// Arrive, and add `bytes` to what the phase waits for.
  __device__ __forceinline__ void expect(uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&state)), "r"(bytes)
                 : "memory");
  }

  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&state)) : "memory");
  }

  /// Until the phase of this parity (0, 1, 0, ...) is complete. Parity 1 of a new barrier counts as complete.
  __device__ __forceinline__ void wait(uint32_t parity) {
    uint32_t done = 0;
    while (done == 0)
      asm volatile(
          "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(shared_address(&state)), "r"(parity)
          : "memory");
  }
};

/// shared <- global; addresses and bytes are multiples of 16.
__device__ __forceinline__ void bulk_load(void* shared, const void* global, uint32_t bytes, BulkBarrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared)),
               "l"(global), "r"(bytes), "r"(shared_address(&barrier.state))
               : "memory");
}

#endif

}  // namespace binmoe::cuda::device
