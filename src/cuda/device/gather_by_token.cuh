// Gather, a block per token: a thread loads its vectors of the token's row together, then writes them to every place.
// The blocks after the token blocks zero the empty rows, last, apart from all reads.
#pragma once

#include "cuda/device/gather_arguments.cuh"
#include "cuda/device/launch.cuh"

namespace binmoe::cuda::device {

/// grid.blocks: token blocks, of grid.rows_at_once tokens with grid.threads_per_row threads (full warps) each.
/// Shared memory: zero_rows_shared_bytes().
template <class Move, int kTopK>
__global__ void __launch_bounds__(1024)
    gather_by_token_kernel(const __grid_constant__ GatherArguments arguments, const __grid_constant__ GatherGrid grid) {
  extern __shared__ int32_t tails[];
  using Access = typename Move::Access;
  using Vector = typename Move::Vector;
  constexpr int kBytes = sizeof(Vector);
  let_next_start();
  wait_for_previous();
  if (blockIdx.x >= grid.blocks)
    return zero_empty_rows(arguments.y, blockIdx.x - grid.blocks, gridDim.x - grid.blocks, tails);

  const int stride = grid.threads_per_row;
  const int group = grid.rows_at_once == 1 ? 0 : static_cast<int>(threadIdx.x) / stride;
  const int64_t token = int64_t{blockIdx.x} * grid.rows_at_once + group;
  if (token >= arguments.tokens) return;
  const TokenPlaces<Move, kTopK> places(arguments, token);
  if (!places.any()) return;
  const char* x = arguments.x_row(token);
  const int64_t row_bytes = arguments.y.row_bytes;
  const int step = stride * kBytes;
#pragma unroll 1
  for (int64_t at = (static_cast<int>(threadIdx.x) - group * stride) * kBytes; at < row_bytes;
       at += kVectorsPerThread * step) {
    Vector vectors[kVectorsPerThread];
#pragma unroll
    for (int j = 0; j < kVectorsPerThread; ++j)
      if (at + j * step < row_bytes) vectors[j] = Access::load(x + at + j * step);
#pragma unroll(kTopK > 0 ? kTopK : 1)
    for (int k = 0; k < places.count(); ++k) {
      const int32_t row = places.row(k);
      if (row < 0) continue;
      const auto weight = places.weight(k);
      char* y = arguments.y_row(row) + at;
#pragma unroll
      for (int j = 0; j < kVectorsPerThread; ++j)
        if (at + j * step < row_bytes) Access::store_streaming(y + j * step, Move::apply(vectors[j], weight));
    }
  }
}

}  // namespace binmoe::cuda::device
