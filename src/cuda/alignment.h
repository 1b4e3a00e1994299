// What addresses, strides and lengths allow: the widest vectors that a kernel may use. Host code.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "binmoe/types.h"

namespace binmoe::cuda {

/// The largest power of two up to 16 that divides `bits`.
constexpr int64_t alignment_of(uint64_t bits) {
  const uint64_t lowest = bits & (~bits + 1);
  return lowest == 0 || lowest > 16 ? 16 : static_cast<int64_t>(lowest);
}

inline int64_t alignment_of(const void* p) {
  return alignment_of(reinterpret_cast<uintptr_t>(p));
}

/// The vector size in bytes that fits every row of every view and divides their length.
inline int64_t common_alignment(std::initializer_list<ConstRows> views) {
  uint64_t bits = 0;
  for (const ConstRows& view : views) {
    if (view.rows == 0) continue;
    bits |= reinterpret_cast<uintptr_t>(view.data) | static_cast<uint64_t>(view.cols * view.element_size());
    if (view.rows > 1) bits |= static_cast<uint64_t>(view.stride * view.element_size());
  }
  return alignment_of(bits);
}

}  // namespace binmoe::cuda
