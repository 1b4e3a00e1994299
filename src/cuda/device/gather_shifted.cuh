// Gather of rows at any alignment: a piece of x goes through shared memory, and each place reads it there shifted, so
// that global memory sees 16-byte accesses but for the ends of a row, wherever x and y stand.
#pragma once

#include "cuda/device/gather_arguments.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/device/shifted_vectors.cuh"

namespace binmoe::cuda::device {

/// y[i] = staged[i] * weight, i < bytes; by the whole block. x_misalignment: of staged. A warp's stores begin at
/// multiples of 128 bytes of y: every sector that is written in part costs a read.
template <class Move, class Unit>
__device__ __forceinline__ void write_piece(const char* staged, int x_misalignment, int bytes,
                                            typename Move::Weight weight, char* y) {
  using UnitVector = typename Unit::Vector;
  constexpr int kUnit = sizeof(UnitVector);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int head = min(-misalignment(y) & 15, bytes), tail = (bytes - head) & 15;
  if (const int at = thread * kUnit; at < head || at < tail) {
    const auto move_unit = [&](int i) {
      UnitVector unit;
      memcpy(&unit, staged + i, kUnit);
      Unit::Access::store(y + i, Unit::apply(unit, weight));
    };
    if (at < head) move_unit(at);
    if (at < tail) move_unit(bytes - tail + at);
  }
  const int shift = (x_misalignment + head) & 15;
  const char* base = staged + head - shift;
  int i = thread * 16 - static_cast<int>(reinterpret_cast<uintptr_t>(y + head) & 127);
  if (i < 0) i += threads * 16;
#pragma unroll 2
  for (; i < bytes - head - tail; i += threads * 16)
    store_streaming(reinterpret_cast<uint4*>(y + head + i), Move::apply(load_shifted(base + i, shift), weight));
}

/// Move is over Whole<uint4>; Unit over the smallest piece that is moved alone: an element, or a byte of a copy.
/// Rows of y stand at multiples of that piece. grid.blocks: token blocks. Shared memory: shifted_shared_bytes(), at
/// least zero_rows_shared_bytes().
template <class Move, class Unit>
__global__ void __launch_bounds__(1024)
    gather_shifted_kernel(const __grid_constant__ GatherArguments arguments, const __grid_constant__ GatherGrid grid) {
  extern __shared__ __align__(16) char stage[];
  let_next_start();
  wait_for_previous();
  if (blockIdx.x >= grid.blocks)
    return zero_empty_rows(arguments.y, blockIdx.x - grid.blocks, gridDim.x - grid.blocks,
                           reinterpret_cast<int32_t*>(stage));
  const TokenPlaces<Move, 0> places(arguments, blockIdx.x);
  if (!places.any()) return;
  for (int64_t begin = 0; begin < arguments.y.row_bytes; begin += kShiftedPiece) {
    const char* x = arguments.x_row(blockIdx.x) + begin;
    const int64_t rest = arguments.y.row_bytes - begin;
    const int bytes = rest < kShiftedPiece ? static_cast<int>(rest) : kShiftedPiece;
    if (begin > 0) __syncthreads();
    stage_piece(x, bytes, stage);
    __syncthreads();
    int32_t next = places.row(0);
#pragma unroll 1
    for (int k = 0; k < places.count(); ++k) {
      const int32_t row = next;
      if (k + 1 < places.count()) next = places.row(k + 1);
      if (row >= 0)
        write_piece<Move, Unit>(stage + misalignment(x), misalignment(x), bytes, places.weight(k),
                                arguments.y_row(row) + begin);
    }
  }
}

}  // namespace binmoe::cuda::device
