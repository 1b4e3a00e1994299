// Row kernels in Highway, built once for each target (BINMOE_CPU_KERNELS names the table). All targets do the same
// arithmetic on the same virtual lanes, so they give the same bits.
#include "cpu/row_kernels.h"

#include <hwy/cache_control.h>
#include <string.h>

#include "cpu/row_formats-inl.h"

namespace binmoe::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr auto kVectorBytes = static_cast<int64_t>(kLanes32 * sizeof(uint32_t));

/// Bytes up to the next address that a streaming store takes.
HWY_INLINE int64_t to_alignment(const char* p) {
  return static_cast<int64_t>(-reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(kVectorBytes));
}

HWY_INLINE bool is_aligned(const char* p) {
  return to_alignment(p) == 0;
}

template <bool kStream>
HWY_INLINE void copy_bytes(const char* from, char* to, int64_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  for (int64_t i = 0; i < bytes; i += kVectorBytes)
    put<kStream>(hn::LoadU(d, reinterpret_cast<const uint8_t*>(from + i)), d, reinterpret_cast<uint8_t*>(to + i));
}

/// The columns of a row that fill no step, in a step of their own padded with zeros.
template <class Format>
struct Tail {
  HWY_ALIGN char bytes[Format::kStepBytes];

  HWY_INLINE Step<typename Format::Real> load(const char* from, size_t count) {
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, from, count);
    return Format::load(bytes);
  }
  HWY_INLINE void store(const Step<typename Format::Real>& a, char* to, size_t count) {
    Format::template store<false>(a, bytes);
    memcpy(to, bytes, count);
  }
};

template <class Format>
struct Row {
  int64_t whole;  // bytes in whole steps
  size_t rest;    // bytes after them
  explicit Row(int64_t cols) {
    const int64_t bytes = cols * (Format::kStepBytes / Format::kStepColumns);
    whole = bytes / Format::kStepBytes * Format::kStepBytes;
    rest = static_cast<size_t>(bytes - whole);
  }
};

constexpr int kIntoFirstLevel = 3, kIntoSecondLevel = 2;

template <int kLevel>
HWY_INLINE void fetch(const char* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, kLevel);
}

template <class Format, bool kStream>
HWY_INLINE void scale_row(char* dst, const char* src, int64_t cols, typename Format::Real weight) {
  const Row<Format> row(cols);
  for (int64_t at = 0; at < row.whole; at += Format::kStepBytes)
    Format::template store<kStream>(scaled(weight, Format::load(src + at)), dst + at);
  if (row.rest == 0) return;
  Tail<Format> tail;
  tail.store(scaled(weight, tail.load(src + row.whole, row.rest)), dst + row.whole, row.rest);
}

template <class Format>
void scale(char* dst, const char* src, int64_t cols, double weight, bool stream) {
  const auto w = static_cast<typename Format::Real>(weight);
  if (stream && is_aligned(dst)) return scale_row<Format, true>(dst, src, cols, w);
  scale_row<Format, false>(dst, src, cols, w);
}

template <bool kWeighted, class Real, class Load>
HWY_INLINE Step<Real> sum_step(const SumSources& sources, int64_t step, const Load& load) {
  const auto* weights = static_cast<const Real*>(sources.weights);
  const auto* before = static_cast<const char*>(sources.before);
  Step<Real> sum = before != nullptr ? Plain<Real>::load(before + step * 2 * kBlockBytes) : zero_step<Real>();
  for (int64_t i = 0; i < sources.count; ++i) {
    const Step<Real> value = load(sources.rows[i]);
    sum = add(sum, kWeighted ? scaled(weights[i], value) : value);
  }
  return sum;
}

/// True when the sum goes on in another call.
template <class Real>
HWY_INLINE bool carried(const SumSources& sources, int64_t step, const Step<Real>& sum) {
  if (sources.after == nullptr) return false;
  Plain<Real>::template store<false>(sum, static_cast<char*>(sources.after) + step * 2 * kBlockBytes);
  return true;
}

template <class Format, bool kWeighted, bool kStream>
HWY_INLINE void sum_row(char* dst, const SumSources& sources, int64_t cols) {
  using Real = typename Format::Real;
  const Row<Format> row(cols);
  int64_t step = 0;
  for (int64_t at = 0; at < row.whole; at += Format::kStepBytes, ++step) {
    for (int64_t i = 0; i < sources.next_count; ++i) fetch<kIntoFirstLevel>(sources.next[i] + at, Format::kStepBytes);
    const auto sum =
        sum_step<kWeighted, Real>(sources, step, [&](const char* from) { return Format::load(from + at); });
    if (!carried(sources, step, sum)) Format::template store<kStream>(sum, dst + at);
  }
  if (row.rest == 0) return;
  Tail<Format> tail;
  const auto sum =
      sum_step<kWeighted, Real>(sources, step, [&](const char* from) { return tail.load(from + row.whole, row.rest); });
  if (!carried(sources, step, sum)) tail.store(sum, dst + row.whole, row.rest);
}

template <class Format>
void sum(char* dst, const SumSources& sources, int64_t cols, bool stream) {
  stream = stream && is_aligned(dst);
  if (sources.weights != nullptr) {
    if (stream) return sum_row<Format, true, true>(dst, sources, cols);
    return sum_row<Format, true, false>(dst, sources, cols);
  }
  if (stream) return sum_row<Format, false, true>(dst, sources, cols);
  sum_row<Format, false, false>(dst, sources, cols);
}

template <class Format>
double dot(const char* y, const char* grad, int64_t cols, const char* next) {
  const Row<Format> row(cols);
  auto total = zero_step<typename Format::Real>();
  for (int64_t at = 0; at < row.whole; at += Format::kStepBytes) {
    if (next != nullptr) fetch<kIntoSecondLevel>(next + at, Format::kStepBytes);
    total = add(total, mul(Format::load(y + at), Format::load(grad + at)));
  }
  if (row.rest != 0) {
    Tail<Format> left, right;
    total = add(total, mul(left.load(y + row.whole, row.rest), right.load(grad + row.whole, row.rest)));
  }
  return sum_of_lanes(total);
}

template <class Format, bool kWeighted, bool kStream>
HWY_INLINE double dot_and_scale_row(char* dst, const char* y, const char* grad, int64_t cols, double weight,
                                    const char* next) {
  using Real = typename Format::Real;
  const auto w = static_cast<Real>(weight);
  const Row<Format> row(cols);
  auto total = zero_step<Real>();
  for (int64_t at = 0; at < row.whole; at += Format::kStepBytes) {
    if (next != nullptr) fetch<kIntoFirstLevel>(next + at, Format::kStepBytes);
    const auto g = Format::load(grad + at);
    total = add(total, mul(Format::load(y + at), g));
    if constexpr (kWeighted)
      Format::template store<kStream>(scaled(w, g), dst + at);
    else
      copy_bytes<kStream>(grad + at, dst + at, Format::kStepBytes);
  }
  if (row.rest != 0) {
    Tail<Format> left, right;
    const auto g = right.load(grad + row.whole, row.rest);
    total = add(total, mul(left.load(y + row.whole, row.rest), g));
    if constexpr (kWeighted)
      right.store(scaled(w, g), dst + row.whole, row.rest);
    else
      memcpy(dst + row.whole, grad + row.whole, row.rest);
  }
  return sum_of_lanes(total);
}

template <class Format>
double dot_and_scale(char* dst, const char* y, const char* grad, int64_t cols, const double* weight, const char* next,
                     bool stream) {
  stream = stream && is_aligned(dst);
  if (weight != nullptr) {
    if (stream) return dot_and_scale_row<Format, true, true>(dst, y, grad, cols, *weight, next);
    return dot_and_scale_row<Format, true, false>(dst, y, grad, cols, *weight, next);
  }
  if (stream) return dot_and_scale_row<Format, false, true>(dst, y, grad, cols, 0, next);
  return dot_and_scale_row<Format, false, false>(dst, y, grad, cols, 0, next);
}

/// Store `bytes` bytes: few(at, count) up to an aligned address and at the end, vector(at) between.
template <class Vector, class Few>
HWY_INLINE void fill(char* dst, int64_t bytes, bool stream, const Vector& vector, const Few& few) {
  const hn::ScalableTag<uint8_t> d;
  int64_t at = 0;
  if (stream && bytes >= 4 * kVectorBytes) {
    at = to_alignment(dst);
    few(0, at);
    for (; at + kVectorBytes <= bytes; at += kVectorBytes)
      hn::Stream(vector(at), d, reinterpret_cast<uint8_t*>(dst + at));
  }
  for (; at + kVectorBytes <= bytes; at += kVectorBytes)
    hn::StoreU(vector(at), d, reinterpret_cast<uint8_t*>(dst + at));
  few(at, bytes - at);
}

void copy(char* dst, const char* src, int64_t bytes, bool stream) {
  fill(
      dst, bytes, stream,
      [&](int64_t at) { return hn::LoadU(hn::ScalableTag<uint8_t>(), reinterpret_cast<const uint8_t*>(src + at)); },
      [&](int64_t at, int64_t count) {
        if (count > 0) memcpy(dst + at, src + at, static_cast<size_t>(count));
      });
}

void zero(char* dst, int64_t bytes, bool stream) {
  fill(
      dst, bytes, stream, [](int64_t) { return hn::Zero(hn::ScalableTag<uint8_t>()); },
      [&](int64_t at, int64_t count) {
        if (count > 0) memset(dst + at, 0, static_cast<size_t>(count));
      });
}

void flush() {
  hwy::FlushStream();
}

}  // namespace
}  // namespace HWY_NAMESPACE

using namespace HWY_NAMESPACE;

extern const RowKernels BINMOE_CPU_KERNELS = {
    copy,
    zero,
    flush,
    {scale<Plain<float>>, scale<Plain<double>>, scale<Bf16>, scale<F16>},
    {sum<Plain<float>>, sum<Plain<double>>, sum<Bf16>, sum<F16>},
    {dot<Plain<float>>, dot<Plain<double>>, dot<Bf16>, dot<F16>},
    {dot_and_scale<Plain<float>>, dot_and_scale<Plain<double>>, dot_and_scale<Bf16>, dot_and_scale<F16>},
};

}  // namespace binmoe::cpu
