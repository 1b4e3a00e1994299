// What a thread needs to know of a token's assignments: their expert rows and their weights.
#pragma once

#include <cstdint>
#include <cstring>

#include "binmoe/types.h"
#include "cuda/device/formats.cuh"
#include "cuda/device/vectors.cuh"

namespace binmoe::cuda::device {

/// load_run() takes runs of `bytes` by vectors of this many bytes; arrays of runs must start at a multiple of it.
__host__ __device__ constexpr int run_vector_bytes(int bytes) {
  return bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : 2;
}

template <int kBytes>
struct RunVector;
template <>
struct RunVector<16> {
  using Type = uint4;
};
template <>
struct RunVector<8> {
  using Type = uint2;
};
template <>
struct RunVector<4> {
  using Type = uint32_t;
};
template <>
struct RunVector<2> {
  using Type = uint16_t;
};

/// values = the kCount elements from p on.
template <class Bits, int kCount>
__device__ __forceinline__ void load_run(const Bits* p, Bits (&values)[kCount]) {
  using V = typename RunVector<run_vector_bytes(kCount * static_cast<int>(sizeof(Bits)))>::Type;
  constexpr int kPerVector = static_cast<int>(sizeof(V) / sizeof(Bits));
#pragma unroll
  for (int i = 0; i < kCount / kPerVector; ++i) {
    const V vector = load(reinterpret_cast<const V*>(p) + i);
    memcpy(values + i * kPerVector, &vector, sizeof(V));
  }
}

/// weights[i][k] = weight first[i] + k, widened. All loads are issued before the first one is waited for.
template <class Format, class Real, int kTokens, int kTopK>
__device__ __forceinline__ void load_weights_as(const void* p, const int64_t (&first)[kTokens],
                                                Real (&weights)[kTokens][kTopK]) {
  using Bits = typename Format::Bits;
  Bits bits[kTokens][kTopK];
#pragma unroll
  for (int i = 0; i < kTokens; ++i) load_run(static_cast<const Bits*>(p) + first[i], bits[i]);
#pragma unroll
  for (int i = 0; i < kTokens; ++i)
#pragma unroll
    for (int k = 0; k < kTopK; ++k) weights[i][k] = static_cast<Real>(Format::widen(bits[i][k]));
}

/// The same by the run-time dtype; absent weights are 1, which changes no product but a NaN's bits.
template <class Real, int kTokens, int kTopK>
__device__ __forceinline__ void load_weights(const void* p, DType type, const int64_t (&first)[kTokens],
                                             Real (&weights)[kTokens][kTopK]) {
  if (p == nullptr) {
#pragma unroll
    for (int i = 0; i < kTokens; ++i)
#pragma unroll
      for (int k = 0; k < kTopK; ++k) weights[i][k] = 1;
  } else if (type == DType::f32) {
    load_weights_as<F32>(p, first, weights);
  } else if (type == DType::bf16) {
    load_weights_as<BF16>(p, first, weights);
  } else if (type == DType::f16) {
    load_weights_as<F16>(p, first, weights);
  } else if constexpr (sizeof(Real) == sizeof(double)) {
    load_weights_as<F64>(p, first, weights);
  }
}

/// For any K and any address: up to kCapacity assignments of a token in shared memory, one loaded by each thread.
template <class Real>
struct StagedAssignments {
  static constexpr int kCapacity = 32;  // no block has fewer threads
  int32_t rows[kCapacity];
  Real weights[kCapacity];

  /// Take assignments [begin, end); past `end` stand rows of -1. Called by all threads of the block.
  __device__ __forceinline__ void load_from(const int32_t* row_of_assignment, const void* p, DType type, int64_t begin,
                                            int64_t end) {
    __syncthreads();  // the ones before these are no longer read
    const int64_t a = begin + threadIdx.x;
    if (threadIdx.x < kCapacity) {
      rows[threadIdx.x] = a < end ? load(row_of_assignment + a) : -1;
      weights[threadIdx.x] = a < end && p != nullptr ? load_weight<Real>(p, type, a) : Real{1};
    }
    __syncthreads();
  }
};

template <int kCount>
__device__ __forceinline__ bool none_kept(const int32_t (&rows)[kCount]) {
  int32_t all = -1;
#pragma unroll
  for (int k = 0; k < kCount; ++k) all &= rows[k];
  return all < 0;
}

}  // namespace binmoe::cuda::device
