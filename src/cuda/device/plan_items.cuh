// What the plan's kernels sort: assignments, each with an expert or a sort key, from the caller's ids and weights or
// from the workspace.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "binmoe/types.h"
#include "cuda/device/division.cuh"
#include "cuda/device/vectors.cuh"

namespace binmoe::cuda::device {

constexpr uint32_t kNoAssignment = ~uint32_t{0};

/// Digits of items that take no part in a plan. An id out of range counts as masked, but is counted.
constexpr int kMasked = -1;
constexpr int kOutOfRange = -2;

constexpr int kWarp = 32;

/// What a kernel before this one of the same operation wrote: read past the first-level cache.
template <class Word>
__device__ __forceinline__ Word load_result(const Word* p) {
  Word v;
  if constexpr (sizeof(Word) == 8)
    asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(v) : "l"(p));
  else
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}

__device__ __forceinline__ uint4 load_result(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

/// The same for what a warp reads often.
template <class Word>
__device__ __forceinline__ Word load_cached(const Word* p) {
  Word v;
  if constexpr (sizeof(Word) == 8)
    asm volatile("ld.global.u64 %0, [%1];" : "=l"(v) : "l"(p));
  else
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}

/// The elements at `at` (kNoAssignment: 0), all in flight together; at any address.
template <class Bits, int kItems>
__device__ __forceinline__ void load_elements(const void* data, const uint32_t (&at)[kItems], Bits (&bits)[kItems]) {
  if (reinterpret_cast<uintptr_t>(data) % sizeof(Bits) == 0) {
#pragma unroll
    for (int i = 0; i < kItems; ++i)
      bits[i] = at[i] == kNoAssignment ? Bits{0} : load(static_cast<const Bits*>(data) + at[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kItems; ++i)
      bits[i] = at[i] == kNoAssignment
                    ? Bits{0}
                    : load_anywhere<Bits>(static_cast<const char*>(data) + uint64_t{at[i]} * sizeof(Bits));
  }
}

struct ExpertIds {
  const void* data;
  IdType type;
  int32_t num_experts;
};

/// experts[i] = the expert of assignment at[i], kMasked or kOutOfRange. An id is compared in its own width.
template <class Id, int kItems>
__device__ __forceinline__ void load_experts_as(const ExpertIds& ids, const uint32_t (&at)[kItems],
                                                int (&experts)[kItems]) {
  using Wide = std::conditional_t<sizeof(Id) == 8, int64_t, int32_t>;
  std::make_unsigned_t<Id> bits[kItems];
  load_elements(ids.data, at, bits);
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const auto id = static_cast<Wide>(static_cast<Id>(bits[i]));
    const bool valid = id >= 0 && id < ids.num_experts;
    experts[i] = valid ? static_cast<int>(id) : id == -1 ? kMasked : kOutOfRange;
    if (at[i] == kNoAssignment) experts[i] = kMasked;
  }
}

template <int kItems>
__device__ __forceinline__ void load_experts(const ExpertIds& ids, const uint32_t (&at)[kItems],
                                             int (&experts)[kItems]) {
  switch (ids.type) {
    case IdType::i8:
      return load_experts_as<int8_t>(ids, at, experts);
    case IdType::u8:
      return load_experts_as<uint8_t>(ids, at, experts);
    case IdType::i16:
      return load_experts_as<int16_t>(ids, at, experts);
    case IdType::u16:
      return load_experts_as<uint16_t>(ids, at, experts);
    case IdType::i32:
      return load_experts_as<int32_t>(ids, at, experts);
    case IdType::i64:
      return load_experts_as<int64_t>(ids, at, experts);
  }
}

__device__ inline int64_t load_id(const ExpertIds& ids, int64_t position) {
  const auto at = [&](int bytes) { return static_cast<const char*>(ids.data) + position * bytes; };
  switch (ids.type) {
    case IdType::i8:
      return static_cast<int8_t>(load_anywhere<uint8_t>(at(1)));
    case IdType::u8:
      return load_anywhere<uint8_t>(at(1));
    case IdType::i16:
      return static_cast<int16_t>(load_anywhere<uint16_t>(at(2)));
    case IdType::u16:
      return load_anywhere<uint16_t>(at(2));
    case IdType::i32:
      return static_cast<int32_t>(load_anywhere<uint32_t>(at(4)));
    case IdType::i64:
      return static_cast<int64_t>(load_anywhere<uint64_t>(at(8)));
  }
  return 0;
}

/// The order in which assignments are visited: position q stands for assignment at(q).
struct VisitOrder {
  uint32_t count;  // T*K
  bool by_choice;  // first choices of all tokens first
  uint32_t top_k;
  Divisor by_tokens;

  __device__ __forceinline__ uint32_t at(uint32_t position) const {
    if (position >= count) return kNoAssignment;
    if (!by_choice) return position;
    const uint32_t k = by_tokens.quotient(position);
    return (position - k * by_tokens.divisor) * top_k + k;
  }
};

/// Ascending keys put larger weights first, -0 with +0, and NaN last. `infinity`: its bits.
template <class Key>
__device__ __forceinline__ Key descending_key(Key bits, Key infinity, Key sign) {
  const Key magnitude = bits & (sign - 1);
  if (magnitude > infinity) return sign | (sign - 1);
  if (magnitude == 0) return sign - 1;
  return (bits & sign) != 0 ? bits : sign - 1 - magnitude;
}

/// keys[i] = key of weight at[i]: 16 bits of bf16 and f16, 32 of f32 (Key uint32_t); 64 of f64 (Key uint64_t).
template <class Key, int kItems>
__device__ __forceinline__ void load_keys(const void* weights, DType type, const uint32_t (&at)[kItems],
                                          Key (&keys)[kItems]) {
  if constexpr (sizeof(Key) == 8) {
    load_elements(weights, at, keys);
#pragma unroll
    for (int i = 0; i < kItems; ++i) keys[i] = descending_key(keys[i], Key{0x7ff0000000000000}, Key{1} << 63);
  } else if (type == DType::f32) {
    load_elements(weights, at, keys);
#pragma unroll
    for (int i = 0; i < kItems; ++i) keys[i] = descending_key(keys[i], Key{0x7f800000}, Key{1} << 31);
  } else {
    uint16_t halves[kItems];
    load_elements(weights, at, halves);
    const Key infinity = type == DType::bf16 ? 0x7f80 : 0x7c00;
#pragma unroll
    for (int i = 0; i < kItems; ++i) keys[i] = descending_key(Key{halves[i]}, infinity, Key{1} << 15);
  }
}

/// Bits of an expert or a key.
struct Digit {
  int shift;
  uint32_t mask;

  template <class Value>
  __device__ __forceinline__ int of(Value value) const {
    return static_cast<int>(static_cast<uint32_t>(value >> shift) & mask);
  }
};

/// A thread's items. Their positions are kWarp apart.
template <int kItems, class Value>
struct Items {
  uint32_t assignment[kItems];
  Value value[kItems];  // an expert or a sort key: what the digits are taken from
  int digit[kItems];    // negative: takes no part
};

/// Assignments with their experts, from the caller's ids.
struct IdSource {
  using Value = uint32_t;
  static constexpr bool kReadsInputs = true;
  ExpertIds ids;
  VisitOrder order;
  Digit digit;

  template <int kItems>
  __device__ __forceinline__ void load(uint32_t first, Items<kItems, Value>& items) const {
#pragma unroll
    for (int i = 0; i < kItems; ++i) items.assignment[i] = order.at(first + static_cast<uint32_t>(i * kWarp));
    int experts[kItems];
    load_experts(ids, items.assignment, experts);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      items.value[i] = static_cast<uint32_t>(experts[i]);
      items.digit[i] = experts[i] < 0 ? experts[i] : digit.of(items.value[i]);
    }
  }
};

/// Assignments with the keys of their weights, from the caller's ids and weights.
template <class Key>
struct PrioritySource {
  using Value = Key;
  static constexpr bool kReadsInputs = true;
  ExpertIds ids;
  VisitOrder order;
  const void* weights;
  DType type;
  Digit digit;

  template <int kItems>
  __device__ __forceinline__ void load(uint32_t first, Items<kItems, Value>& items) const {
#pragma unroll
    for (int i = 0; i < kItems; ++i) items.assignment[i] = order.at(first + static_cast<uint32_t>(i * kWarp));
    int experts[kItems];
    load_experts(ids, items.assignment, experts);
    load_keys(weights, type, items.assignment, items.value);
#pragma unroll
    for (int i = 0; i < kItems; ++i) items.digit[i] = experts[i] < 0 ? experts[i] : digit.of(items.value[i]);
  }
};

/// What the pass before this one left in the workspace; kNoAssignment behind the last item.
template <class V>
struct PairSource {
  using Value = V;
  static constexpr bool kReadsInputs = false;
  const V* values;
  const uint32_t* assignments;
  uint32_t count;
  Digit digit;

  template <int kItems>
  __device__ __forceinline__ void load(uint32_t first, Items<kItems, Value>& items) const {
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const uint32_t position = first + static_cast<uint32_t>(i * kWarp);
      items.assignment[i] = position < count ? load_result(assignments + position) : kNoAssignment;
      items.value[i] = position < count ? load_result(values + position) : V{0};
    }
#pragma unroll
    for (int i = 0; i < kItems; ++i)
      items.digit[i] = items.assignment[i] == kNoAssignment ? kMasked : digit.of(items.value[i]);
  }
};

}  // namespace binmoe::cuda::device
