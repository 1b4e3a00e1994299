// C from a capacity factor, exactly: the factor is its shortest decimal, digits * 10^exponent, and the quotient is
// taken in integers.
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

#include "binmoe/operations.h"
#include "validate.h"

namespace binmoe {
namespace {

__extension__ typedef unsigned __int128 uint128;

struct Decimal {
  uint64_t digits = 0;  // below 10^17
  int exponent = 0;
};

/// The fewest digits that read back as `value` (finite, >= 0).
Decimal shortest_decimal(double value) {
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific).ptr;
  Decimal out;
  bool fraction = false;
  const char* p = text;
  for (; *p != 'e'; ++p) {
    if (*p == '.') {
      fraction = true;
      continue;
    }
    out.digits = out.digits * 10 + static_cast<uint64_t>(*p - '0');
    out.exponent -= fraction;
  }
  int written = 0;
  std::from_chars(p[1] == '+' ? p + 2 : p + 1, end, written);
  out.exponent += written;
  return out;
}

std::string text(double value) {
  char buffer[40];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorKind::invalid_argument, "expert_capacity", message);
}

constexpr uint128 kTooLarge = uint128{1} << 32;  // any capacity from here on is refused

/// ceil(factor * assignments / num_experts), or kTooLarge.
uint128 ceil_of(const Decimal& factor, uint64_t assignments, uint64_t num_experts) {
  uint128 numerator = uint128{factor.digits} * assignments;  // below 2^88
  uint128 denominator = num_experts;                         // below 2^31
  if (numerator == 0) return 0;
  for (int i = 0; i < factor.exponent; ++i) {
    numerator *= 10;
    if (numerator >> 120 != 0) return kTooLarge;  // the denominator is below 2^31
  }
  for (int i = 0; i > factor.exponent; --i) {
    denominator *= 10;
    if (denominator > numerator) return 1;
  }
  const uint128 quotient = (numerator + denominator - 1) / denominator;
  return quotient < kTooLarge ? quotient : kTooLarge;
}

}  // namespace

int32_t expert_capacity(double factor, int64_t tokens, int32_t top_k, int32_t num_experts, int32_t multiple) {
  validate_sizes("expert_capacity", {tokens, top_k, num_experts, 0});
  if (!std::isfinite(factor) || factor < 0)
    refuse("the capacity factor is " + text(factor) + ", but must be finite and not negative");
  if (multiple < 1) refuse("the multiple is " + std::to_string(multiple) + ", but must be at least 1");
  const uint128 exact = ceil_of(shortest_decimal(factor == 0 ? 0.0 : factor), static_cast<uint64_t>(tokens * top_k),
                                static_cast<uint64_t>(num_experts));
  const auto unit = static_cast<uint128>(multiple);
  const uint128 capacity = (exact + unit - 1) / unit * unit;
  if (capacity * static_cast<uint128>(num_experts) >= (uint128{1} << 31))
    refuse("a factor of " + text(factor) + " gives " +
           (exact < kTooLarge ? std::to_string(static_cast<uint64_t>(capacity)) : "2^32 or more") +
           " rows for each of " + std::to_string(num_experts) + " experts, but there must be fewer than 2^31 in all");
  return static_cast<int32_t>(capacity);
}

}  // namespace binmoe
