#include "instructions.h"

#include <algorithm>
#include <cmath>

#include "fault.h"
#include "numeric.h"

namespace binmoe::vector_core {

namespace {

using AscendC::RoundMode;

constexpr int64_t kLanes = kRepeatBytes / 4;  // floats of one repeat

Span span_of(const Local& tensor, int64_t bytes) {
  return {tensor.buffer, tensor.begin, tensor.begin + bytes};
}

int64_t repeats_of(int64_t bytes) {
  return (bytes + kRepeatBytes - 1) / kRepeatBytes;
}

/// UB as an array. Vector operands are aligned, checked before.
template <class T>
T* array(Core& core, const Local& tensor) {
  return reinterpret_cast<T*>(core.ub(tensor.begin));
}

int64_t size_of(Element type) {
  return type == Element::f16 || type == Element::bf16 ? 2 : 4;
}

bool takes(Element to, Element from, RoundMode mode) {
  if (to == Element::i32) return mode != RoundMode::CAST_NONE;
  if (from == Element::i32) return mode == RoundMode::CAST_NONE || mode == RoundMode::CAST_RINT;
  return mode == (to == Element::f32 ? RoundMode::CAST_NONE : RoundMode::CAST_RINT);
}

/// Does not depend on the thread's rounding direction.
float rounded(float value, RoundMode mode) {
  switch (mode) {
    case RoundMode::CAST_FLOOR:
      return std::floor(value);
    case RoundMode::CAST_CEIL:
      return std::ceil(value);
    case RoundMode::CAST_ROUND:
      return std::round(value);
    case RoundMode::CAST_TRUNC:
      return std::trunc(value);
    case RoundMode::CAST_RINT:
    case RoundMode::CAST_NONE:
      break;
  }
  const float below = std::floor(value), part = value - below;
  if (part != 0.5f) return part < 0.5f ? below : below + 1.0f;
  return std::fmod(below, 2.0f) == 0.0f ? below : below + 1.0f;
}

int32_t i32_of_f32(float value, RoundMode mode) {
  const float whole = rounded(value, mode);
  if (whole != whole) return 0;
  if (whole >= 0x1p31f) return INT32_MAX;
  if (whole < -0x1p31f) return INT32_MIN;
  return static_cast<int32_t>(whole);
}

template <class D, class S, class F>
void map(Core& core, const Local& to, const Local& from, int64_t count, F f) {
  D* d = array<D>(core, to);
  const S* s = array<S>(core, from);
  for (int64_t i = 0; i < count; ++i) d[i] = f(s[i]);
}

template <class T, class F>
void zip(Core& core, const Local& to, const Local& a, const Local& b, int64_t count, F f) {
  T* d = array<T>(core, to);
  const T *x = array<T>(core, a), *y = array<T>(core, b);
  for (int64_t i = 0; i < count; ++i) d[i] = f(x[i], y[i]);
}

/// Sums of neighbours until one is left, in place.
float tree(float* lanes, int64_t width) {
  for (; width > 1; width /= 2)
    for (int64_t i = 0; i < width / 2; ++i) lanes[i] = lanes[2 * i] + lanes[2 * i + 1];
  return lanes[0];
}

}  // namespace

void cast(const Local& to, Element to_type, const Local& from, Element from_type, RoundMode mode, int64_t count,
          Place place) {
  Core& core = current_core();
  const SiteId site = core.hit(Call::cast, place);
  if (count == 0) return;
  if (!takes(to_type, from_type, mode))
    core.fault(rule::kRound, site, "this Cast does not take round mode " + std::to_string(static_cast<int>(mode)));
  core.vector_step(site, {span_of(from, count * size_of(from_type))}, {span_of(to, count * size_of(to_type))},
                   repeats_of(count * 4), 1);
  if (from_type == Element::bf16)
    map<float, uint16_t>(core, to, from, count, numeric::f32_of_bf16);
  else if (from_type == Element::f16)
    map<float, uint16_t>(core, to, from, count, numeric::f32_of_f16);
  else if (from_type == Element::i32)
    map<float, int32_t>(core, to, from, count, [](int32_t value) { return static_cast<float>(value); });
  else if (to_type == Element::bf16)
    map<uint16_t, float>(core, to, from, count, numeric::bf16_of_f32);
  else if (to_type == Element::f16)
    map<uint16_t, float>(core, to, from, count, numeric::f16_of_f32);
  else
    map<int32_t, float>(core, to, from, count, [mode](float value) { return i32_of_f32(value, mode); });
}

void binary(Call call, Element type, const Local& to, const Local& a, const Local& b, int64_t count, Place place) {
  Core& core = current_core();
  const SiteId site = core.hit(call, place);
  if (count == 0) return;
  const int64_t bytes = count * 4;
  core.vector_step(site, {span_of(a, bytes), span_of(b, bytes)}, {span_of(to, bytes)}, repeats_of(bytes), 1);
  if (type == Element::f32) {
    if (call == Call::add)
      zip<float>(core, to, a, b, count, [](float x, float y) { return x + y; });
    else
      zip<float>(core, to, a, b, count, [](float x, float y) { return x * y; });
  } else {
    if (call == Call::add)
      zip<uint32_t>(core, to, a, b, count, [](uint32_t x, uint32_t y) { return x + y; });
    else
      zip<uint32_t>(core, to, a, b, count, [](uint32_t x, uint32_t y) { return x * y; });
  }
}

void with_scalar(Call call, Element type, const Local& to, const Local& from, uint32_t scalar, int64_t count,
                 Place place) {
  Core& core = current_core();
  const SiteId site = core.hit(call, place);
  if (count == 0) return;
  const int64_t bytes = count * 4;
  core.vector_step(site, {span_of(from, bytes)}, {span_of(to, bytes)}, repeats_of(bytes), 1);
  if (type == Element::f32) {
    const float s = std::bit_cast<float>(scalar);
    if (call == Call::adds)
      map<float, float>(core, to, from, count, [s](float x) { return x + s; });
    else
      map<float, float>(core, to, from, count, [s](float x) { return x * s; });
  } else {
    if (call == Call::adds)
      map<uint32_t, uint32_t>(core, to, from, count, [scalar](uint32_t x) { return x + scalar; });
    else
      map<uint32_t, uint32_t>(core, to, from, count, [scalar](uint32_t x) { return x * scalar; });
  }
}

void duplicate(const Local& to, int64_t element_bytes, uint32_t scalar, int64_t count, Place place) {
  Core& core = current_core();
  const SiteId site = core.hit(Call::duplicate, place);
  if (count == 0) return;
  const int64_t bytes = count * element_bytes;
  core.vector_step(site, {}, {span_of(to, bytes)}, repeats_of(bytes), 1);
  if (element_bytes == 4)
    std::fill_n(array<uint32_t>(core, to), count, scalar);
  else
    std::fill_n(array<uint16_t>(core, to), count, static_cast<uint16_t>(scalar));
}

void reduce_sum(const Local& to, const Local& from, const Local& scratch, int64_t count, Place place) {
  Core& core = current_core();
  const SiteId site = core.hit(Call::reduce_sum, place);
  if (count == 0) return;
  const int64_t sums = repeats_of(count * 4);
  int64_t fills = 1;  // the partial sums are few: they cost a filled pipeline each time, no more
  for (int64_t left = sums; left > 1; left = repeats_of(left * 4)) ++fills;
  core.vector_step(site, {span_of(from, count * 4)},
                   {span_of(to, 4), span_of(scratch, round_up(sums * 4, kBlockBytes))}, sums, fills);
  const float* source = array<float>(core, from);
  float* partial = array<float>(core, scratch);
  float lanes[kLanes];
  for (int64_t left = count;; left = repeats_of(left * 4), source = partial) {
    const int64_t groups = repeats_of(left * 4);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t width = std::min(kLanes, left - g * kLanes);
      std::copy_n(source + g * kLanes, width, lanes);
      std::fill(lanes + width, lanes + kLanes, 0.0f);
      partial[g] = tree(lanes, kLanes);
    }
    if (groups == 1) break;
  }
  *array<float>(core, to) = partial[0];
}

}  // namespace binmoe::vector_core
