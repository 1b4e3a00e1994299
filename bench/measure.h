// Timing: the operation and a streaming copy by turns in one run; medians of their ratios.
#pragma once

#include <cstdint>
#include <string>

#include "bench/problem.h"

namespace binmoe::bench {

struct Measured {
  double us = 0;      ///< median time of a call
  double us_low = 0;  ///< lower and upper quartile
  double us_high = 0;
  int64_t bytes = 0;         ///< minimum bytes of the operation
  double gb_per_s = 0;       ///< bytes / us
  double share_of_copy = 0;  ///< median of gb_per_s / the copy measured beside it
  double copy_gb_per_s = 0;  ///< median
};

/// Owns the copy's buffers (2 x 256 MiB, which also push the operands of large cases out of the caches).
class Stopwatch {
 public:
  explicit Stopwatch(Executor& executor);

  /// Verify the operation, then time it `repetitions` times, each beside a copy. Small cases (under 32 MiB) are called
  /// many times in a row, so they find their operands in the cache.
  Measured measure(Problem& problem, Op op, const Context& context, int repetitions);

 private:
  double copy_seconds();

  Executor& executor_;
  Buffer from_, to_;
};

}  // namespace binmoe::bench
