// expert_capacity: ceil(factor * T * K / E), exactly, then up to a multiple.
#include "support.h"

namespace test {
namespace {

TEST(ExpertCapacity, is_the_ceiling_of_the_decimal_product) {
  const struct {
    double factor;
    int64_t tokens;
    int32_t top_k, num_experts, multiple, expected;
  } cases[] = {
      {1.1, 10, 1, 1, 1, 11},  // in binary 1.1 * 10 is above 11
      {1.1, 100, 1, 10, 1, 11},
      {1.25, 4096, 2, 8, 1, 1280},
      {1.0, 7, 1, 2, 1, 4},
      {0.1, 30, 1, 1, 1, 3},  // 0.1 * 30 is 3.0000000000000004 in binary
      {0.7, 10, 1, 1, 1, 7},
      {2.3, 10, 1, 1, 1, 23},
      {0.0, 1000, 8, 3, 1, 0},
      {0.0, 1000, 8, 3, 64, 0},
      {-0.0, 1000, 8, 3, 1, 0},
      {1.0, 0, 8, 3, 1, 0},
      {5e-324, 1000, 1, 1, 1, 1},  // ever so little is one row
      {1e-300, 1, 1, 1000000, 1, 1},
      {1e-9, 1000000000, 1, 1, 1, 1},
      {1.25, 4096, 8, 256, 64, 192},  // 160, up to a multiple of 64
      {1.0, 64, 1, 1, 64, 64},
      {1.0, 65, 1, 1, 64, 128},
      {1e9, 2, 1, 1, 1, 2000000000},
      {1.0, 2147483647, 1, 1, 1, 2147483647},
      {1.0, 1, 2147483647, 2147483647, 1, 1},
      {1.0000000000000002, 1000000000, 1, 1, 1, 1000000001},
      {0.9999999999999999, 1000000000, 1, 1, 1, 1000000000},
      {1.0, 1, 1, 1, 2147483647, 2147483647},
  };
  for (const auto& c : cases)
    EXPECT_EQ(expert_capacity(c.factor, c.tokens, c.top_k, c.num_experts, c.multiple), c.expected)
        << "factor " << c.factor << ", tokens " << c.tokens << ", top_k " << c.top_k << ", num_experts "
        << c.num_experts << ", multiple " << c.multiple;
}

TEST(ExpertCapacity, agrees_with_integers_for_every_factor_of_two_decimals) {
  for (int hundredths = 0; hundredths <= 400; ++hundredths) {
    const double factor = std::strtod((std::to_string(hundredths) + "e-2").c_str(), nullptr);
    for (const int64_t tokens : {1, 10, 37, 1000, 4096})
      for (const int32_t experts : {1, 7, 128}) {
        const int64_t exact = (hundredths * tokens * 3 + 100 * experts - 1) / (100 * experts);
        EXPECT_EQ(expert_capacity(factor, tokens, 3, experts), exact) << factor << " " << tokens << " " << experts;
      }
  }
}

TEST(ExpertCapacity, refuses_what_it_cannot_count) {
  const std::string operation = "expert_capacity";
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(refuses([] { expert_capacity(-0.5, 1, 1, 1); }, operation,
                      "the capacity factor is -0.5, but must be finite and not negative"));
  EXPECT_TRUE(refuses([&] { expert_capacity(infinity, 1, 1, 1); }, operation, "the capacity factor is inf"));
  EXPECT_TRUE(refuses([&] { expert_capacity(-infinity, 1, 1, 1); }, operation, "the capacity factor is -inf"));
  EXPECT_TRUE(refuses([] { expert_capacity(std::nan(""), 1, 1, 1); }, operation, "the capacity factor is nan"));
  EXPECT_TRUE(refuses([] { expert_capacity(1, 1, 1, 1, 0); }, operation, "the multiple is 0, but must be at least 1"));
  EXPECT_TRUE(refuses([] { expert_capacity(1, 1, 1, 1, -8); }, operation, "the multiple is -8"));
  EXPECT_TRUE(refuses([] { expert_capacity(1, -1, 1, 1); }, operation, "tokens is -1"));
  EXPECT_TRUE(refuses([] { expert_capacity(1, 1, 0, 1); }, operation, "top_k is 0"));
  EXPECT_TRUE(refuses([] { expert_capacity(1, 1, 1, 0); }, operation, "num_experts is 0"));
  EXPECT_TRUE(refuses([] { expert_capacity(1, int64_t{1} << 31, 1, 1); }, operation, "must be below 2^31"));
  EXPECT_TRUE(refuses([] { expert_capacity(1, int64_t{1} << 62, 4, 1); }, operation, "must be below 2^31"));
  EXPECT_TRUE(refuses([] { expert_capacity(1e9, 3, 1, 1); }, operation, "fewer than 2^31 in all"));
  EXPECT_TRUE(refuses([] { expert_capacity(1e308, 2147483647, 1, 1); }, operation, "fewer than 2^31 in all"));
  EXPECT_TRUE(refuses([] { expert_capacity(1, 2147483647, 1, 2, 1); }, operation, "fewer than 2^31 in all"));
  EXPECT_TRUE(refuses([] { expert_capacity(1, 1, 1, 2, 2147483647); }, operation, "fewer than 2^31 in all"));
}

}  // namespace
}  // namespace test
