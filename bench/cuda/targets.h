// What issue 6 asks of each row, and the best public times (docs/design.md, section 6) on an H200.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/cuda/problem.h"

namespace binmoe::bench {

/// One measured row.
struct Result {
  Case of;
  Call call = Call::gather;
  bool warm = false;      ///< plans: in the L2 cache, as behind a router
  std::string wrong;      ///< not empty: what is wrong with the result; nothing was measured then
  Timing full, captured;  ///< calls follow each other: after the end of the one before; as dependent launches
  std::optional<double> behind_full, behind_captured;  ///< us that a call adds behind another kernel
  int64_t bytes = 0;                                   ///< that it must move at least
  double copy = 0;                                     ///< bytes per us of the device copy, before and after
  double share() const { return static_cast<double>(bytes) / full.us / copy; }
};

/// A bound on one figure of a row.
struct Target {
  enum class Figure { share, us, behind_us } figure = Figure::share;
  double bound = 0;
  bool met(const Result& result) const;
  std::string text() const;  ///< "share >= .93", "<= 9.0 us", "<= 8.3 us behind"
};

/// Those of a row; the relative ones (odd sizes, skew, policies) need their base among `before`.
std::vector<Target> targets_of(const Result& result, const std::vector<Result>& before);

/// The best public time in us, where section 6 has one. Slower by more than 2 % is a miss.
std::optional<double> public_us(const Case& of, Call call);
constexpr double kPublicSpread = 1.02;

/// The name under which the tables list the case deepseek-v3, T=128, factor 2.
constexpr const char* kDecode = "deepseek-v3 decode";

}  // namespace binmoe::bench
