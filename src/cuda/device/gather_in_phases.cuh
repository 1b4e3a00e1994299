// Gather, one block a multiprocessor, in rounds: fill shared memory with whole rows of x by bulk copies, wait for all
// of them, write each to its places; after the last round, zero. Reads come in bursts of 200 KB a multiprocessor, and
// writes advance as one front, because all blocks take neighbouring tokens at the same time.
#pragma once

#include "cuda/device/bulk_copy.cuh"
#include "cuda/device/gather_arguments.cuh"
#include "cuda/device/launch.cuh"

namespace binmoe::cuda::device {

/// Assignments whose places a block holds at a time: a window of kPhaseAssignments / top_k tokens.
inline constexpr int kPhaseAssignments = 1024;

/// Shared memory behind the rows of a round: the window's weights, places and list of tokens with a place.
constexpr int64_t phase_map_bytes(int64_t weight_bytes) {
  return kPhaseAssignments * (weight_bytes + 2 * 4);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/// The window's tokens that have a place, in order. By warp 0; returns how many.
template <int kTopK>
__device__ __forceinline__ int list_used(const int32_t* rows, int tokens, int top_k, int32_t* list) {
  const int lane = static_cast<int>(threadIdx.x);
  int count = 0;
#pragma unroll 1
  for (int begin = 0; begin < tokens; begin += 32) {
    const int j = begin + lane;
    int32_t all = -1;
    if (j < tokens) {
#pragma unroll(kTopK > 0 ? kTopK : 1)
      for (int k = 0; k < top_k; ++k) all &= rows[j * top_k + k];
    }
    const unsigned used = __ballot_sync(~0u, all >= 0);
    if (all >= 0) list[count + __popc(used & ((1u << lane) - 1))] = j;
    count += __popc(used);
  }
  return count;
}

/// grid.blocks = all blocks; grid.rows_at_once rows fit a round; grid.threads_per_row threads write one. Token j of
/// window i of a block: (i * window + j) * blocks + block.
/// Shared memory: rows_at_once * row_bytes + phase_map_bytes(), at least zero_rows_shared_bytes().
template <class Move, int kTopK>
__global__ void __launch_bounds__(1024, 1) gather_in_phases_kernel(const __grid_constant__ GatherArguments arguments,
                                                                   const __grid_constant__ GatherGrid grid) {
  using Vector = typename Move::Vector;
  using Weight = typename Move::Weight;
  extern __shared__ __align__(128) char buffer[];
  __shared__ BulkBarrier arrived;
  __shared__ int used;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int top_k = kTopK > 0 ? kTopK : arguments.top_k, window = kPhaseAssignments / top_k;
  const auto row_bytes = static_cast<int>(arguments.y.row_bytes);
  const auto weights = reinterpret_cast<Weight*>(buffer + grid.rows_at_once * row_bytes);
  const auto rows = reinterpret_cast<int32_t*>(weights + kPhaseAssignments);
  int32_t* list = rows + kPhaseAssignments;
  const int group = thread / grid.threads_per_row, groups = threads / grid.threads_per_row;
  const int step = grid.threads_per_row * static_cast<int>(sizeof(Vector));
  const int first = thread * static_cast<int>(sizeof(Vector)) - group * step;
  uint32_t parity = 0;
  if (thread == 0) arrived.start(1);
  let_next_start();
  wait_for_previous();

#pragma unroll 1
  for (int64_t start = blockIdx.x; start < arguments.tokens; start += int64_t{window} * gridDim.x) {
    // The window's places, and the tokens among them that have one.
    const auto left = static_cast<uint32_t>(arguments.tokens - 1 - start) / gridDim.x + 1;
    const int tokens = min(static_cast<int>(left), window);
#pragma unroll 1
    for (int f = thread; f < tokens * top_k; f += threads) {
      const int j = f / top_k;
      const int64_t a = (start + int64_t{j} * gridDim.x) * top_k + (f - j * top_k);
      rows[f] = load(arguments.row_of_assignment + a);
      weights[f] = Move::weight(arguments, a);
    }
    __syncthreads();
    if (thread < 32) {
      const int count = list_used<kTopK>(rows, tokens, top_k, list);
      if (thread == 0) used = count;
    }
    __syncthreads();
    const int rounds = (used + grid.rows_at_once - 1) / grid.rows_at_once;
    const int share = rounds > 0 ? (used + rounds - 1) / rounds : 1;
#pragma unroll 1
    for (int begin = 0; begin < used; begin += share) {
      const int count = min(share, used - begin);
      if (thread < 32) {
        if (thread == 0) arrived.expect(count * row_bytes);
#pragma unroll 1
        for (int i = thread; i < count; i += 32)
          bulk_load(buffer + i * row_bytes, arguments.x_row(start + int64_t{list[begin + i]} * gridDim.x), row_bytes,
                    arrived);
      }
      arrived.wait(parity);
      parity ^= 1;
#pragma unroll 1
      for (int i = group; i < count && group < groups; i += groups) {
        const int a = list[begin + i] * top_k;
#pragma unroll 1
        for (int at = first; at < row_bytes; at += step) {
          const Vector vector = *reinterpret_cast<const Vector*>(buffer + i * row_bytes + at);
#pragma unroll(kTopK > 0 ? kTopK : 1)
          for (int k = 0; k < top_k; ++k) {
            const int32_t row = rows[a + k];
            if (row >= 0)
              store_streaming(reinterpret_cast<Vector*>(arguments.y_row(row) + at),
                              Move::apply(vector, weights[a + k]));
          }
        }
      }
      __syncthreads();
    }
  }
  __syncthreads();
  zero_empty_rows(arguments.y, blockIdx.x, gridDim.x, reinterpret_cast<int32_t*>(buffer));
}

#else

template <class Move, int kTopK>
__global__ void gather_in_phases_kernel(const __grid_constant__ GatherArguments, const __grid_constant__ GatherGrid) {}

#endif

}  // namespace binmoe::cuda::device
