// Gather of few tokens (decode): 2048 bytes of a token a block, one vector a thread, so that every load of the whole
// operation is in flight at once; after these blocks, a warp for every part of a row that may be empty.
#pragma once

#include "cuda/device/gather_arguments.cuh"
#include "cuda/device/launch.cuh"

namespace binmoe::cuda::device {

/// 128 threads of 16 bytes.
inline constexpr int kFewTokensThreads = 128;

/// grid.blocks: parts_of_row() blocks a token; the blocks after them hold four parts of rows of y each.
template <class Move, int kTopK>
__global__ void __launch_bounds__(kFewTokensThreads)
    gather_few_tokens_kernel(const __grid_constant__ GatherArguments arguments,
                             const __grid_constant__ GatherGrid grid) {
  using Access = typename Move::Access;
  let_next_start();
  const auto blocks = static_cast<uint32_t>(grid.blocks);
  const auto parts = static_cast<uint32_t>(parts_of_row(arguments.y.row_bytes));
  const uint32_t token = blockIdx.x / parts;
  const int64_t begin = (int64_t{blockIdx.x - token * parts} * kFewTokensThreads + threadIdx.x) * 16;
  wait_for_previous();
  if (blockIdx.x >= blocks)
    return zero_part_if_empty(arguments.y, (blockIdx.x - blocks) * (kFewTokensThreads / 32) + threadIdx.x / 32);
  if (begin >= arguments.y.row_bytes) return;
  // The row before its places: one latency instead of two. A row without a place is read in vain.
  const auto vector = Access::load(arguments.x_row(token) + begin);
  const TokenPlaces<Move, kTopK> places(arguments, token);
#pragma unroll(kTopK > 0 ? kTopK : 1)
  for (int k = 0; k < places.count(); ++k) {
    const int32_t row = places.row(k);
    if (row >= 0) Access::store_streaming(arguments.y_row(row) + begin, Move::apply(vector, places.weight(k)));
  }
}

}  // namespace binmoe::cuda::device
