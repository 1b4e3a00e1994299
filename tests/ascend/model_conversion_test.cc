// The vector-core model, values: conversions and arithmetic of the vector pipe.
#include <cmath>
#include <limits>
#include <random>

#include "model_support.h"

namespace test {
namespace {

constexpr uint32_t kMany = 4096;

/// Run `body` on kMany elements of UB: in at 0, out behind them.
template <class To, class From, class Body>
std::vector<To> computed(const std::vector<From>& values, const Body& body) {
  Machine machine{Profile{}};
  std::vector<To> out(values.size());
  const GM_ADDR in = machine.bind("in", values.data(), static_cast<int64_t>(values.size() * sizeof(From)), Role::input);
  const GM_ADDR to = machine.bind("to", out.data(), static_cast<int64_t>(out.size() * sizeof(To)), Role::output);
  machine.launch("values", 1, [&] {
    Room room(16384 * 2);
    const auto a = room.buffer.Get<From>();
    const auto b = room.buffer.Get<float>()[kMany].template ReinterpretCast<To>();
    GlobalTensor<From> source;
    GlobalTensor<To> target;
    source.SetGlobalBuffer(reinterpret_cast<From*>(in), values.size());
    target.SetGlobalBuffer(reinterpret_cast<To*>(to), values.size());
    for (uint32_t first = 0; first < values.size(); first += kMany) {
      const uint32_t count = std::min(kMany, static_cast<uint32_t>(values.size()) - first);
      PipeBarrier<PIPE_ALL>();
      DataCopyPad(a, source[first], DataCopyExtParams{1, static_cast<uint32_t>(count * sizeof(From)), 0, 0, 0}, {});
      PipeBarrier<PIPE_ALL>();
      body(b, a, count);
      PipeBarrier<PIPE_ALL>();
      DataCopyPad(target[first], b, DataCopyExtParams{1, static_cast<uint32_t>(count * sizeof(To)), 0, 0, 0});
    }
  });
  return out;
}

template <class To, class From>
std::vector<To> cast_all(const std::vector<From>& values, RoundMode mode) {
  return computed<To>(values, [&](auto to, auto from, uint32_t count) { Cast(to, from, mode, count); });
}

double value_of(uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

template <class Narrow>
void check_16_bit(int exponent_bits) {
  std::vector<Narrow> all(65536);
  for (uint32_t i = 0; i < 65536; ++i) all[i].bits = static_cast<uint16_t>(i);
  const std::vector<float> wide = cast_all<float>(all, RoundMode::CAST_NONE);
  const std::vector<Narrow> back = cast_all<Narrow>(wide, RoundMode::CAST_RINT);
  for (uint32_t i = 0; i < 65536; ++i) {
    const double expected = value_of(all[i].bits, exponent_bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(wide[i]) && std::isnan(value_of(back[i].bits, exponent_bits))) << i;
      continue;
    }
    EXPECT_EQ(wide[i], expected) << i;
    EXPECT_EQ(std::signbit(wide[i]), std::signbit(expected)) << i;
    EXPECT_EQ(back[i].bits, all[i].bits);
  }
  // Between two neighbours: below the middle, the middle (to the even one), above it.
  std::vector<float> between;
  std::vector<uint16_t> expected;
  const auto infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << (15 - exponent_bits));
  for (uint16_t i = 0; i + 1 < infinity; ++i) {
    const auto middle =
        static_cast<float>((value_of(i, exponent_bits) + value_of(static_cast<uint16_t>(i + 1), exponent_bits)) / 2);
    for (const float value : {std::nextafterf(middle, 0.0f), middle, std::nextafterf(middle, 1e38f)}) {
      between.push_back(value);
      expected.push_back(static_cast<uint16_t>(value < middle ? i : value > middle ? i + 1 : i + i % 2));
    }
  }
  const std::vector<Narrow> rounded = cast_all<Narrow>(between, RoundMode::CAST_RINT);
  for (size_t i = 0; i < between.size(); ++i) ASSERT_EQ(rounded[i].bits, expected[i]) << between[i] << " at " << i;
}

TEST(ModelValues, bfloat16_round_trips_and_rounds_to_even) {
  check_16_bit<bfloat16_t>(8);
}
TEST(ModelValues, half_round_trips_and_rounds_to_even) {
  check_16_bit<half>(5);
}

TEST(ModelValues, floats_become_integers_by_the_mode) {
  const std::vector<float> values = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 2.4f, -2.6f, 3e9f, -3e9f, NAN};
  const auto check = [&](RoundMode mode, std::vector<int32_t> expected) {
    EXPECT_EQ(cast_all<int32_t>(values, mode), expected) << static_cast<int>(mode);
  };
  check(RoundMode::CAST_RINT, {0, 2, 2, 0, -2, 2, -3, INT32_MAX, INT32_MIN, 0});
  check(RoundMode::CAST_FLOOR, {0, 1, 2, -1, -2, 2, -3, INT32_MAX, INT32_MIN, 0});
  check(RoundMode::CAST_CEIL, {1, 2, 3, 0, -1, 3, -2, INT32_MAX, INT32_MIN, 0});
  check(RoundMode::CAST_ROUND, {1, 2, 3, -1, -2, 2, -3, INT32_MAX, INT32_MIN, 0});
  check(RoundMode::CAST_TRUNC, {0, 1, 2, 0, -1, 2, -2, INT32_MAX, INT32_MIN, 0});
  const std::vector<int32_t> integers = {0, -5, 16777217, INT32_MAX};
  EXPECT_EQ(cast_all<float>(integers, RoundMode::CAST_NONE), (std::vector<float>{0, -5, 16777216, 2147483648.0f}));
}

TEST(ModelValues, float_arithmetic_rounds_each_step) {
  const float a = 1.0f + 0x1p-12f;  // a * a - a * a rounded is not 0 if fused
  const std::vector<float> values(9, a);
  const auto out = computed<float>(values, [](auto to, auto from, uint32_t count) {
    const auto n = static_cast<int32_t>(count);
    Mul(to, from, from, n);
    PipeBarrier<PIPE_V>();
    Muls(to, to, -1.0f, n);
    PipeBarrier<PIPE_V>();
    const auto square = to[512];
    Muls(square, from, 1.0f + 0x1p-12f, n);
    PipeBarrier<PIPE_V>();
    Add(to, to, square, n);
  });
  EXPECT_EQ(out, std::vector<float>(9, 0.0f));
}

TEST(ModelValues, integers_wrap) {
  const std::vector<int32_t> values = {1, -2, INT32_MAX};
  const auto out = computed<int32_t>(values, [](auto to, auto from, uint32_t count) {
    const auto n = static_cast<int32_t>(count);
    Adds(to, from, 1, n);
    PipeBarrier<PIPE_V>();
    Add(to, to, from, n);
    PipeBarrier<PIPE_V>();
    Muls(to, to, 3, n);
    PipeBarrier<PIPE_V>();
    Mul(to, to, from, n);
  });
  EXPECT_EQ(out, (std::vector<int32_t>{9, 18, INT32_MIN + 3}));
}

TEST(ModelValues, duplicate_fills_two_and_four_bytes) {
  const auto words = computed<int32_t>(std::vector<int32_t>(5), [](auto to, auto, uint32_t) { Duplicate(to, -7, 5); });
  EXPECT_EQ(words, std::vector<int32_t>(5, -7));
  const auto halves = computed<bfloat16_t>(std::vector<bfloat16_t>(5),
                                           [](auto to, auto, uint32_t) { Duplicate(to, bfloat16_t{0x3f80}, 5); });
  for (const bfloat16_t value : halves) EXPECT_EQ(value.bits, 0x3f80);
}

/// The stated order, written anew: neighbours in a tree, 64 at a time.
float tree_sum(std::vector<float> values) {
  const auto neighbours = [](auto self, const float* v, size_t count) -> float {
    return count == 1 ? v[0] : self(self, v, count / 2) + self(self, v + count / 2, count / 2);
  };
  do {
    values.resize((values.size() + 63) / 64 * 64, 0.0f);
    std::vector<float> sums;
    for (size_t i = 0; i < values.size(); i += 64) sums.push_back(neighbours(neighbours, &values[i], 64));
    values = sums;
  } while (values.size() > 1);
  return values[0];
}

TEST(ModelValues, a_sum_has_the_stated_order) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const uint32_t count : {1u, 2u, 7u, 63u, 64u, 65u, 200u, 2048u, 4095u, 4096u}) {
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    const auto out = computed<float>(values, [&](auto to, auto from, uint32_t n) {
      Duplicate(to, 0.0f, kMany);
      PipeBarrier<PIPE_V>();
      ReduceSum(to, from, from[4096 + 2048], static_cast<int32_t>(n));
    });
    EXPECT_EQ(out[0], tree_sum(values)) << count;
  }
}

}  // namespace
}  // namespace test
