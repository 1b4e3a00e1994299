// Rows that start anywhere, by vectors of 16 bytes: aligned ones, shifted. Global memory sees whole vectors but for the
// ends of a row.
#pragma once

#include <cstdint>

#include "cuda/device/vectors.cuh"

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

/// Bytes from p to the next multiple of 16.
__device__ __forceinline__ int bytes_to_aligned(const void* p) {
  return -misalignment(p) & 15;
}

/// Vectors of 16 bytes between p, a multiple of 16, and the multiple of 128 before it. A warp whose stores begin there
/// writes whole sectors: those written in part cost a read.
__device__ __forceinline__ int vectors_past_line(const void* p) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(p) & 127) / 16;
}

/// stage[misalignment(x) + i] = x[i], i < bytes; by the whole block.
__device__ __forceinline__ void stage_piece(const char* x, int bytes, char* stage) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int head = min(bytes_to_aligned(x), bytes), tail = (bytes - head) & 15;
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

/// Bytes shift .. shift + 15 of low and high, which follow each other; 0 <= shift < 16, the same for the whole block.
__device__ __forceinline__ uint4 shifted(uint4 low, uint4 high, int shift) {
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

/// 16 bytes of shared memory from `base + shift` on; base is aligned.
__device__ __forceinline__ uint4 load_shifted(const char* base, int shift) {
  return shifted(reinterpret_cast<const uint4*>(base)[0], reinterpret_cast<const uint4*>(base)[1], shift);
}

}  // namespace binmoe::cuda::device
