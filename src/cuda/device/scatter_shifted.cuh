// Scatter of rows that start anywhere: vectors of out are aligned, those of y are made of two aligned ones.
#pragma once

#include "cuda/device/scatter_kernels.cuh"
#include "cuda/device/shifted_vectors.cuh"
#include "cuda/device/zero_rows.cuh"

namespace binmoe::cuda::device {

/// A block makes a token's row, kVectors vectors a thread at a time. p.vectors counts elements; addresses and strides
/// are multiples of one. A vector at an end of the row would read past the row of y: those are made by elements.
template <class Format, int kTopK, int kVectors>
__global__ void __launch_bounds__(64, 10) scatter_shifted_kernel(const __grid_constant__ ScatterArguments p) {
  using Bits = typename Format::Bits;
  using Real = typename Format::Real;
  constexpr int kUnit = static_cast<int>(sizeof(Bits)), kBytes = static_cast<int>(sizeof(uint4));
  const int64_t token = blockIdx.x, bytes = p.vectors * kUnit;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int64_t first[1] = {token * kTopK};
  char* const out = p.out + token * p.out_stride;
  let_next_start();
  wait_for_previous();
  int32_t rows[kTopK];
  load_run(p.row_of_assignment + first[0], rows);
  if (none_kept(rows)) return zero_stretch(out, bytes, thread, threads);
  Real weights[1][kTopK];
  load_weights(p.weights, p.weight_type, first, weights);
  const int64_t head = min(int64_t{bytes_to_aligned(out) + kBytes}, bytes);
  const int64_t vectors = max((bytes - head) / kBytes - 1, int64_t{0}), tail = head + vectors * kBytes;
#pragma unroll 1
  for (int64_t i = thread - vectors_past_line(out + head); i < vectors; i += kVectors * threads) {
    uint4 low[kTopK][kVectors], high[kTopK][kVectors];
#pragma unroll
    for (int k = 0; k < kTopK; ++k) {
      if (rows[k] < 0) continue;
      const char* const y = p.y + rows[k] * p.y_stride + head;
      const auto aligned = reinterpret_cast<const uint4*>(y - misalignment(y)) + i;
#pragma unroll
      for (int j = 0; j < kVectors; ++j) {
        const bool wanted = i + j * threads >= 0 && i + j * threads < vectors;
        low[k][j] = load_if(wanted, aligned + j * threads);
        high[k][j] = load_if(wanted && misalignment(y) != 0, aligned + j * threads + 1);
      }
    }
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const int64_t at = i + j * threads;
      Real sum[kElementsOf<Format, uint4>] = {};
#pragma unroll
      for (int k = 0; k < kTopK; ++k)
        if (rows[k] >= 0) {
          const int shift = misalignment(p.y + rows[k] * p.y_stride + head);
          accumulate<Format>(shifted(low[k][j], high[k][j], shift), weights[0][k], sum);
        }
      if (at >= 0 && at < vectors) *reinterpret_cast<uint4*>(out + head + at * kBytes) = pack<uint4, Format>(sum);
    }
  }

  for (int64_t end = (threads - 1 - thread) * kUnit; end < head + bytes - tail; end += threads * kUnit) {
    const int64_t at = end < head ? end : tail + (end - head);
    Bits bits[kTopK];
#pragma unroll
    for (int k = 0; k < kTopK; ++k)
      bits[k] = load_if(rows[k] >= 0, reinterpret_cast<const Bits*>(p.y + rows[k] * p.y_stride + at));
    Real sum[1] = {};
#pragma unroll
    for (int k = 0; k < kTopK; ++k)
      if (rows[k] >= 0) accumulate<Format>(bits[k], weights[0][k], sum);
    *reinterpret_cast<Bits*>(out + at) = pack<Bits, Format>(sum);
  }
}

}  // namespace binmoe::cuda::device
