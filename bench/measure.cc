#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "bench/stream_copy.h"

namespace binmoe::bench {
namespace {

constexpr size_t kCopyBytes = size_t{256} << 20;
constexpr int64_t kSmallBytes = int64_t{32} << 20;
constexpr double kSmallSeconds = 2e-3;

template <class Function>
double seconds(const Function& function) {
  const auto begin = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

}  // namespace

Stopwatch::Stopwatch(Executor& executor) : executor_(executor), from_(kCopyBytes), to_(kCopyBytes) {}

double Stopwatch::copy_seconds() {
  return seconds([&] { stream_copy(to_.data(), from_.data(), kCopyBytes, executor_); });
}

Measured Stopwatch::measure(Problem& problem, Op op, const Context& context, int repetitions) {
  problem.verify(op, context);
  const auto call = [&] { problem.run(op, context); };
  Measured out;
  out.bytes = problem.minimum_bytes(op);
  const bool small = out.bytes < kSmallBytes;
  int calls = 1;
  if (small) {
    seconds(call);
    calls = std::max(1, static_cast<int>(kSmallSeconds / std::max(seconds(call), 1e-7)));
  }
  std::vector<double> times, rates, shares;
  for (int i = 0; i < repetitions; ++i) {
    const double copy_rate = 2.0 * static_cast<double>(kCopyBytes) / copy_seconds();
    if (small) call();  // the copy emptied the caches
    const double time = seconds([&] {
                          for (int c = 0; c < calls; ++c) call();
                        }) /
                        calls;
    times.push_back(time * 1e6);
    rates.push_back(copy_rate * 1e-9);
    shares.push_back(static_cast<double>(out.bytes) / time / copy_rate);
  }
  out.us = quantile(times, 0.5);
  out.us_low = quantile(times, 0.25);
  out.us_high = quantile(times, 0.75);
  out.gb_per_s = static_cast<double>(out.bytes) * 1e-3 / out.us;
  out.share_of_copy = quantile(shares, 0.5);
  out.copy_gb_per_s = quantile(rates, 0.5);
  return out;
}

}  // namespace binmoe::bench
