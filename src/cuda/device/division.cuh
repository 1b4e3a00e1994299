// Division of numbers below 2^31 by a divisor that the whole grid shares: a multiplication and a shift.
#pragma once

#include <bit>
#include <cstdint>

namespace binmoe::cuda::device {

struct Divisor {
  uint32_t divisor, multiplier, shift;

  /// 1 <= divisor < 2^31. With l = ceil(log2 divisor), multiplier = ceil(2^(31+l) / divisor) is exact below 2^31.
  explicit Divisor(uint32_t number) : divisor(number), multiplier(0), shift(0) {
    if (number == 1) return;
    const auto log2_up = static_cast<uint32_t>(std::bit_width(number - 1));
    multiplier = static_cast<uint32_t>(((uint64_t{1} << (31 + log2_up)) + number - 1) / number);
    shift = log2_up - 1;
  }

  __device__ __forceinline__ uint32_t quotient(uint32_t number) const {
    return divisor == 1 ? number : __umulhi(number, multiplier) >> shift;
  }
};

}  // namespace binmoe::cuda::device
