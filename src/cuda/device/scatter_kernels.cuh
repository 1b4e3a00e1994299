// out[t] = sum over k, in order, of w[t,k] * y[row_of_assignment[t,k]]: one writer for each vector of out.
#pragma once

#include <cstdint>

#include "cuda/device/assignments.cuh"
#include "cuda/device/division.cuh"
#include "cuda/device/formats.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/device/vectors.cuh"

namespace binmoe::cuda::device {

struct ScatterArguments {
  const char* y;
  char* out;
  int64_t y_stride, out_stride;  // bytes
  const int32_t* row_of_assignment;
  const void* weights;  // or null
  DType weight_type;
  int32_t top_k;
  int64_t vectors;          // of a row
  int64_t all_vectors;      // tokens * vectors
  Divisor vectors_divisor;  // flat only, where all_vectors < 2^31
};

/// sum += weight * vector, element by element: a product rounded, then a sum rounded.
template <class Format, class V>
__device__ __forceinline__ void accumulate(V vector, typename Format::Real weight,
                                           typename Format::Real (&sum)[kElementsOf<Format, V>]) {
  typename Format::Real values[kElementsOf<Format, V>];
  unpack<Format>(vector, values);
#pragma unroll
  for (int i = 0; i < kElementsOf<Format, V>; ++i) sum[i] = add(sum[i], multiply(weight, values[i]));
}

/// Blocks of the flat kernel on a multiprocessor, at least. K = 2: two registers fewer, and it is six of 256 threads.
template <class Format, int kTopK>
inline constexpr int kFlatBlocks = kTopK == 2 && sizeof(typename Format::Bits) < 8 ? 6 : 1;

/// A thread makes kVectors vectors, one block apart, of out seen as one array. A dropped assignment loads nothing and
/// adds 0 * 0 to a sum that is never -0: no branch stands between the loads.
template <class Format, int kTopK, int kVectors>
__global__ void __launch_bounds__(256, blocks_per_sm(256, kFlatBlocks<Format, kTopK>))
    scatter_flat_kernel(const __grid_constant__ ScatterArguments p) {
  using Real = typename Format::Real;
  let_next_start();
  wait_for_previous();
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * (blockDim.x * kVectors) + threadIdx.x;
  int64_t token[kVectors], offset[kVectors], first[kVectors];
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const int64_t at = min(begin + u * blockDim.x, p.all_vectors - 1);
    token[u] = p.vectors_divisor.quotient(static_cast<uint32_t>(at));
    offset[u] = (at - token[u] * p.vectors) * static_cast<int64_t>(sizeof(uint4));
    first[u] = token[u] * kTopK;
  }
  int32_t rows[kVectors][kTopK];
  Real weights[kVectors][kTopK];
#pragma unroll
  for (int u = 0; u < kVectors; ++u) load_run(p.row_of_assignment + first[u], rows[u]);
  load_weights(p.weights, p.weight_type, first, weights);
  uint4 vectors[kVectors][kTopK];
#pragma unroll
  for (int u = 0; u < kVectors; ++u)
#pragma unroll
    for (int k = 0; k < kTopK; ++k)
      vectors[u][k] =
          load_if(rows[u][k] >= 0, reinterpret_cast<const uint4*>(p.y + rows[u][k] * p.y_stride + offset[u]));
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    Real sum[kElementsOf<Format, uint4>] = {};
#pragma unroll
    for (int k = 0; k < kTopK; ++k) accumulate<Format>(vectors[u][k], rows[u][k] >= 0 ? weights[u][k] : Real{0}, sum);
    if (begin + u * blockDim.x < p.all_vectors)
      *reinterpret_cast<uint4*>(p.out + token[u] * p.out_stride + offset[u]) = pack<uint4, Format>(sum);
  }
}

/// Blocks of 256 threads on a multiprocessor, at least: what leaves registers for the loads to be in flight together.
template <class Format, int kTopK>
inline constexpr int kTokenBlocks = sizeof(typename Format::Bits) == 8 ? 3
                                    : kTopK == 4                       ? 8
                                                                       : 4;

/// A block makes a token's row, a vector a thread at a time. What is dropped is skipped by branches that the whole
/// block takes alike, so skewed routings cost less, not more; a token without a kept row only writes zeros.
template <class Format, int kTopK>
__global__ void __launch_bounds__(256, blocks_per_sm(256, kTokenBlocks<Format, kTopK>))
    scatter_token_kernel(const __grid_constant__ ScatterArguments p) {
  using Real = typename Format::Real;
  constexpr bool kWeightsFirst = kTopK == 4;  // K = 8 has no use for it, and tokens without a kept row end sooner
  const int64_t token = blockIdx.x;
  const int64_t first[1] = {token * kTopK};
  const auto out = reinterpret_cast<uint4*>(p.out + token * p.out_stride);
  let_next_start();
  wait_for_previous();
  int32_t rows[kTopK];
  Real weights[1][kTopK];
  load_run(p.row_of_assignment + first[0], rows);
  if constexpr (kWeightsFirst) load_weights(p.weights, p.weight_type, first, weights);
  if (none_kept(rows)) {
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < p.vectors; i += blockDim.x) out[i] = uint4{};
    return;
  }
  if constexpr (!kWeightsFirst) load_weights(p.weights, p.weight_type, first, weights);
  for (int64_t i = threadIdx.x; i < p.vectors; i += blockDim.x) {
    uint4 vectors[kTopK];
#pragma unroll
    for (int k = 0; k < kTopK; ++k)
      if (rows[k] >= 0) vectors[k] = load(reinterpret_cast<const uint4*>(p.y + rows[k] * p.y_stride) + i);
    Real sum[kElementsOf<Format, uint4>] = {};
#pragma unroll
    for (int k = 0; k < kTopK; ++k)
      if (rows[k] >= 0) accumulate<Format>(vectors[k], weights[0][k], sum);
    out[i] = pack<uint4, Format>(sum);
  }
}

/// vectors[u] = vector first + u * step of a row; +0 from the row's end on. first < end.
template <class Access, int kVectors>
__device__ __forceinline__ void load_vectors(const char* row, int64_t first, int64_t step, int64_t end,
                                             typename Access::Vector (&vectors)[kVectors]) {
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const char* const p = row + (first + u * step) * static_cast<int64_t>(sizeof(typename Access::Vector));
    vectors[u] = u == 0 ? Access::load(p) : Access::load_if(first + u * step < end, p);
  }
}

/// A block makes a token's row for any K, kGroup assignments at a time.
template <class Format, class Access, int kVectors>
__global__ void __launch_bounds__(256, 1) scatter_any_kernel(const __grid_constant__ ScatterArguments p) {
  using V = typename Access::Vector;
  using Real = typename Format::Real;
  using Staged = StagedAssignments<Real>;
  constexpr int kGroup = 8, kBytes = static_cast<int>(sizeof(V));
  __shared__ Staged staged;
  const int64_t token = blockIdx.x, threads = blockDim.x;
  const int64_t begin = token * p.top_k, end = begin + p.top_k;
  char* const out = p.out + token * p.out_stride;
  let_next_start();
  wait_for_previous();
  for (int64_t base = 0; base < p.vectors; base += kVectors * threads) {
    const int64_t i = base + threadIdx.x;
    Real sum[kVectors][kElementsOf<Format, V>] = {};
    for (int64_t a = begin; a < end; a += Staged::kCapacity) {
      if (base == 0 || p.top_k > Staged::kCapacity)
        staged.load_from(p.row_of_assignment, p.weights, p.weight_type, a, end);
      for (int first = 0; first < Staged::kCapacity && a + first < end; first += kGroup) {
        V vectors[kGroup][kVectors];
#pragma unroll
        for (int k = 0; k < kGroup; ++k)
          if (staged.rows[first + k] >= 0 && i < p.vectors)
            load_vectors<Access>(p.y + staged.rows[first + k] * p.y_stride, i, threads, p.vectors, vectors[k]);
#pragma unroll
        for (int k = 0; k < kGroup; ++k)
#pragma unroll
          for (int u = 0; u < kVectors; ++u)
            if (staged.rows[first + k] >= 0) accumulate<Format>(vectors[k][u], staged.weights[first + k], sum[u]);
      }
    }
#pragma unroll
    for (int u = 0; u < kVectors; ++u)
      if (i + u * threads < p.vectors) Access::store(out + (i + u * threads) * kBytes, pack<V, Format>(sum[u]));
  }
}

}  // namespace binmoe::cuda::device
