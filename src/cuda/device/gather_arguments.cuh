// What the kernels of gather share: their arguments, and what happens to a vector on its way from x to y.
#pragma once

#include <cstdint>

#include "cuda/device/formats.cuh"
#include "cuda/device/vectors.cuh"
#include "cuda/device/zero_rows.cuh"

namespace binmoe::cuda::device {

struct GatherArguments {
  const char* x;
  int64_t x_stride_bytes;
  EmptyRows y;
  const int32_t *row_of_assignment, *indices, *bins, *tokens_per_expert;
  const void* weights;  // null: a copy
  DType weight_type;
  int64_t tokens;
  int32_t top_k;

  __device__ __forceinline__ const char* x_row(int64_t token) const { return x + token * x_stride_bytes; }
  __device__ __forceinline__ char* y_row(int64_t row) const { return y.rows + row * y.stride_bytes; }
};

/// How a grid divides its work; what a field counts stands with each kernel.
struct GatherGrid {
  int64_t blocks;  // that move rows; those after them zero
  int32_t threads_per_row;
  int32_t rows_at_once;
};

/// Vectors of a row that a thread loads together, where the row stays in registers.
inline constexpr int kVectorsPerThread = 4;

struct NoWeight {};

/// The row is copied as it is.
template <class AccessType>
struct Copy {
  using Access = AccessType;
  using Vector = typename Access::Vector;
  using Weight = NoWeight;
  static __device__ __forceinline__ Weight weight(const GatherArguments&, int64_t) { return {}; }
  static __device__ __forceinline__ Vector apply(Vector vector, Weight) { return vector; }
};

/// Every element times the weight of the assignment.
template <class AccessType, class RowFormat>
struct Scale {
  using Access = AccessType;
  using Vector = typename Access::Vector;
  using Format = RowFormat;
  using Weight = typename Format::Real;
  static __device__ __forceinline__ Weight weight(const GatherArguments& arguments, int64_t assignment) {
    return load_weight<Weight>(arguments.weights, arguments.weight_type, assignment);
  }
  static __device__ __forceinline__ Vector apply(Vector vector, Weight weight) { return scale<Format>(vector, weight); }
};

/// The places of one token's rows. A fixed top_k stands in registers, all loads in flight together.
template <class Move, int kTopK>
struct TokenPlaces {
  int32_t rows[kTopK];
  typename Move::Weight weights[kTopK];

  __device__ __forceinline__ TokenPlaces(const GatherArguments& arguments, int64_t token) {
#pragma unroll
    for (int k = 0; k < kTopK; ++k) rows[k] = load(arguments.row_of_assignment + token * kTopK + k);
#pragma unroll
    for (int k = 0; k < kTopK; ++k) weights[k] = Move::weight(arguments, token * kTopK + k);
  }
  __device__ __forceinline__ bool any() const {
    int32_t all = -1;
#pragma unroll
    for (int k = 0; k < kTopK; ++k) all &= rows[k];
    return all >= 0;
  }
  static __device__ __forceinline__ int count() {
    return kTopK;
  }
  __device__ __forceinline__ int32_t row(int k) const {
    return rows[k];
  }
  __device__ __forceinline__ typename Move::Weight weight(int k) const {
    return weights[k];
  }
};

/// Any top_k: read where it is needed (from the first-level cache but for the first time).
template <class Move>
struct TokenPlaces<Move, 0> {
  const GatherArguments& arguments;
  int64_t first;

  __device__ __forceinline__ TokenPlaces(const GatherArguments& all, int64_t token)
      : arguments(all), first(token * all.top_k) {}
  __device__ __forceinline__ bool any() const {
    int32_t all = -1;
#pragma unroll 4
    for (int k = 0; k < arguments.top_k; ++k) all &= row(k);
    return all >= 0;
  }
  __device__ __forceinline__ int count() const {
    return arguments.top_k;
  }
  __device__ __forceinline__ int32_t row(int k) const {
    return load(arguments.row_of_assignment + first + k);
  }
  __device__ __forceinline__ typename Move::Weight weight(int k) const {
    return Move::weight(arguments, first + k);
  }
};

}  // namespace binmoe::cuda::device
