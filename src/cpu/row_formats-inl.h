// How rows of each dtype are read and written in Highway. A step is 32 columns (f64: 16), held as two blocks of 64
// bytes of Reals. For row_kernels.cc only.
#pragma once

#include <hwy/highway.h>
#include <stddef.h>
#include <stdint.h>

namespace binmoe::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kBlockBytes = 64;

/// 64 bytes of Reals in as many vectors as the target needs.
template <class Real>
struct Block {
  using D = hn::ScalableTag<Real>;
  using V = hn::Vec<D>;
  static constexpr size_t kLanes = hn::MaxLanes(D());
  static constexpr size_t kReals = kBlockBytes / sizeof(Real);
  static constexpr size_t kParts = kReals / kLanes;
  V part[kParts];
};

template <class Real, class Function>
HWY_INLINE Block<Real> each(const Function& function) {
  Block<Real> out;
  HWY_UNROLL(4)
  for (size_t i = 0; i < Block<Real>::kParts; ++i) out.part[i] = function(i);
  return out;
}

template <class Real>
struct Step {
  Block<Real> low, high;
};

template <class Real>
HWY_INLINE Step<Real> zero_step() {
  const auto zero = each<Real>([](size_t) { return hn::Zero(typename Block<Real>::D()); });
  return {zero, zero};
}

template <class Real>
HWY_INLINE Step<Real> add(const Step<Real>& a, const Step<Real>& b) {
  return {each<Real>([&](size_t i) { return hn::Add(a.low.part[i], b.low.part[i]); }),
          each<Real>([&](size_t i) { return hn::Add(a.high.part[i], b.high.part[i]); })};
}

template <class Real>
HWY_INLINE Step<Real> mul(const Step<Real>& a, const Step<Real>& b) {
  return {each<Real>([&](size_t i) { return hn::Mul(a.low.part[i], b.low.part[i]); }),
          each<Real>([&](size_t i) { return hn::Mul(a.high.part[i], b.high.part[i]); })};
}

template <class Real>
HWY_INLINE Step<Real> scaled(Real weight, const Step<Real>& a) {
  const auto w = hn::Set(typename Block<Real>::D(), weight);
  return {each<Real>([&](size_t i) { return hn::Mul(w, a.low.part[i]); }),
          each<Real>([&](size_t i) { return hn::Mul(w, a.high.part[i]); })};
}

/// Add the lanes pairwise, halving: the same order on every target.
template <class Real>
HWY_INLINE Real sum_of_lanes(const Step<Real>& a) {
  using B = Block<Real>;
  HWY_ALIGN Real lanes[B::kReals];
  HWY_UNROLL(4)
  for (size_t i = 0; i < B::kParts; ++i)
    hn::Store(hn::Add(a.low.part[i], a.high.part[i]), typename B::D(), lanes + i * B::kLanes);
  for (size_t half = B::kReals / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

template <bool kStream, class D, class V>
HWY_INLINE void put(V v, D d, hn::TFromD<D>* to) {
  if constexpr (kStream)
    hn::Stream(v, d, to);
  else
    hn::StoreU(v, d, to);
}

/// f32 and f64: a step is two blocks as they stand.
template <class R>
struct Plain {
  using Real = R;
  using B = Block<Real>;
  static constexpr int64_t kStepBytes = 2 * kBlockBytes;
  static constexpr int64_t kStepColumns = kStepBytes / static_cast<int64_t>(sizeof(Real));

  static HWY_INLINE Step<Real> load(const char* from) {
    const auto* p = reinterpret_cast<const Real*>(from);
    return {each<Real>([&](size_t i) { return hn::LoadU(typename B::D(), p + i * B::kLanes); }),
            each<Real>([&](size_t i) { return hn::LoadU(typename B::D(), p + B::kReals + i * B::kLanes); })};
  }

  template <bool kStream>
  static HWY_INLINE void store(const Step<Real>& a, char* to) {
    auto* p = reinterpret_cast<Real*>(to);
    HWY_UNROLL(4)
    for (size_t i = 0; i < B::kParts; ++i) put<kStream>(a.low.part[i], typename B::D(), p + i * B::kLanes);
    HWY_UNROLL(4)
    for (size_t i = 0; i < B::kParts; ++i) put<kStream>(a.high.part[i], typename B::D(), p + B::kReals + i * B::kLanes);
  }
};

using U32 = hn::ScalableTag<uint32_t>;
using F32 = hn::ScalableTag<float>;
constexpr size_t kLanes32 = hn::MaxLanes(U32());

/// bf16: even columns are the low halves of 32-bit words, odd ones the high halves; no lane is crossed.
struct Bf16 {
  using Real = float;
  static constexpr int64_t kStepBytes = kBlockBytes;
  static constexpr int64_t kStepColumns = 32;

  static HWY_INLINE Step<float> load(const char* from) {
    const auto* p = reinterpret_cast<const uint32_t*>(from);
    const U32 du;
    const F32 df;
    const auto word = [&](size_t i) { return hn::LoadU(du, p + i * kLanes32); };
    return {each<float>([&](size_t i) { return hn::BitCast(df, hn::ShiftLeft<16>(word(i))); }),
            each<float>([&](size_t i) { return hn::BitCast(df, hn::And(word(i), hn::Set(du, 0xffff0000u))); })};
  }

  /// Rounded to nearest even in the upper 16 bits; the lower ones are rubbish. NaN stays NaN.
  static HWY_INLINE hn::Vec<U32> rounded(hn::Vec<F32> value) {
    const U32 du;
    const auto bits = hn::BitCast(du, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto sum = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
    const auto quiet = hn::Or(bits, hn::Set(du, 0x00400000u));
    return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, sum);
  }

  template <bool kStream>
  static HWY_INLINE void store(const Step<float>& a, char* to) {
    auto* p = reinterpret_cast<uint32_t*>(to);
    const U32 du;
    HWY_UNROLL(4)
    for (size_t i = 0; i < Block<float>::kParts; ++i) {
      const auto even = hn::ShiftRight<16>(rounded(a.low.part[i]));
      const auto odd = hn::And(rounded(a.high.part[i]), hn::Set(du, 0xffff0000u));
      put<kStream>(hn::Or(even, odd), du, p + i * kLanes32);
    }
  }
};

/// f16: the target's own conversions, but integer arithmetic on x86-64-v2, which has none.
struct F16 {
  using Real = float;
  static constexpr int64_t kStepBytes = kBlockBytes;
  static constexpr int64_t kStepColumns = 32;
  using Half = hn::Rebind<uint16_t, F32>;

#if HWY_TARGET == HWY_SSE4
  static HWY_INLINE hn::Vec<F32> widen(hn::Vec<Half> half) {
    const U32 du;
    const F32 df;
    const auto bits = hn::PromoteTo(du, half);
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fffu)));
    const auto finite = hn::BitCast(du, hn::Mul(hn::BitCast(df, magnitude), hn::Set(df, 0x1p112f)));
    const auto infinite = hn::Or(magnitude, hn::Set(du, 0x7f800000u));
    const auto is_finite =
        hn::Lt(hn::BitCast(hn::RebindToSigned<U32>(), magnitude), hn::Set(hn::RebindToSigned<U32>(), 0x0f800000));
    return hn::BitCast(df, hn::Or(sign, hn::IfThenElse(hn::RebindMask(du, is_finite), finite, infinite)));
  }

  static HWY_INLINE hn::Vec<Half> narrow(hn::Vec<F32> value) {
    const U32 du;
    const F32 df;
    const hn::RebindToSigned<U32> di;
    const auto bits = hn::BitCast(du, value);
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000u));
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
    const auto below = [&](int32_t limit) {
      return hn::RebindMask(du, hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, limit)));
    };
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
    const auto sum = hn::Add(hn::Add(magnitude, hn::Set(du, 0xfffu)), odd);
    const auto normal = hn::ShiftRight<13>(hn::Sub(sum, hn::Set(du, 0x38000000u)));
    const auto shifted = hn::BitCast(du, hn::Add(hn::BitCast(df, magnitude), hn::Set(df, 0.5f)));
    const auto subnormal = hn::Sub(shifted, hn::Set(du, 0x3f000000u));
    auto out = hn::IfThenElse(below(0x38800000), subnormal, normal);
    out = hn::IfThenElse(below(0x47800000), out, hn::Set(du, 0x7c00u));
    out = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), hn::Set(du, 0x7e00u), out);
    return hn::TruncateTo(Half(), hn::Or(out, sign));
  }
#else
  static HWY_INLINE hn::Vec<F32> widen(hn::Vec<Half> half) {
    return hn::PromoteTo(F32(), hn::BitCast(hn::Rebind<hwy::float16_t, F32>(), half));
  }

  static HWY_INLINE hn::Vec<Half> narrow(hn::Vec<F32> value) {
    return hn::BitCast(Half(), hn::DemoteTo(hn::Rebind<hwy::float16_t, F32>(), value));
  }
#endif

  static HWY_INLINE Step<float> load(const char* from) {
    const auto* p = reinterpret_cast<const uint16_t*>(from);
    const auto half = [&](size_t i) { return widen(hn::LoadU(Half(), p + i * kLanes32)); };
    return {each<float>(half), each<float>([&](size_t i) { return half(i + Block<float>::kParts); })};
  }

  /// Two half vectors make a whole one, so that a streaming store has its full width.
  template <bool kStream>
  static HWY_INLINE void store(const Step<float>& a, char* to) {
    auto* p = reinterpret_cast<uint16_t*>(to);
    const hn::ScalableTag<uint16_t> dw;
    HWY_ALIGN uint16_t words[2 * Block<float>::kReals];
    HWY_UNROLL(4)
    for (size_t i = 0; i < Block<float>::kParts; ++i) {
      hn::StoreU(narrow(a.low.part[i]), Half(), words + i * kLanes32);
      hn::StoreU(narrow(a.high.part[i]), Half(), words + Block<float>::kReals + i * kLanes32);
    }
    HWY_UNROLL(4)
    for (size_t i = 0; i < 2 * Block<float>::kReals; i += hn::MaxLanes(dw))
      put<kStream>(hn::LoadU(dw, words + i), dw, p + i);
  }
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace binmoe::cpu
