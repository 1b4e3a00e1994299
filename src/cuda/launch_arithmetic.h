// What launches are chosen by: division rounded up, and the vectors that addresses, strides and lengths allow.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "binmoe/types.h"
#include "cuda/device/assignments.cuh"

namespace binmoe::cuda {

constexpr int64_t divided_up(int64_t number, int64_t divisor) {
  return (number + divisor - 1) / divisor;
}

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

/// A token's map and weights can be loaded as runs of top_k (device::load_run).
inline bool runs_fit(const ConstPlanView& plan, const Weights& weights) {
  const auto fits = [&](const void* p, int64_t element_bytes) {
    return alignment_of(p) >= device::run_vector_bytes(static_cast<int>(plan.sizes.top_k * element_bytes));
  };
  return fits(plan.row_of_assignment, sizeof(int32_t)) && fits(weights.data, size_of(weights.type));
}

}  // namespace binmoe::cuda
