// Copies and vector instructions as kernels see them. The count forms are held to the 255 repeats of one instruction,
// and a count of 0 does nothing.
#pragma once

#include <bit>
#include <cstring>

#include "tensors.h"

namespace binmoe::vector_core {

enum class Element : uint8_t { f32, f16, bf16, i32, other };

template <class T>
constexpr Element element_of() {
  if constexpr (std::is_same_v<T, float>) return Element::f32;
  if constexpr (std::is_same_v<T, half>) return Element::f16;
  if constexpr (std::is_same_v<T, bfloat16_t>) return Element::bf16;
  if constexpr (std::is_same_v<T, int32_t>) return Element::i32;
  return Element::other;
}

/// The arithmetic of the model: f32 in plain IEEE, rounded to nearest even, never fused; int32 wraps.
template <class T>
constexpr bool computes() {
  return element_of<T>() == Element::f32 || element_of<T>() == Element::i32;
}

void cast(const Local& to, Element to_type, const Local& from, Element from_type, AscendC::RoundMode mode,
          int64_t count, Place place);
void binary(Call call, Element type, const Local& to, const Local& a, const Local& b, int64_t count, Place place);
void with_scalar(Call call, Element type, const Local& to, const Local& from, uint32_t scalar, int64_t count,
                 Place place);
void duplicate(const Local& to, int64_t element_bytes, uint32_t scalar, int64_t count, Place place);
void reduce_sum(const Local& to, const Local& from, const Local& scratch, int64_t count, Place place);

}  // namespace binmoe::vector_core

namespace AscendC {

/// Global memory to UB: row strides in bytes there, in 32-byte blocks here; each block begins at a multiple of 32
/// bytes.
template <class T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyExtParams& params,
                 const DataCopyPadExtParams<T>& pad, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using namespace binmoe::vector_core;
  constexpr int64_t kSize = sizeof(T);
  Transfer t = {Call::data_copy_pad, params.blockCount, params.blockLen, int64_t{params.blockLen} + params.srcStride,
                0};
  t.pad_element_bytes = kSize;
  if (pad.isPad) {
    t.left_bytes = pad.leftPadding * kSize;
    t.right_bytes = pad.rightPadding * kSize;
    std::memcpy(&t.pad_bits, &pad.paddingValue, sizeof(T));
  }
  t.local_pitch =
      round_up(t.left_bytes + t.block_bytes + t.right_bytes, kBlockBytes) + int64_t{params.dstStride} * kBlockBytes;
  current_core().copy_in(dst.local(), src.address(), t, {file, line});
}

/// UB to global memory: exactly blockLen bytes of each block.
template <class T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyExtParams& params,
                 const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using namespace binmoe::vector_core;
  Transfer t = {Call::data_copy_pad, params.blockCount, params.blockLen, int64_t{params.blockLen} + params.dstStride,
                round_up(params.blockLen, kBlockBytes) + int64_t{params.srcStride} * kBlockBytes};
  t.pad_element_bytes = sizeof(T);
  current_core().copy_out(dst.address(), src.local(), t, {file, line});
}

template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& params,
              const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using namespace binmoe::vector_core;
  current_core().copy_in(dst.local(), src.address(),
                         {Call::data_copy, params.blockCount, params.blockLen * kBlockBytes,
                          (int64_t{params.blockLen} + params.srcStride) * kBlockBytes,
                          (int64_t{params.blockLen} + params.dstStride) * kBlockBytes},
                         {file, line});
}

template <class T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params,
              const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using namespace binmoe::vector_core;
  current_core().copy_out(dst.address(), src.local(),
                          {Call::data_copy, params.blockCount, params.blockLen * kBlockBytes,
                           (int64_t{params.blockLen} + params.dstStride) * kBlockBytes,
                           (int64_t{params.blockLen} + params.srcStride) * kBlockBytes},
                          {file, line});
}

/// half, bfloat16_t -> float: CAST_NONE. float -> half, bfloat16_t: CAST_RINT. int32_t -> float: CAST_NONE or
/// CAST_RINT. float -> int32_t: any but CAST_NONE; values outside int32_t saturate, NaN becomes 0.
template <class D, class S>
void Cast(const LocalTensor<D>& dst, const LocalTensor<S>& src, RoundMode mode, uint32_t count,
          const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using namespace binmoe::vector_core;
  constexpr Element kTo = element_of<D>(), kFrom = element_of<S>();
  static_assert((kTo == Element::f32) != (kFrom == Element::f32) && kTo != Element::other && kFrom != Element::other,
                "the model casts half, bfloat16_t and int32_t to float and back");
  cast(dst.local(), kTo, src.local(), kFrom, mode, count, {file, line});
}

template <class T>
void Add(const LocalTensor<T>& dst, const LocalTensor<T>& a, const LocalTensor<T>& b, int32_t count,
         const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using namespace binmoe::vector_core;
  static_assert(computes<T>());
  binary(Call::add, element_of<T>(), dst.local(), a.local(), b.local(), count, {file, line});
}

template <class T>
void Mul(const LocalTensor<T>& dst, const LocalTensor<T>& a, const LocalTensor<T>& b, int32_t count,
         const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using namespace binmoe::vector_core;
  static_assert(computes<T>());
  binary(Call::mul, element_of<T>(), dst.local(), a.local(), b.local(), count, {file, line});
}

template <class T>
void Adds(const LocalTensor<T>& dst, const LocalTensor<T>& src, std::type_identity_t<T> scalar, int32_t count,
          const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using namespace binmoe::vector_core;
  static_assert(computes<T>());
  with_scalar(Call::adds, element_of<T>(), dst.local(), src.local(), std::bit_cast<uint32_t>(scalar), count,
              {file, line});
}

template <class T>
void Muls(const LocalTensor<T>& dst, const LocalTensor<T>& src, std::type_identity_t<T> scalar, int32_t count,
          const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using namespace binmoe::vector_core;
  static_assert(computes<T>());
  with_scalar(Call::muls, element_of<T>(), dst.local(), src.local(), std::bit_cast<uint32_t>(scalar), count,
              {file, line});
}

/// Elements of 2 or 4 bytes.
template <class T>
void Duplicate(const LocalTensor<T>& dst, std::type_identity_t<T> scalar, int32_t count,
               const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4);
  uint32_t bits = 0;
  std::memcpy(&bits, &scalar, sizeof(T));
  binmoe::vector_core::duplicate(dst.local(), sizeof(T), bits, count, {file, line});
}

/// dst[0] = the sum of src[0 .. count). The order: each repeat of 64 floats as a tree of neighbours, (0 + 1) + (2 + 3)
/// and so on, lanes past the end counting as +0; then the sums of the repeats in the same way, until one is left.
/// `sharedTmp` holds the sums of the repeats, in whole 32-byte blocks.
template <class T>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmp, int32_t count,
               const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  static_assert(std::is_same_v<T, float>);
  binmoe::vector_core::reduce_sum(dst.local(), src.local(), sharedTmp.local(), count, {file, line});
}

}  // namespace AscendC
