// The host's side of the checks: rows of a fixed pattern, and what a host backend makes of them. Its memory is kept
// from case to case, since touching fresh pages costs more than filling old ones.
#pragma once

#include <functional>
#include <vector>

#include "binmoe/binmoe.h"

namespace binmoe::bench {

/// Elements before a pattern repeats: a prime, so that rows differ.
constexpr int64_t kPatternPeriod = 65521;

/// kPatternPeriod elements of f32, bf16 or f16 with values in [0.5, 1.5), so that wgrad's error bound is
/// H * 2^-24 * dw. Streams differ.
std::vector<char> make_pattern(DType dtype, uint64_t stream);

/// Memory that only grows. pinned: a copy from the device reaches full speed.
class HostBuffer {
 public:
  explicit HostBuffer(bool pinned) : pinned_(pinned) {}
  ~HostBuffer();
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  /// At least `bytes`; what was there is lost when it grows.
  char* at_least(size_t bytes);

 private:
  void release();

  bool pinned_;
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

class Host {
 public:
  Host();
  const char* backend_name() const { return context_.backend->name; }
  const Context& context() const { return context_; }

  /// `count` elements of pattern 1 (tokens) or 2 (expert rows), filled once for a dtype.
  const char* rows(int stream, int64_t count, DType dtype);
  /// Are `bytes` bytes the same? On all threads.
  bool same(const char* a, const char* b, size_t bytes) const;
  /// body(begin, end) for parts of [0, count), on all threads.
  void in_parts(int64_t count, int64_t part, const std::function<void(int64_t, int64_t)>& body) const;

  HostBuffer expected{false}, actual{true};

 private:
  struct Rows {
    HostBuffer buffer{false};
    DType dtype = DType::f32;
    int64_t count = 0;
  };
  Context context_;
  Rows rows_[2];
};

}  // namespace binmoe::bench
