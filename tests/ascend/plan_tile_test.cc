// The tile plan of the plan kernels: never above a chip's limit, and refusals that say why.
#include "ascend/tiling/plan_tile.h"

#include <gtest/gtest.h>

#include <string>

namespace binmoe::ascend {
namespace {

constexpr DropPolicy kPolicies[] = {DropPolicy::token_order, DropPolicy::choice_order, DropPolicy::by_weight};
constexpr IdType kIdTypes[] = {IdType::i8, IdType::u8, IdType::i16, IdType::u16, IdType::i32, IdType::i64};
constexpr DType kPriorities[] = {DType::f32, DType::bf16, DType::f16};

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  int64_t below(int64_t limit) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<int64_t>((state_ >> 1) % static_cast<uint64_t>(limit));
  }

 private:
  uint64_t state_;
};

TEST(PlanTiling, fits_every_chip_and_never_passes_its_limit) {
  for (const Soc& soc : socs())
    for (const DropPolicy policy : kPolicies)
      for (const IdType type : {IdType::i8, IdType::i64})
        for (const int64_t tokens : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{16384}, (int64_t{1} << 31) / 8 - 1})
          for (const int32_t experts : {1, 8, 128, 4096, 65536, 1 << 20}) {
            const PlanTiling plan = plan_tiling({&soc, {tokens, 8, experts, 1}, type, policy, DType::f32});
            ASSERT_LE(plan.ub_bytes, soc.ub_limit_bytes);
            for (const PlanLaunch& launch : plan.launches) {
              int64_t sum = 0;
              for (const TileBuffer& buffer : launch.buffers) sum += buffer.bytes * buffer.count;
              ASSERT_EQ(sum, launch.ub_bytes);
            }
            ASSERT_GE(plan.experts.blocks * plan.experts.block_positions, tokens * 8);
            ASSERT_GE(plan.experts.chunks * plan.experts.chunk_experts, experts);
          }
}

TEST(PlanTiling, keeps_any_limit_or_refuses_it) {
  int64_t plans = 0, refusals = 0;
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    Random random(seed);
    Soc soc = find_soc("910B3");
    soc.ub_limit_bytes = 256 + random.below(random.below(2) == 0 ? 200000 : 8000) / 32 * 32;
    soc.vector_cores = static_cast<int32_t>(1 + random.below(72));
    const auto experts = static_cast<int32_t>(1 + random.below(int64_t{1} << random.below(22)));
    const auto top_k = static_cast<int32_t>(1 + random.below(200));
    const PlanRequest request{&soc,
                              {random.below(int64_t{1} << random.below(22)), top_k, experts, 1},
                              kIdTypes[random.below(6)],
                              kPolicies[random.below(3)],
                              kPriorities[random.below(3)]};
    try {
      const PlanTiling plan = plan_tiling(request);
      ASSERT_LE(plan.ub_bytes, soc.ub_limit_bytes) << seed;
      ++plans;
    } catch (const Error&) {
      ASSERT_LT(soc.ub_limit_bytes, 8192) << seed;
      ++refusals;
    }
  }
  EXPECT_GT(plans, 10000);
  EXPECT_GT(refusals, 100);
}

std::string refusal(const PlanRequest& request) {
  try {
    plan_tiling(request);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(PlanTiling, refuses_what_does_not_fit_with_both_numbers) {
  Soc soc = find_soc("910B3");
  soc.ub_limit_bytes = 512;
  const std::string text = refusal({&soc, {1000, 8, 128, 1}});
  EXPECT_NE(text.find("bytes of UB"), std::string::npos) << text;
  EXPECT_NE(text.find("has 512"), std::string::npos) << text;
  const Soc& chip = find_soc("910B3");
  EXPECT_NE(refusal({&chip, {1 << 30, 2, 1, 0}}).find("1073741824 * 2"), std::string::npos);
  EXPECT_NE(refusal({&chip, {1, 1, 2, 1 << 30}}).find("2 * 1073741824"), std::string::npos);
  EXPECT_NE(refusal({&chip, {1, 0, 1, 0}}).find("top_k is 0"), std::string::npos);
  EXPECT_NE(refusal({&chip, {1, 1, 0, 0}}).find("num_experts is 0"), std::string::npos);
  EXPECT_NE(refusal({&chip, {1, 1, 1, -1}}).find("must not be negative"), std::string::npos);
  EXPECT_NE(refusal({&chip, {1, 1, 1, 1}, IdType::i32, DropPolicy::by_weight, DType::f64}).find("f64"),
            std::string::npos);
  EXPECT_NE(refusal({&chip, {2, (1 << 29) + 1, 1, 1}, IdType::i64, DropPolicy::choice_order}).find("32 bits"),
            std::string::npos);
  EXPECT_EQ(refusal({&chip, {2, (1 << 29) + 1, 1, 1}, IdType::i32, DropPolicy::choice_order}), "nothing was thrown");
}

}  // namespace
}  // namespace binmoe::ascend
