// dw[a] = dot(y[row_of_assignment[a]], grad[a / top_k]) and, in the same pass, dy[row_of_assignment[a]] = w[a] *
// grad[a / top_k]: a block per token, whose grad row is read once (few tokens: per four assignments). The blocks after
// those zero dy's empty rows. The order of a dot's sum is fixed: a thread's elements from the first on, then a
// butterfly over the warp, then the warps in order.
#pragma once

#include <climits>
#include <cstdint>

#include "cuda/device/assignments.cuh"
#include "cuda/device/formats.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/device/vectors.cuh"
#include "cuda/device/zero_rows.cuh"

namespace binmoe::cuda::device {

struct DotArguments {
  const char* y;
  const char* grad;
  int64_t y_stride, grad_stride;  // bytes
  int64_t vectors;                // of a row
  const int32_t* row_of_assignment;
  int32_t top_k;
  DType weight_type, dw_type;
  const void* weights;  // null: dy's rows are copies
  void* dw;
  EmptyRows dy;  // rows null: only dots
  int64_t first_block, token_blocks;
};

__device__ __forceinline__ float multiply_add(float a, float b, float sum) {
  return fmaf(a, b, sum);
}

__device__ __forceinline__ double multiply_add(double a, double b, double sum) {
  return fma(a, b, sum);
}

/// Sums over the warp of kCount values, kCount a power of two: lane l gets that of value value_of_lane<kCount>(l).
/// Each step halves the values that a lane still holds: kCount - 1 + log2(32 / kCount) shuffles, not 5 * kCount.
template <int kCount, class Real>
__device__ __forceinline__ Real warp_sums(Real (&values)[kCount], int lane) {
  int distance = 16;
#pragma unroll
  for (int half = kCount / 2; half >= 1; half /= 2, distance /= 2) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const Real sent = upper ? values[i] : values[i + half];
      values[i] = (upper ? values[i + half] : values[i]) + __shfl_xor_sync(~0u, sent, distance);
    }
  }
  Real sum = values[0];
#pragma unroll
  for (int rest = 16 / kCount; rest >= 1; rest /= 2) sum += __shfl_xor_sync(~0u, sum, rest);
  return sum;
}

/// The lane's upper log2(kCount) bits.
template <int kCount>
__device__ __forceinline__ int value_of_lane(int lane) {
  return lane / (32 / kCount);
}

/// The first `count` of the block's kCount dots to dw from assignment `first` on. sums: [warps][kCount].
template <int kCount, class Real>
__device__ __forceinline__ void store_dots(const DotArguments& p, Real (&dots)[kCount], int64_t first, int count,
                                           Real (*sums)[kCount]) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warps = static_cast<int>(blockDim.x) / 32;
  const Real warp_sum = warp_sums<kCount>(dots, lane);
  if (lane % (32 / kCount) == 0) sums[thread / 32][value_of_lane<kCount>(lane)] = warp_sum;
  __syncthreads();
  if (thread >= count) return;
  Real sum = 0;
  for (int warp = 0; warp < warps; ++warp) sum += sums[warp][thread];
  store_weight<Real>(p.dw, p.dw_type, first + thread, sum);
}

/// dot += <vector, grad>, from the first element on.
template <class Format, class V>
__device__ __forceinline__ void add_dot(V vector, V grad, typename Format::Real& dot) {
  typename Format::Real a[kElementsOf<Format, V>], b[kElementsOf<Format, V>];
  unpack<Format>(vector, a);
  unpack<Format>(grad, b);
#pragma unroll
  for (int i = 0; i < kElementsOf<Format, V>; ++i) dot = multiply_add(a[i], b[i], dot);
}

/// A thread's part of a row: vectors `offset` bytes into it and then `step` vectors apart, while their number times
/// `step` is below `left`.
struct RowPart {
  int64_t offset;
  int left, step;

  __device__ __forceinline__ RowPart(int64_t first, int64_t vectors, int vector_bytes)
      : offset(first * vector_bytes),
        left(static_cast<int>(min(vectors - first, int64_t{INT_MAX}))),
        step(static_cast<int>(blockDim.x)) {}
};

/// kRows rows of y, kVectors vectors of each. rows, weights and dots: kRows of them from those pointers on; rows of -1
/// are skipped.
template <class Format, class Access, int kRows, int kVectors>
struct Turn {
  using V = typename Access::Vector;
  using Real = typename Format::Real;
  static constexpr int kBytes = static_cast<int>(sizeof(V));

  static __device__ __forceinline__ void load_row(const char* row, const RowPart& part, bool wanted,
                                                  V (&vectors)[kVectors]) {
#pragma unroll
    for (int j = 0; j < kVectors; ++j)
      vectors[j] = Access::load_if(wanted && j * part.step < part.left, row + part.offset + j * part.step * kBytes);
  }

  static __device__ __forceinline__ void load_rows(const DotArguments& p, const RowPart& part, const int32_t* rows,
                                                   V (&vectors)[kRows][kVectors]) {
#pragma unroll
    for (int k = 0; k < kRows; ++k) load_row(p.y + rows[k] * p.y_stride, part, rows[k] >= 0, vectors[k]);
  }

  /// Dots of what was loaded, and dy. The branches around single vectors, which a whole warp mostly takes alike, keep
  /// the compiler from unpacking all of them at once: that would take 10 registers more.
  static __device__ __forceinline__ void use_rows(const DotArguments& p, const RowPart& part,
                                                  const V (&vectors)[kRows][kVectors], const V (&grad)[kVectors],
                                                  const int32_t* rows, const Real* weights, Real* dots) {
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (rows[k] < 0) continue;
#pragma unroll
      for (int j = 0; j < kVectors; ++j)
        if (j * part.step < part.left) add_dot<Format>(vectors[k][j], grad[j], dots[k]);
      if (p.dy.rows == nullptr) continue;
      char* const to = p.dy.rows + rows[k] * p.dy.stride_bytes + part.offset;
      if (p.weights == nullptr) {
#pragma unroll
        for (int j = 0; j < kVectors; ++j)
          if (j * part.step < part.left) Access::store(to + j * part.step * kBytes, grad[j]);
      } else {
#pragma unroll
        for (int j = 0; j < kVectors; ++j)
          if (j * part.step < part.left) Access::store(to + j * part.step * kBytes, scale<Format>(grad[j], weights[k]));
      }
    }
  }
};

/// The whole row at once: blockDim.x * kVectors >= p.vectors. A block makes kCount assignments of a token, a divisor of
/// top_k: all of them unless tokens are few. The grad row stays in registers; while kRows rows of y are used, the next
/// kRows are loaded. Shared memory: zero_rows_shared_bytes(), unless kFewTokens: then warps zero parts of rows.
template <class Format, int kCount, int kRows, int kVectors, int kMaxThreads, int kMinBlocks, bool kFewTokens>
__global__ void __launch_bounds__(kMaxThreads, kMinBlocks) dot_token_kernel(const __grid_constant__ DotArguments p) {
  using Turns = Turn<Format, Whole<uint4>, kRows, kVectors>;
  using Real = typename Format::Real;
  __shared__ Real sums[kMaxThreads / 32][kCount];
  extern __shared__ int32_t tails[];
  let_next_start();
  wait_for_previous();
  if (blockIdx.x >= p.token_blocks) {
    const int64_t worker = blockIdx.x - p.token_blocks, workers = gridDim.x - p.token_blocks;
    if constexpr (kFewTokens)
      zero_parts(p.dy, static_cast<uint32_t>(worker * (blockDim.x / 32) + threadIdx.x / 32),
                 static_cast<uint32_t>(workers * (blockDim.x / 32)));
    else
      zero_empty_rows<false>(p.dy, worker, workers, tails);
    return;
  }
  const int64_t block = p.first_block + blockIdx.x;
  const int64_t token = kFewTokens ? blockIdx.x * kCount / static_cast<uint32_t>(p.top_k) : block;
  const int64_t first[1] = {block * kCount};
  int32_t rows[kCount];
  Real weights[1][kCount], dots[kCount] = {};
  load_run(p.row_of_assignment + first[0], rows);
  load_weights(p.weights, p.weight_type, first, weights);
  if (!none_kept(rows)) {
    const RowPart part(threadIdx.x, p.vectors, sizeof(uint4));
    uint4 grad[kVectors], vectors[2][kRows][kVectors];
    Turns::load_row(p.grad + token * p.grad_stride, part, true, grad);
    Turns::load_rows(p, part, rows, vectors[0]);
#pragma unroll
    for (int k = 0; k < kCount; k += kRows) {
      if (k + kRows < kCount) Turns::load_rows(p, part, rows + k + kRows, vectors[(k / kRows + 1) % 2]);
      Turns::use_rows(p, part, vectors[k / kRows % 2], grad, rows + k, weights[0] + k, dots + k);
    }
  }
  store_dots<kCount>(p, dots, first[0], kCount, sums);
}

/// Vectors a thread and most threads of dot_any_kernel: small vectors need more of them in flight, in smaller blocks.
template <class Access>
inline constexpr int kDotAnyVectors = sizeof(typename Access::Vector) == 16 ? 4 : 8;
template <class Access>
inline constexpr int kDotAnyThreads = sizeof(typename Access::Vector) == 16 ? 512 : 256;

/// Any K, any length: some rows of y at a time, the grad row read again for each time.
template <class Format, class Access>
__global__ void __launch_bounds__(kDotAnyThreads<Access>, 512 / kDotAnyThreads<Access>)
    dot_any_kernel(const __grid_constant__ DotArguments p) {
  constexpr int kVectors = kDotAnyVectors<Access>, kRows = sizeof(typename Format::Real) == sizeof(double) ? 2 : 4;
  using Turns = Turn<Format, Access, kRows, kVectors>;
  using Real = typename Format::Real;
  using Staged = StagedAssignments<Real>;
  __shared__ Real sums[kDotAnyThreads<Access> / 32][kRows];
  __shared__ Staged staged;
  extern __shared__ int32_t tails[];
  let_next_start();
  wait_for_previous();
  if (blockIdx.x >= p.token_blocks)
    return zero_empty_rows<false>(p.dy, blockIdx.x - p.token_blocks, gridDim.x - p.token_blocks, tails);
  const int64_t token = p.first_block + blockIdx.x, threads = blockDim.x;
  const int64_t begin = token * p.top_k, end = begin + p.top_k;
  for (int64_t a = begin; a < end; a += kRows) {
    const int at = static_cast<int>((a - begin) % Staged::kCapacity);
    if (at == 0) staged.load_from(p.row_of_assignment, p.weights, p.weight_type, a, end);
    int32_t rows[kRows];
    Real weights[kRows], dots[kRows] = {};
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      rows[k] = staged.rows[at + k];
      weights[k] = staged.weights[at + k];
    }
    if (!none_kept(rows))
      for (int64_t i = threadIdx.x; i < p.vectors; i += kVectors * threads) {
        const RowPart part(i, p.vectors, sizeof(typename Access::Vector));
        typename Access::Vector grad[kVectors], vectors[kRows][kVectors];
        Turns::load_row(p.grad + token * p.grad_stride, part, true, grad);
        Turns::load_rows(p, part, rows, vectors);
        Turns::use_rows(p, part, vectors, grad, rows, weights, dots);
      }
    store_dots<kRows>(p, dots, a, static_cast<int>(min(end - a, int64_t{kRows})), sums);
    __syncthreads();  // sums are free again
  }
}

}  // namespace binmoe::cuda::device
