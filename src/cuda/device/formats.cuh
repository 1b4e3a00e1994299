// The float formats on the device: widening is exact; narrowing rounds once, to nearest even, keeps subnormals and
// overflows to infinity. Sums and products that must not fuse go through add() and multiply().
#pragma once

#include <cstdint>
#include <cstring>

#include "binmoe/types.h"
#include "cuda/device/vectors.cuh"

namespace binmoe::cuda::device {

/// A row format: Bits is what memory holds, Real what is computed in. narrow_pair packs two, the first one low.
struct F32 {
  using Bits = uint32_t;
  using Real = float;
  static __device__ __forceinline__ float widen(uint32_t bits) { return __uint_as_float(bits); }
  static __device__ __forceinline__ uint32_t narrow(float value) { return __float_as_uint(value); }
};

struct F64 {
  using Bits = uint64_t;
  using Real = double;
  static __device__ __forceinline__ double widen(uint64_t bits) {
    return __longlong_as_double(static_cast<long long>(bits));
  }
  static __device__ __forceinline__ uint64_t narrow(double value) {
    return static_cast<uint64_t>(__double_as_longlong(value));
  }
};

struct BF16 {
  using Bits = uint16_t;
  using Real = float;
  static __device__ __forceinline__ float widen(uint16_t bits) {
    return __uint_as_float(static_cast<uint32_t>(bits) << 16);
  }
  static __device__ __forceinline__ uint16_t narrow(float value) {
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
  static __device__ __forceinline__ uint32_t narrow_pair(float low, float high) {
    uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
  }
};

struct F16 {
  using Bits = uint16_t;
  using Real = float;
  static __device__ __forceinline__ float widen(uint16_t bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
  static __device__ __forceinline__ uint16_t narrow(float value) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
  static __device__ __forceinline__ uint32_t narrow_pair(float low, float high) {
    uint32_t bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
  }
};

/// Elements of Format in a vector V of sizeof(Bits) to 16 bytes.
template <class Format, class V>
inline constexpr int kElementsOf = static_cast<int>(sizeof(V) / sizeof(typename Format::Bits));

template <class Format, class V>
__device__ __forceinline__ void unpack(V vector, typename Format::Real (&values)[kElementsOf<Format, V>]) {
  typename Format::Bits bits[kElementsOf<Format, V>];
  memcpy(bits, &vector, sizeof(V));
#pragma unroll
  for (int i = 0; i < kElementsOf<Format, V>; ++i) values[i] = Format::widen(bits[i]);
}

template <class V, class Format>
__device__ __forceinline__ V pack(const typename Format::Real (&values)[kElementsOf<Format, V>]) {
  V vector;
  if constexpr (sizeof(typename Format::Bits) == 2 && sizeof(V) >= 4) {
    uint32_t words[sizeof(V) / 4];
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(V) / 4); ++i)
      words[i] = Format::narrow_pair(values[2 * i], values[2 * i + 1]);
    memcpy(&vector, words, sizeof(V));
  } else {
    typename Format::Bits bits[kElementsOf<Format, V>];
#pragma unroll
    for (int i = 0; i < kElementsOf<Format, V>; ++i) bits[i] = Format::narrow(values[i]);
    memcpy(&vector, bits, sizeof(V));
  }
  return vector;
}

__device__ __forceinline__ float multiply(float a, float b) {
  return __fmul_rn(a, b);
}

__device__ __forceinline__ double multiply(double a, double b) {
  return __dmul_rn(a, b);
}

__device__ __forceinline__ float add(float a, float b) {
  return __fadd_rn(a, b);
}

__device__ __forceinline__ double add(double a, double b) {
  return __dadd_rn(a, b);
}

/// weight * every element, each rounded once.
template <class Format, class V>
__device__ __forceinline__ V scale(V vector, typename Format::Real weight) {
  typename Format::Real values[kElementsOf<Format, V>];
  unpack<Format>(vector, values);
#pragma unroll
  for (int i = 0; i < kElementsOf<Format, V>; ++i) values[i] = multiply(weight, values[i]);
  return pack<V, Format>(values);
}

/// Weight `index` of an array of `type` at any address, widened exactly. f64 weights come with f64 rows only.
/// The switch is the same for the whole grid: cheaper than an instance for each dtype.
template <class Real>
__device__ __forceinline__ Real load_weight(const void* weights, DType type, int64_t index) {
  const char* p = static_cast<const char*>(weights);
  if (type == DType::f32) return F32::widen(load_anywhere<uint32_t>(p + index * 4));
  if (type == DType::bf16) return BF16::widen(load_anywhere<uint16_t>(p + index * 2));
  if (type == DType::f16) return F16::widen(load_anywhere<uint16_t>(p + index * 2));
  return static_cast<Real>(F64::widen(load_anywhere<uint64_t>(p + index * 8)));
}

/// Round to odd, so that a later rounding to 16 bits is the same as rounding the double once.
__device__ __forceinline__ float f32_to_odd(double value) {
  const float shorter = __double2float_rz(value);
  return static_cast<double>(shorter) == value ? shorter : __uint_as_float(__float_as_uint(shorter) | 1u);
}

/// Store `value` as element `index` of an array of `type` at any address, rounded once.
template <class Real>
__device__ __forceinline__ void store_weight(void* weights, DType type, int64_t index, Real value) {
  char* p = static_cast<char*>(weights);
  if (type == DType::f64) return store_anywhere(p + index * 8, F64::narrow(static_cast<double>(value)));
  if (type == DType::f32) return store_anywhere(p + index * 4, F32::narrow(static_cast<float>(value)));
  float single;
  if constexpr (sizeof(Real) == sizeof(double))
    single = f32_to_odd(value);
  else
    single = value;
  store_anywhere(p + index * 2, type == DType::bf16 ? BF16::narrow(single) : F16::narrow(single));
}

}  // namespace binmoe::cuda::device
