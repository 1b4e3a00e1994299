// The dots and dy of rows that start anywhere: the grad row stands in shared memory and is read there shifted, once to
// meet the vectors of y and, where dy's rows stand otherwise, again to make those of dy.
#pragma once

#include "cuda/device/dot_kernels.cuh"
#include "cuda/device/shifted_vectors.cuh"

namespace binmoe::cuda::device {

/// A thread's part of kRows rows: kVectors aligned vectors of each at a time, and one of the elements before the first
/// or after the last of them. `begin`, bytes: the piece of the row whose grad is staged.
template <class Format, int kRows, int kVectors>
struct ShiftedTurn {
  using Bits = typename Format::Bits;
  using Real = typename Format::Real;
  static constexpr int kUnit = static_cast<int>(sizeof(Bits));
  static constexpr int kEnd = 8;  // threads that take the elements of an end, at most 7
  static constexpr int kLeastThreads = kRows * 2 * kEnd;

  const DotArguments& p;
  const char* grad;  // staged
  int64_t begin;
  int bytes;

  __device__ __forceinline__ const char* y(int64_t row) const { return p.y + row * p.y_stride + begin; }
  __device__ __forceinline__ char* dy(int64_t row) const { return p.dy.rows + row * p.dy.stride_bytes + begin; }

  /// The row of which this thread takes an element at an end.
  static __device__ __forceinline__ int end_row() { return static_cast<int>(threadIdx.x) / (2 * kEnd); }

  /// The offset of that element in a piece that starts at `row`; -1: none.
  __device__ __forceinline__ int end_offset(const char* row) const {
    const int at = static_cast<int>(threadIdx.x) % kEnd * kUnit;
    const int head = min(bytes_to_aligned(row), bytes), tail = (bytes - head) & 15;
    if ((threadIdx.x & kEnd) == 0) return at < head ? at : -1;
    return at < tail ? bytes - tail + at : -1;
  }

  /// Before the vectors, so that it arrives with them.
  __device__ __forceinline__ Bits load_end(const int32_t* rows) const {
    const int32_t row = end_row() < kRows ? rows[end_row()] : -1;
    if (row < 0) return 0;
    const int at = end_offset(y(row));
    return at < 0 ? Bits{0} : load(reinterpret_cast<const Bits*>(y(row) + at));
  }

  __device__ __forceinline__ void use_end(Bits loaded, const int32_t* rows, const Real* weights,
                                          Real (&dots)[kRows]) const {
    const int32_t row = end_row() < kRows ? rows[end_row()] : -1;
    if (row < 0) return;
    if (const int at = end_offset(y(row)); at >= 0) {
      const Real other = Format::widen(*reinterpret_cast<const Bits*>(grad + at));
#pragma unroll
      for (int k = 0; k < kRows; ++k)
        if (k == end_row()) dots[k] = multiply_add(Format::widen(loaded), other, dots[k]);
    }
    if (p.dy.rows == nullptr) return;
    if (const int at = end_offset(dy(row)); at >= 0) {
      const Bits bits = *reinterpret_cast<const Bits*>(grad + at);
      *reinterpret_cast<Bits*>(dy(row) + at) = p.weights == nullptr ? bits : scale<Format>(bits, weights[end_row()]);
    }
  }

  __device__ __forceinline__ uint4 grad_vector(int at) const {
    const int shift = misalignment(grad + at);
    return load_shifted(grad + at - shift, shift);
  }

  __device__ __forceinline__ void load_vectors(int first, const int32_t (&rows)[kRows],
                                               uint4 (&vectors)[kRows][kVectors]) const {
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (rows[k] < 0) continue;
      const int head = bytes_to_aligned(y(rows[k]));
      const char* const aligned = y(rows[k]) + head;
#pragma unroll
      for (int j = 0; j < kVectors; ++j) {
        const int i = first + j * static_cast<int>(blockDim.x) - vectors_past_line(aligned);
        vectors[k][j] = load_if(i >= 0 && head + i * 16 + 16 <= bytes, reinterpret_cast<const uint4*>(aligned) + i);
      }
    }
  }

  __device__ __forceinline__ void use_vectors(int first, const uint4 (&vectors)[kRows][kVectors],
                                              const int32_t (&rows)[kRows], const Real (&weights)[kRows],
                                              Real (&dots)[kRows]) const {
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (rows[k] < 0) continue;
      const int head = bytes_to_aligned(y(rows[k])), past_line = vectors_past_line(y(rows[k]) + head);
      const int dy_head = bytes_to_aligned(dy(rows[k]));
#pragma unroll
      for (int j = 0; j < kVectors; ++j) {
        const int i = first + j * static_cast<int>(blockDim.x) - past_line;
        if (i < 0) continue;
        uint4 vector{};
        if (head + i * 16 + 16 <= bytes) {
          vector = grad_vector(head + i * 16);
          add_dot<Format>(vectors[k][j], vector, dots[k]);
        }
        if (p.dy.rows == nullptr || dy_head + i * 16 + 16 > bytes) continue;
        if (dy_head != head) vector = grad_vector(dy_head + i * 16);
        if (p.weights != nullptr) vector = scale<Format>(vector, weights[k]);
        *reinterpret_cast<uint4*>(dy(rows[k]) + dy_head + i * 16) = vector;
      }
    }
  }

  /// shared_rows and shared_weights: the same as rows and weights.
  __device__ __forceinline__ void run(const int32_t* shared_rows, const Real* shared_weights,
                                      const int32_t (&rows)[kRows], const Real (&weights)[kRows],
                                      Real (&dots)[kRows]) const {
    const Bits end = load_end(shared_rows);
#pragma unroll 1
    for (int first = static_cast<int>(threadIdx.x); first * 16 < bytes + 112; first += kVectors * blockDim.x) {
      uint4 vectors[kRows][kVectors];
      load_vectors(first, rows, vectors);
      use_vectors(first, vectors, rows, weights, dots);
    }
    use_end(end, shared_rows, shared_weights, dots);
  }
};

/// Threads of a block at most, and such blocks on a multiprocessor at least.
inline constexpr int kDotShiftedThreads = 128;
template <class Format>
inline constexpr int kDotShiftedBlocks = sizeof(typename Format::Real) == sizeof(double) ? 4 : 8;

/// Any K, any length, kRows rows at a time; addresses and strides are multiples of an element. Threads: at least
/// ShiftedTurn::kLeastThreads. Shared memory: shifted_shared_bytes(), at least zero_rows_shared_bytes().
template <class Format, int kRows, int kVectors>
__global__ void __launch_bounds__(kDotShiftedThreads, kDotShiftedBlocks<Format>)
    dot_shifted_kernel(const __grid_constant__ DotArguments p) {
  using Real = typename Format::Real;
  using Staged = StagedAssignments<Real>;
  __shared__ Staged staged;
  __shared__ Real sums[kDotShiftedThreads / 32][kRows];
  extern __shared__ __align__(16) char stage[];
  let_next_start();
  wait_for_previous();
  if (blockIdx.x >= p.token_blocks)
    return zero_empty_rows<false>(p.dy, blockIdx.x - p.token_blocks, gridDim.x - p.token_blocks,
                                  reinterpret_cast<int32_t*>(stage));
  const int64_t token = p.first_block + blockIdx.x, row_bytes = p.dy.row_bytes;
  const int64_t begin = token * p.top_k, end = begin + p.top_k;
  bool whole_row = false;  // is staged
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
    for (int64_t piece = none_kept(rows) ? row_bytes : 0; piece < row_bytes; piece += kShiftedPiece) {
      const int bytes = static_cast<int>(min(row_bytes - piece, int64_t{kShiftedPiece}));
      const char* const grad = p.grad + token * p.grad_stride + piece;
      if (!whole_row) {
        __syncthreads();
        stage_piece(grad, bytes, stage);
        __syncthreads();
        whole_row = row_bytes <= kShiftedPiece;
      }
      const ShiftedTurn<Format, kRows, kVectors> turn{p, stage + misalignment(grad), piece, bytes};
      turn.run(staged.rows + at, staged.weights + at, rows, weights, dots);
    }
    store_dots<kRows>(p, dots, a, static_cast<int>(min(end - a, int64_t{kRows})), sums);
    __syncthreads();  // sums are free again
  }
}

}  // namespace binmoe::cuda::device
