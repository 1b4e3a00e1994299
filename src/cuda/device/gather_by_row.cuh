// Gather, a group of threads per expert row: each row of y is written once, in the order of y, from the row of x that
// its assignment names, or with zeros in place. For top_k = 1, where no row of x is read twice and an assignment is a
// token.
#pragma once

#include "cuda/device/gather_arguments.cuh"
#include "cuda/device/launch.cuh"

namespace binmoe::cuda::device {

/// grid.rows_at_once rows a block, with grid.threads_per_row threads each, two vectors a thread and step.
template <class Move>
__global__ void __launch_bounds__(1024)
    gather_by_row_kernel(const __grid_constant__ GatherArguments arguments, const __grid_constant__ GatherGrid grid) {
  using Access = typename Move::Access;
  using Vector = typename Move::Vector;
  constexpr int kBytes = sizeof(Vector);
  let_next_start();
  wait_for_previous();
  const int stride = grid.threads_per_row;
  const int group = grid.rows_at_once == 1 ? 0 : static_cast<int>(threadIdx.x) / stride;
  const uint32_t row = blockIdx.x * grid.rows_at_once + group;
  const auto capacity = static_cast<uint32_t>(arguments.y.expert_capacity);
  const uint32_t expert = row / capacity;
  if (expert >= static_cast<uint32_t>(arguments.y.num_experts)) return;
  const int32_t offset = static_cast<int32_t>(row - expert * capacity);
  const int64_t row_bytes = arguments.y.row_bytes, first = (static_cast<int>(threadIdx.x) - group * stride) * kBytes;
  const int step = stride * kBytes;
  char* y = arguments.y_row(row);

  // All that the place depends on is read at once: the chain of latencies is this, the assignment, the row.
  const int32_t kept = load(arguments.y.kept_per_expert + expert);
  const int32_t start = load(arguments.bins + expert) - load(arguments.tokens_per_expert + expert);
  const int32_t assignment = offset < kept ? load(arguments.indices + start + offset) : -1;
  // No token, or a plan from elsewhere that is wrong: never an address.
  if (static_cast<uint32_t>(assignment) >= arguments.tokens) {
#pragma unroll 2
    for (int64_t at = first; at < row_bytes; at += step) Access::store_streaming(y + at, Vector{});
    return;
  }
  const char* x = arguments.x_row(assignment);
  const auto weight = Move::weight(arguments, assignment);
#pragma unroll 1
  for (int64_t at = first; at < row_bytes; at += 2 * step) {
    const bool second = at + step < row_bytes;
    const Vector vectors[2] = {Access::load(x + at), Access::load_if(second, x + at + step)};
    Access::store_streaming(y + at, Move::apply(vectors[0], weight));
    if (second) Access::store_streaming(y + at + step, Move::apply(vectors[1], weight));
  }
}

}  // namespace binmoe::cuda::device
