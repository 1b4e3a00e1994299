// Gather of rows at any alignment: a piece of x goes through shared memory, and each place reads it there shifted, so
// that global memory sees 16-byte accesses but for the ends of a row, wherever x and y stand.
#pragma once

#include "cuda/device/gather_arguments.cuh"
#include "cuda/device/launch.cuh"

namespace binmoe::cuda::device {

/// Bytes of a row that a block holds at a time.
inline constexpr int kShiftedPiece = 16384;

/// Shared memory of a block whose pieces have `bytes`: the piece stands at x's alignment, and shifted reads end 16
/// late.
constexpr size_t shifted_shared_bytes(int64_t bytes) {
  return static_cast<size_t>((bytes < kShiftedPiece ? bytes : kShiftedPiece) + 63) / 16 * 16;
}

__device__ __forceinline__ int misalignment(const void* p) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(p) & 15);
}

/// stage[misalignment(x) + i] = x[i], i < bytes; by the whole block.
__device__ __forceinline__ void stage_piece(const char* x, int bytes, char* stage) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int head = min(-misalignment(x) & 15, bytes), tail = (bytes - head) & 15;
  char* to = stage + misalignment(x);
  if (thread < head) to[thread] = static_cast<char>(load(reinterpret_cast<const uint8_t*>(x) + thread));
  if (thread < tail) {
    const int i = bytes - tail + thread;
    to[i] = static_cast<char>(load(reinterpret_cast<const uint8_t*>(x) + i));
  }
  const auto from = reinterpret_cast<const uint4*>(x + head);
  const auto vectors = reinterpret_cast<uint4*>(to + head);
  const int count = (bytes - head) / 16;
#pragma unroll 1
  for (int i = thread; i < count; i += 4 * threads) {
    uint4 v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = load_if(i + j * threads < count, from + i + j * threads);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (i + j * threads < count) vectors[i + j * threads] = v[j];
  }
}

/// 16 bytes of shared memory from `base + shift` on; base is aligned, 0 <= shift < 16 the same for the whole block.
__device__ __forceinline__ uint4 load_shifted(const char* base, int shift) {
  const uint4 low = reinterpret_cast<const uint4*>(base)[0], high = reinterpret_cast<const uint4*>(base)[1];
  uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  if ((shift & 8) != 0) {
#pragma unroll
    for (int i = 0; i < 6; ++i) words[i] = words[i + 2];
  }
  if ((shift & 4) != 0) {
#pragma unroll
    for (int i = 0; i < 5; ++i) words[i] = words[i + 1];
  }
  const uint32_t bits = 8 * static_cast<uint32_t>(shift & 3);
  return {__funnelshift_r(words[0], words[1], bits), __funnelshift_r(words[1], words[2], bits),
          __funnelshift_r(words[2], words[3], bits), __funnelshift_r(words[3], words[4], bits)};
}

/// Move is over Whole<uint4>; Unit over the smallest piece that is moved alone: an element, or a byte of a copy.
/// Rows of y stand at multiples of that piece. grid.blocks: token blocks. Shared memory: shifted_shared_bytes(), at
/// least zero_rows_shared_bytes().
template <class Move, class Unit>
__global__ void __launch_bounds__(1024)
    gather_shifted_kernel(const __grid_constant__ GatherArguments arguments, const __grid_constant__ GatherGrid grid) {
  extern __shared__ __align__(16) char stage[];
  using UnitVector = typename Unit::Vector;
  constexpr int kUnit = sizeof(UnitVector);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
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
    const char* staged = stage + misalignment(x);
#pragma unroll 1
    for (int k = 0; k < places.count(); ++k) {
      const int32_t row = places.row(k);
      if (row < 0) continue;
      const auto weight = places.weight(k);
      char* y = arguments.y_row(row) + begin;
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
      const int shift = misalignment(x + head);
      const char* base = staged + head - shift;
#pragma unroll 2
      for (int i = thread * 16; i < bytes - head - tail; i += threads * 16)
        store_streaming(reinterpret_cast<uint4*>(y + head + i), Move::apply(load_shifted(base + i, shift), weight));
    }
  }
}

}  // namespace binmoe::cuda::device
