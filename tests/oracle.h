// What docs/design.md, section 2, asks for, written a second time: numbers are taken apart and rounded by hand in
// double, plans are made by counting and filling buckets, rows are pushed to where they belong. Shares nothing with
// src/.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "binmoe/types.h"

namespace oracle {

using binmoe::DropPolicy;
using binmoe::DType;
using binmoe::Sizes;

/// A binary float: `precision` counts the hidden bit.
struct Format {
  int bytes, precision, min_exponent, max_exponent;
};

inline Format format_of(DType type) {
  switch (type) {
    case DType::f64:
      return {8, 53, -1022, 1023};
    case DType::bf16:
      return {2, 8, -126, 127};
    case DType::f16:
      return {2, 11, -14, 15};
    default:
      return {4, 24, -126, 127};
  }
}

/// The number that `bits` stand for. Exact: every format here fits double.
inline double decode(uint64_t bits, const Format& f) {
  const uint64_t fraction_size = uint64_t{1} << (f.precision - 1);
  const uint64_t exponent_size = uint64_t{1} << (8 * f.bytes - f.precision);
  const uint64_t fraction = bits % fraction_size;
  const uint64_t exponent = bits / fraction_size % exponent_size;
  const double sign = bits / fraction_size / exponent_size != 0 ? -1.0 : 1.0;
  if (exponent == exponent_size - 1)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  const bool normal = exponent != 0;
  const auto digits = static_cast<double>(normal ? fraction + fraction_size : fraction);
  const int power = f.min_exponent - (f.precision - 1) + (normal ? static_cast<int>(exponent) - 1 : 0);
  return sign * std::ldexp(digits, power);
}

/// Round to nearest, ties to even, in units of the last place; subnormals kept, overflow to infinity.
inline double rounded(double value, const Format& f) {
  if (f.precision == 53 || value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), f.min_exponent);
  const int unit = exponent - (f.precision - 1);
  const double result = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  const double limit = std::ldexp(1.0, f.max_exponent + 1);
  return std::fabs(result) >= limit ? std::copysign(std::numeric_limits<double>::infinity(), value) : result;
}

/// The bits of a number that the format holds exactly, or of a NaN.
inline uint64_t encode(double value, const Format& f) {
  const uint64_t fraction_size = uint64_t{1} << (f.precision - 1);
  const uint64_t exponent_size = uint64_t{1} << (8 * f.bytes - f.precision);
  const uint64_t sign = std::signbit(value) ? fraction_size * exponent_size : 0;
  if (std::isnan(value)) return (exponent_size - 1) * fraction_size + fraction_size / 2;
  if (std::isinf(value)) return sign + (exponent_size - 1) * fraction_size;
  if (value == 0) return sign;
  const int exponent = std::max(std::ilogb(value), f.min_exponent);
  const auto digits = static_cast<uint64_t>(std::ldexp(std::fabs(value), f.precision - 1 - exponent));
  if (digits < fraction_size) return sign + digits;  // subnormal
  return sign + static_cast<uint64_t>(exponent - f.min_exponent + 1) * fraction_size + digits % fraction_size;
}

/// The format in which rows of `type` are multiplied and added.
inline Format arithmetic_of(DType type) {
  return format_of(type == DType::f64 ? DType::f64 : DType::f32);
}

// A double operation on two f32 numbers, rounded to f32, is the f32 operation: 53 >= 2 * 24 + 2.
inline double product(double a, double b, DType rows) {
  return rounded(a * b, arithmetic_of(rows));
}
inline double sum(double a, double b, DType rows) {
  return rounded(a + b, arithmetic_of(rows));
}

inline uint64_t bits_at(const void* array, int64_t index, int bytes) {
  uint64_t bits = 0;  // little-endian machines only, like everything else here
  std::memcpy(&bits, static_cast<const char*>(array) + index * bytes, static_cast<size_t>(bytes));
  return bits;
}

inline double value_at(const void* array, int64_t index, DType type) {
  const Format f = format_of(type);
  return decode(bits_at(array, index, f.bytes), f);
}

inline void put(void* array, int64_t index, DType type, double value) {
  const Format f = format_of(type);
  const uint64_t bits = encode(rounded(value, f), f);
  std::memcpy(static_cast<char*>(array) + index * f.bytes, &bits, static_cast<size_t>(f.bytes));
}

struct Plan {
  Sizes sizes;
  std::vector<int32_t> indices, bin_ids, row_of_assignment, bins, tokens_per_expert, kept_per_expert;
};

/// The assignments of each expert in the order in which they may take its rows.
inline std::vector<std::vector<int32_t>> buckets(const std::vector<int64_t>& ids, const Sizes& s, DropPolicy policy,
                                                 const std::vector<double>& priority) {
  std::vector<std::vector<int32_t>> bucket(static_cast<size_t>(s.num_experts));
  const auto add = [&](int64_t a) {
    const int64_t e = ids[static_cast<size_t>(a)];
    if (e >= 0) bucket[static_cast<size_t>(e)].push_back(static_cast<int32_t>(a));
  };
  if (policy == DropPolicy::choice_order) {
    for (int64_t k = 0; k < s.top_k; ++k)
      for (int64_t t = 0; t < s.tokens; ++t) add(t * s.top_k + k);
    return bucket;
  }
  for (int64_t a = 0; a < s.assignments(); ++a) add(a);
  if (policy == DropPolicy::token_order) return bucket;
  for (auto& list : bucket) {  // a multimap keeps equal keys in the order in which they came
    std::multimap<double, int32_t, std::greater<>> ranked;
    std::vector<int32_t> nans;
    for (const int32_t a : list) {
      const double weight = priority[static_cast<size_t>(a)];
      if (std::isnan(weight))
        nans.push_back(a);
      else
        ranked.emplace(weight, a);
    }
    list.clear();
    for (const auto& entry : ranked) list.push_back(entry.second);
    list.insert(list.end(), nans.begin(), nans.end());
  }
  return bucket;
}

inline Plan plan_of(const std::vector<std::vector<int32_t>>& bucket, const Sizes& s) {
  Plan out;
  out.sizes = s;
  out.row_of_assignment.assign(static_cast<size_t>(s.assignments()), -1);
  for (int32_t e = 0; e < s.num_experts; ++e) {
    int32_t position = 0;
    for (const int32_t a : bucket[static_cast<size_t>(e)]) {
      out.indices.push_back(a);
      out.bin_ids.push_back(e);
      if (position < s.expert_capacity)
        out.row_of_assignment[static_cast<size_t>(a)] = e * s.expert_capacity + position;
      ++position;
    }
    out.bins.push_back(static_cast<int32_t>(out.indices.size()));
    out.tokens_per_expert.push_back(position);
    out.kept_per_expert.push_back(std::min(position, s.expert_capacity));
  }
  out.indices.resize(static_cast<size_t>(s.assignments()), -1);
  out.bin_ids.resize(static_cast<size_t>(s.assignments()), s.num_experts);
  return out;
}

/// Row-major numbers, as decoded.
using Matrix = std::vector<double>;

/// Weights are empty when absent.
inline Matrix gather(const Plan& plan, const Matrix& x, const Matrix& weights, int64_t hidden, DType type) {
  Matrix y(static_cast<size_t>(plan.sizes.expert_rows() * hidden), 0.0);
  for (int64_t a = 0; a < plan.sizes.assignments(); ++a) {
    const int64_t row = plan.row_of_assignment[static_cast<size_t>(a)];
    if (row < 0) continue;
    for (int64_t h = 0; h < hidden; ++h) {
      const double value = x[static_cast<size_t>(a / plan.sizes.top_k * hidden + h)];
      y[static_cast<size_t>(row * hidden + h)] =
          weights.empty() ? value : rounded(product(weights[static_cast<size_t>(a)], value, type), format_of(type));
    }
  }
  return y;
}

inline Matrix scatter(const Plan& plan, const Matrix& y, const Matrix& weights, int64_t hidden, DType type) {
  const Sizes& s = plan.sizes;
  // The kept assignments of each token with their rows, found from the sorted side, then put in order of k.
  std::vector<std::vector<std::pair<int32_t, int64_t>>> parts(static_cast<size_t>(s.tokens));
  int64_t sorted = 0;
  for (int64_t e = 0; e < s.num_experts; ++e) {
    const int64_t begin = sorted;
    for (; sorted < plan.bins[static_cast<size_t>(e)]; ++sorted) {
      const int32_t a = plan.indices[static_cast<size_t>(sorted)];
      if (sorted - begin < s.expert_capacity)
        parts[static_cast<size_t>(a / s.top_k)].emplace_back(a, e * s.expert_capacity + sorted - begin);
    }
  }
  Matrix out(static_cast<size_t>(s.tokens * hidden), 0.0);
  for (int64_t t = 0; t < s.tokens; ++t) {
    auto& list = parts[static_cast<size_t>(t)];
    std::sort(list.begin(), list.end());
    for (int64_t h = 0; h < hidden; ++h) {
      double total = 0;
      for (const auto& [a, row] : list) {
        const double value = y[static_cast<size_t>(row * hidden + h)];
        total = sum(total, weights.empty() ? value : product(weights[static_cast<size_t>(a)], value, type), type);
      }
      out[static_cast<size_t>(t * hidden + h)] = rounded(total, format_of(type));
    }
  }
  return out;
}

/// dw to far more digits than any backend has, and the sum of the magnitudes, for the bound.
struct Dots {
  std::vector<long double> exact, magnitude;
};

inline Dots wgrad(const Plan& plan, const Matrix& y, const Matrix& grad, int64_t hidden) {
  Dots dots;
  for (int64_t a = 0; a < plan.sizes.assignments(); ++a) {
    const int64_t row = plan.row_of_assignment[static_cast<size_t>(a)];
    long double total = 0, magnitude = 0;
    for (int64_t h = 0; row >= 0 && h < hidden; ++h) {
      const long double term = static_cast<long double>(y[static_cast<size_t>(row * hidden + h)]) *
                               grad[static_cast<size_t>(a / plan.sizes.top_k * hidden + h)];
      total += term;
      magnitude += std::fabs(term);
    }
    dots.exact.push_back(total);
    dots.magnitude.push_back(magnitude);
  }
  return dots;
}

/// How far a dw of `dw_type` may be from the exact one (design.md, section 2), its own rounding included.
inline long double wgrad_bound(long double exact, long double magnitude, int64_t hidden, DType rows, DType dw_type) {
  const int digits = arithmetic_of(rows).precision;
  const long double bound = static_cast<long double>(hidden) * std::ldexp(1.0L, -digits) * magnitude;
  const Format f = format_of(dw_type);
  if (f.precision >= digits) return bound;
  return bound + std::ldexp(std::fabs(exact) + bound, -f.precision) +
         std::ldexp(1.0L, f.min_exponent - f.precision);  // half a unit, also among the subnormals
}

}  // namespace oracle
