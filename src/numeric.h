// Scalar conversions between the float formats, by bits: round to nearest even, subnormals kept, overflow to infinity.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "binmoe/types.h"

namespace binmoe::numeric {

inline float f32_of_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t bf16_of_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float f32_of_f16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(subnormal));
}

inline uint16_t f16_of_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 2^16 and above
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 leaves the subnormal in the low bits, rounded to even
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

/// Round to odd: a later rounding to 16 bits is then the same as rounding the double once.
inline float f32_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || value != value) return nearest;
  const double magnitude = value < 0 ? -value : value;
  const double rounded = nearest < 0 ? -static_cast<double>(nearest) : static_cast<double>(nearest);
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (rounded > magnitude) --bits;
  return std::bit_cast<float>(bits | 1u);
}

template <class T>
inline T load_as(const void* data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
inline void store_as(void* data, int64_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

/// Element `index` of an array of `type`, widened exactly to Real (float takes no f64). Any alignment.
template <class Real>
inline Real load(const void* data, DType type, int64_t index) {
  switch (type) {
    case DType::f32:
      return load_as<float>(data, index);
    case DType::f64:
      return static_cast<Real>(load_as<double>(data, index));
    case DType::bf16:
      return f32_of_bf16(load_as<uint16_t>(data, index));
    case DType::f16:
      return f32_of_f16(load_as<uint16_t>(data, index));
    case DType::bytes:
      break;
  }
  return Real{};
}

/// Store with one rounding. Any alignment.
template <class Real>
inline void store(void* data, DType type, int64_t index, Real value) {
  const auto narrow = [value] {
    if constexpr (sizeof(Real) == sizeof(double))
      return f32_to_odd(value);
    else
      return value;
  };
  switch (type) {
    case DType::f32:
      return store_as(data, index, static_cast<float>(value));
    case DType::f64:
      return store_as(data, index, static_cast<double>(value));
    case DType::bf16:
      return store_as(data, index, bf16_of_f32(narrow()));
    case DType::f16:
      return store_as(data, index, f16_of_f32(narrow()));
    case DType::bytes:
      return;
  }
}

/// expert_ids[index] as a number.
inline int64_t load_id(const Ids& ids, int64_t index) {
  switch (ids.type) {
    case IdType::i8:
      return load_as<int8_t>(ids.data, index);
    case IdType::u8:
      return load_as<uint8_t>(ids.data, index);
    case IdType::i16:
      return load_as<int16_t>(ids.data, index);
    case IdType::u16:
      return load_as<uint16_t>(ids.data, index);
    case IdType::i32:
      return load_as<int32_t>(ids.data, index);
    case IdType::i64:
      return load_as<int64_t>(ids.data, index);
  }
  return -1;
}

}  // namespace binmoe::numeric
