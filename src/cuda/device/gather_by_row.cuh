// Gather, a group of threads per expert row: each row of y with a token is written once, in the order of y, from the
// row of x that its assignment names. For top_k = 1, where no row of x is read twice and an assignment is a token. The
// blocks after those zero the empty rows, apart from all reads.
#pragma once

#include "cuda/device/gather_arguments.cuh"
#include "cuda/device/launch.cuh"

namespace binmoe::cuda::device {

/// Vectors that a thread loads together: one more than by token, so that fewer threads hold more bytes in flight.
inline constexpr int kRowVectorsPerThread = 5;

/// grid.blocks: row blocks, of grid.rows_at_once rows with grid.threads_per_row threads (full warps) each.
/// Shared memory: zero_rows_shared_bytes().
template <class Access>
__global__ void __launch_bounds__(1024)
    gather_by_row_kernel(const __grid_constant__ GatherArguments arguments, const __grid_constant__ GatherGrid grid) {
  extern __shared__ int32_t tails[];
  using Vector = typename Access::Vector;
  constexpr int kBytes = sizeof(Vector);
  let_next_start();
  wait_for_previous();
  if (blockIdx.x >= grid.blocks)
    return zero_empty_rows(arguments.y, blockIdx.x - grid.blocks, gridDim.x - grid.blocks, tails);

  const int stride = grid.threads_per_row;
  const int group = grid.rows_at_once == 1 ? 0 : static_cast<int>(threadIdx.x) / stride;
  const uint32_t row = blockIdx.x * grid.rows_at_once + group;
  const auto capacity = static_cast<uint32_t>(arguments.y.expert_capacity);
  const uint32_t expert = row / capacity;
  if (expert >= static_cast<uint32_t>(arguments.y.num_experts)) return;
  // All that the place depends on is read at once: the chain of latencies is this, the assignment, the row.
  const int32_t kept = load(arguments.y.kept_per_expert + expert);
  const int32_t start = load(arguments.bins + expert) - load(arguments.tokens_per_expert + expert);
  const int32_t offset = static_cast<int32_t>(row - expert * capacity);
  if (offset >= kept) return;
  const int32_t token = load(arguments.indices + start + offset);
  if (static_cast<uint32_t>(token) >= arguments.tokens) return;  // a wrong plan from elsewhere: never an address

  const char* x = arguments.x_row(token);
  char* y = arguments.y_row(row);
  const int64_t row_bytes = arguments.y.row_bytes;
  const int step = stride * kBytes;
#pragma unroll 1
  for (int64_t at = (static_cast<int>(threadIdx.x) - group * stride) * kBytes; at < row_bytes;
       at += kRowVectorsPerThread * step) {
    Vector vectors[kRowVectorsPerThread];
#pragma unroll
    for (int j = 0; j < kRowVectorsPerThread; ++j)
      if (at + j * step < row_bytes) vectors[j] = Access::load(x + at + j * step);
#pragma unroll
    for (int j = 0; j < kRowVectorsPerThread; ++j)
      if (at + j * step < row_bytes) Access::store_streaming(y + at + j * step, vectors[j]);
  }
}

}  // namespace binmoe::cuda::device
