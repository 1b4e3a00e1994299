// Numbers at the edges: conversions over every 16-bit value, ties, subnormals, overflow, signed zeros, NaN and
// infinity.
#include "problem.h"

namespace test {
namespace {

/// T tokens, one expert, everything kept: row r of the binned tensor is token r.
oracle::Plan straight_plan(int64_t tokens) {
  const Sizes sizes = {tokens, 1, 1, static_cast<int32_t>(tokens)};
  return oracle::plan_of(oracle::buckets(std::vector<int64_t>(static_cast<size_t>(tokens)), sizes, {}, {}), sizes);
}

Numbers all_weights(int64_t count, DType type, double value) {
  Numbers out(count, type, Memory::Use::input);
  for (int64_t i = 0; i < count; ++i) out.set(i, value);
  return out;
}

/// Gather and scatter `values` as rows of `type` with one weight, on every variant, against the oracle.
void check_values(const oracle::Matrix& values, DType type, double weight, DType weight_type) {
  constexpr int64_t kColumns = 37;  // whole vectors and a rest
  const int64_t tokens = static_cast<int64_t>(values.size() + kColumns - 1) / kColumns;
  const oracle::Plan plan = straight_plan(tokens);
  Tensor rows({tokens, kColumns, type}, Memory::Use::input);
  for (int64_t i = 0; i < tokens * kColumns; ++i)
    rows.set(i / kColumns, i % kColumns, i < static_cast<int64_t>(values.size()) ? values[static_cast<size_t>(i)] : 1);
  const Numbers weights = all_weights(tokens, weight_type, weight);
  const auto gathered = encoded(oracle::gather(plan, rows.values(), weights.values(), kColumns, type), type);
  const auto scattered = encoded(oracle::scatter(plan, rows.values(), weights.values(), kColumns, type), type);
  for (const Variant& variant : variants_taking({type, weight_type})) {
    SCOPED_TRACE(variant.name + ", rows " + name_of(type) + ", weight " + std::to_string(weight));
    Tensor y({tokens, kColumns, type}, Memory::Use::output), out({tokens, kColumns, type}, Memory::Use::output);
    gather(view_of(plan), rows.view(), weights.weights(), y.view(), variant.context());
    EXPECT_TRUE(same_rows(y, gathered)) << "gather";
    scatter(view_of(plan), rows.view(), weights.weights(), out.view(), variant.context());
    EXPECT_TRUE(same_rows(out, scattered)) << "scatter";
    if (testing::Test::HasFailure()) return;
  }
}

oracle::Matrix all_16_bit_values(DType type) {
  oracle::Matrix out;
  for (uint64_t bits = 0; bits < 65536; ++bits) out.push_back(oracle::decode(bits, oracle::format_of(type)));
  return out;
}

/// Values whose products and sums fall on, just under and just over the middle of two neighbours, over all exponents.
oracle::Matrix awkward_values(DType type, int64_t count) {
  const oracle::Format f = oracle::format_of(type);
  Random random(77);
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  oracle::Matrix out = {0.0, -0.0, nan, infinity, -infinity};
  const uint64_t values = f.bytes == 8 ? 0 : uint64_t{1} << (8 * f.bytes);
  while (static_cast<int64_t>(out.size()) < count) {
    const uint64_t bits = values == 0 ? random.bits() : random.bits() % values;
    out.push_back(oracle::decode(bits, f));
  }
  return out;
}

TEST(Numeric, every_f16_and_bf16_value_passes_a_weight_of_one_unchanged) {
  for (const DType type : {DType::f16, DType::bf16})
    for (const DType weights : {DType::f32, DType::f16, DType::bf16})
      check_values(all_16_bit_values(type), type, 1.0, weights);
}

TEST(Numeric, every_f16_and_bf16_value_times_awkward_weights_is_rounded_once_to_even) {
  const double weights[] = {-1.0,    0.5,      1.5,      1.0 + 0x1p-8, 1.0 + 0x1p-11,     1.0 + 0x1p-23,
                            0x1p-14, -0x1p-24, 0x1p-126, 0x1p-149,     0x1.8p-130,        0x1p15,
                            0x1p120, 0.0,      -0.0,     1.0 / 3,      65519.0 / 65504.0, 0x1.fffffep127};
  for (const DType type : {DType::f16, DType::bf16})
    for (const double weight : weights) check_values(all_16_bit_values(type), type, weight, DType::f32);
}

TEST(Numeric, weights_of_each_narrow_dtype_are_widened_exactly) {
  // Every value of the narrow dtype as a weight: K = 1, T = 65536, H = 2.
  for (const DType weight_type : {DType::f16, DType::bf16})
    for (const DType row_type : {DType::f32, DType::f64}) {
      const int64_t tokens = 65536;
      const oracle::Plan plan = straight_plan(tokens);
      Tensor x({tokens, 2, row_type}, Memory::Use::input);
      Numbers weights(tokens, weight_type, Memory::Use::input);
      const oracle::Matrix values = all_16_bit_values(weight_type);
      for (int64_t t = 0; t < tokens; ++t) {
        weights.set(t, values[static_cast<size_t>(t)]);
        x.set(t, 0, 1.0);
        x.set(t, 1, 1.0 + 0x1p-23);
      }
      const auto expected = encoded(oracle::gather(plan, x.values(), weights.values(), 2, row_type), row_type);
      for (const Variant& variant : variants_taking({row_type, weight_type})) {
        SCOPED_TRACE(variant.name + ", weights " + name_of(weight_type));
        Tensor y({tokens, 2, row_type}, Memory::Use::output);
        gather(view_of(plan), x.view(), weights.weights(), y.view(), variant.context());
        EXPECT_TRUE(same_rows(y, expected));
        Tensor out({tokens, 2, row_type}, Memory::Use::output);
        scatter(view_of(plan), x.view(), weights.weights(), out.view(), variant.context());
        const auto sums = encoded(oracle::scatter(plan, x.values(), weights.values(), 2, row_type), row_type);
        EXPECT_TRUE(same_rows(out, sums));
      }
    }
}

TEST(Numeric, f32_and_f64_of_any_bits_are_multiplied_as_the_oracle_does) {
  for (const DType type : {DType::f32, DType::f64})
    for (const double weight : {1.0, -0x1.8p-1, 0x1p-60, 0x1.000002p0, 0x1p100, 0.0})
      check_values(awkward_values(type, kThorough ? 20000 : 3000), type, weight, DType::f32);
}

/// Scatter of K values per token against the oracle, without weights and with ones that move the rounding.
void check_sums(DType type, int32_t top_k, const std::function<double(Random&)>& value) {
  constexpr int64_t kColumns = 261;
  const Sizes sizes = {16, top_k, top_k, 16};
  std::vector<int64_t> ids;
  for (int64_t a = 0; a < sizes.assignments(); ++a) ids.push_back(a % top_k);
  const oracle::Plan plan = oracle::plan_of(oracle::buckets(ids, sizes, {}, {}), sizes);
  Random random(static_cast<uint64_t>(top_k));
  Tensor y({sizes.expert_rows(), kColumns, type}, Memory::Use::input);
  Numbers weights(sizes.assignments(), DType::f32, Memory::Use::input);
  for (int64_t r = 0; r < sizes.expert_rows(); ++r)
    for (int64_t h = 0; h < kColumns; ++h) y.set(r, h, value(random));
  for (int64_t a = 0; a < sizes.assignments(); ++a) weights.set(a, random.number());
  const auto plain = encoded(oracle::scatter(plan, y.values(), {}, kColumns, type), type);
  const auto weighted = encoded(oracle::scatter(plan, y.values(), weights.values(), kColumns, type), type);
  for (const Variant& variant : variants_taking({type})) {
    SCOPED_TRACE(variant.name + ", rows " + name_of(type) + ", top_k " + std::to_string(top_k));
    for (const bool with_weights : {false, true}) {
      Tensor out({sizes.tokens, kColumns, type}, Memory::Use::output);
      scatter(view_of(plan), y.view(), with_weights ? weights.weights() : Weights{}, out.view(), variant.context());
      EXPECT_TRUE(same_rows(out, with_weights ? weighted : plain)) << "weights: " << with_weights;
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Numeric, sums_of_any_bits_round_once_at_the_end) {
  for (const DType type : kFloats) {
    const oracle::Matrix values = awkward_values(type, 4096);
    for (const int32_t top_k : {1, 2, 3, 8})
      check_sums(type, top_k, [&](Random& random) { return values[static_cast<size_t>(random.below(4096))]; });
  }
}

TEST(Numeric, sums_that_fall_halfway_round_to_even) {
  for (const DType type : kFloats) {
    const int digits = oracle::format_of(type).precision;
    for (const int32_t top_k : {2, 3})  // 1 + a few units, plus halves and slivers of a unit
      check_sums(type, top_k, [&](Random& random) {
        const double unit = std::ldexp(1.0, 1 - digits);
        const double parts[] = {1.0, 1.0 + unit, 1.0 + 2 * unit, unit / 2, unit / 4, -unit / 2, -unit / 4, unit};
        return parts[random.below(8)];
      });
  }
}

TEST(Numeric, sums_of_subnormals_are_kept) {
  for (const DType type : kFloats) {
    const oracle::Format f = oracle::format_of(type);
    const double least = std::ldexp(1.0, f.min_exponent - f.precision + 1);
    for (const int32_t top_k : {1, 2, 5})
      check_sums(type, top_k, [&](Random& random) { return least * static_cast<double>(random.below(9) - 4); });
  }
}

TEST(Numeric, sums_past_the_largest_number_become_infinity) {
  for (const DType type : kFloats) {
    const oracle::Format f = oracle::format_of(type);
    const double largest = std::ldexp(2.0 - std::ldexp(1.0, 1 - f.precision), f.max_exponent);
    for (const int32_t top_k : {2, 3})
      check_sums(type, top_k, [&](Random& random) {
        const double half_unit = std::ldexp(1.0, f.max_exponent - f.precision);
        const double parts[] = {largest, -largest, half_unit, largest / 2, -half_unit};
        return parts[random.below(5)];
      });
  }
}

TEST(Numeric, a_lone_negative_zero_becomes_positive_in_scatter_and_stays_in_gather) {
  for (const DType type : kFloats)
    for (const Variant& variant : variants_taking({type})) {
      SCOPED_TRACE(variant.name + ", rows " + name_of(type));
      const oracle::Plan plan = straight_plan(3);
      Tensor rows({3, 21, type}, Memory::Use::input);
      for (int64_t i = 0; i < 63; ++i) rows.set(i / 21, i % 21, -0.0);
      const oracle::Matrix negative(63, -0.0), positive(63, 0.0);
      Tensor y({3, 21, type}, Memory::Use::output), out({3, 21, type}, Memory::Use::output);
      const Numbers one = all_weights(3, DType::f32, 1.0);
      gather(view_of(plan), rows.view(), one.weights(), y.view(), variant.context());
      EXPECT_TRUE(same_rows(y, encoded(negative, type)));
      scatter(view_of(plan), rows.view(), {}, out.view(), variant.context());
      EXPECT_TRUE(same_rows(out, encoded(positive, type)));
    }
}

TEST(Numeric, a_kept_weight_of_zero_with_nan_data_gives_nan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType type : kFloats)
    for (const Variant& variant : variants_taking({type})) {
      SCOPED_TRACE(variant.name + ", rows " + name_of(type));
      const oracle::Plan plan = straight_plan(1);
      Tensor rows({1, 19, type}, Memory::Use::input);  // inputs begin as NaN
      const Numbers zero = all_weights(1, DType::f32, 0.0);
      Tensor y({1, 19, type}, Memory::Use::output), out({1, 19, type}, Memory::Use::output);
      gather(view_of(plan), rows.view(), zero.weights(), y.view(), variant.context());
      scatter(view_of(plan), rows.view(), zero.weights(), out.view(), variant.context());
      EXPECT_TRUE(same_rows(y, encoded(oracle::Matrix(19, nan), type)));
      EXPECT_TRUE(same_rows(out, encoded(oracle::Matrix(19, nan), type)));
      Numbers dw(1, DType::f32, Memory::Use::output);
      dw.set(0, 5.0);
      wgrad(view_of(plan), rows.view(), rows.view(), dw.gradients(), variant.context());
      EXPECT_TRUE(std::isnan(dw.get(0)));
    }
}

TEST(Numeric, unweighted_gather_keeps_every_bit_of_a_nan) {
  for (const DType type : {DType::f16, DType::bf16})
    for (const Variant& variant : variants()) {
      SCOPED_TRACE(variant.name + ", rows " + name_of(type));
      const oracle::Plan plan = straight_plan(64);
      Tensor x({64, 1024, type}, Memory::Use::input);
      for (int64_t i = 0; i < 65536; ++i) {
        const auto bits = static_cast<uint16_t>(i);
        std::memcpy(x.row(i / 1024) + i % 1024 * 2, &bits, 2);
      }
      Tensor y({64, 1024, type}, Memory::Use::output);
      gather(view_of(plan), x.view(), {}, y.view(), variant.context());
      EXPECT_EQ(x.packed() == y.packed(), true) << "some bits changed";
    }
}

TEST(Numeric, gather_copies_elements_of_any_size) {
  const Case c = {.sizes = {29, 3, 6, 8}};
  const Problem p(c);
  for (const int32_t element_bytes : {1, 2, 3, 4, 7, 8, 16})
    for (const int64_t offset : {0, 1})
      for (const int64_t gap : {0, 3})
        for (const Variant& variant : variants_taking({DType::bytes})) {
          SCOPED_TRACE(variant.name + ", element_bytes " + std::to_string(element_bytes));
          Tensor x({29, 53, DType::bytes, element_bytes, gap, offset}, Memory::Use::input);
          Random random(5);
          for (int64_t t = 0; t < 29; ++t)
            for (int64_t i = 0; i < 53 * element_bytes; ++i) x.row(t)[i] = static_cast<unsigned char>(random.bits());
          const int64_t row_bytes = int64_t{53} * element_bytes;
          std::vector<unsigned char> expected(static_cast<size_t>(c.sizes.expert_rows() * row_bytes), 0);
          for (int64_t a = 0; a < c.sizes.assignments(); ++a) {
            const int32_t row = p.plan.row_of_assignment[static_cast<size_t>(a)];
            if (row >= 0) std::copy_n(x.row(a / 3), row_bytes, expected.data() + row * row_bytes);
          }
          Tensor y({c.sizes.expert_rows(), 53, DType::bytes, element_bytes, gap, offset}, Memory::Use::output);
          gather(p.plan_view(), x.view(), {}, y.view(), variant.context());
          EXPECT_TRUE(same_rows(y, expected));
          if (testing::Test::HasFailure()) return;
        }
}

}  // namespace
}  // namespace test
