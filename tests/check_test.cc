// check and check_bins: every fault is found wherever it is planted, with its position, value and limit.
#include "problem.h"

namespace test {
namespace {

struct Expected {
  const char* check;
  int64_t position, value, limit;
};

testing::AssertionResult finds(const std::optional<Fault>& fault, const Expected& expected) {
  if (!fault) return testing::AssertionFailure() << "no fault was found, but " << expected.check << " was planted";
  const bool same = std::string(fault->check) == expected.check && fault->position == expected.position &&
                    fault->value == expected.value && fault->limit == expected.limit;
  if (same) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected " << expected.check << " at " << expected.position << ", value "
                                     << expected.value << ", limit " << expected.limit << "; got " << describe(*fault);
}

/// A valid plan of 12 assignments, one masked, on 4 experts of which the third is empty: bins 5 8 8 11.
oracle::Plan sound() {
  const Sizes sizes = {6, 2, 4, 3};
  const std::vector<int64_t> ids = {0, 1, 0, 3, 0, 1, -1, 0, 3, 1, 0, 3};
  return oracle::plan_of(oracle::buckets(ids, sizes, {}, {}), sizes);
}

testing::AssertionResult plan_fault(const oracle::Plan& plan, const Expected& expected) {
  return finds(check(view_of(plan)), expected);
}

TEST(CheckPlan, a_sound_plan_has_no_fault) {
  EXPECT_FALSE(check(view_of(sound())).has_value());
}

TEST(CheckPlan, negative_or_decreasing_bins_are_found_at_each_expert) {
  for (const int64_t e : {0, 1, 3}) {
    oracle::Plan plan = sound();
    plan.bins[static_cast<size_t>(e)] = -7;
    EXPECT_TRUE(plan_fault(plan, {"bins_nonnegative", e, -7, 0}));
  }
  for (const int64_t e : {1, 2, 3}) {
    oracle::Plan plan = sound();
    const auto i = static_cast<size_t>(e);
    const int32_t before = plan.bins[i - 1];
    plan.bins[i] = before - 1;
    EXPECT_TRUE(plan_fault(plan, {"bins_monotonic", e, before - 1, before}));
  }
}

TEST(CheckPlan, bins_past_the_assignments_are_found) {
  oracle::Plan plan = sound();
  plan.bins[3] = 13;
  EXPECT_TRUE(plan_fault(plan, {"bins_limit", 3, 13, 12}));
}

TEST(CheckPlan, a_wrong_bin_id_is_found_at_each_position) {
  for (const int64_t position : {0, 6, 10}) {
    oracle::Plan plan = sound();
    const auto p = static_cast<size_t>(position);
    const int32_t right = plan.bin_ids[p];
    plan.bin_ids[p] = 2;
    EXPECT_TRUE(plan_fault(plan, {"bin_ids", position, 2, right}));
  }
}

TEST(CheckPlan, an_index_out_of_range_or_repeated_is_found_at_each_position) {
  for (const int64_t position : {0, 6, 10}) {
    for (const int32_t value : {-1, -5, 12, 1000000}) {
      oracle::Plan plan = sound();
      plan.indices[static_cast<size_t>(position)] = value;
      EXPECT_TRUE(plan_fault(plan, {"index_range", position, value, 12}));
    }
    if (position == 0) continue;
    oracle::Plan plan = sound();
    plan.indices[static_cast<size_t>(position)] = plan.indices[0];
    EXPECT_TRUE(plan_fault(plan, {"index_unique", position, plan.indices[0], 0}));
  }
}

TEST(CheckPlan, wrong_tails_are_found) {
  oracle::Plan plan = sound();
  plan.indices[11] = 6;
  EXPECT_TRUE(plan_fault(plan, {"indices_tail", 11, 6, -1}));
  plan = sound();
  plan.bin_ids[11] = 3;
  EXPECT_TRUE(plan_fault(plan, {"bin_ids_tail", 11, 3, 4}));
}

TEST(CheckPlan, wrong_counts_are_found_at_each_expert) {
  for (const int64_t e : {0, 1, 3}) {
    const auto i = static_cast<size_t>(e);
    oracle::Plan plan = sound();
    plan.tokens_per_expert[i] += 1;
    EXPECT_TRUE(plan_fault(plan, {"tokens_per_expert", e, plan.tokens_per_expert[i], plan.tokens_per_expert[i] - 1}));
    plan = sound();
    plan.kept_per_expert[i] += 1;
    EXPECT_TRUE(plan_fault(plan, {"kept_per_expert", e, plan.kept_per_expert[i], plan.kept_per_expert[i] - 1}));
  }
}

TEST(CheckPlan, a_wrong_row_is_found_at_each_assignment) {
  for (const int64_t assignment : {0, 5, 11}) {
    const auto a = static_cast<size_t>(assignment);
    for (const int32_t row : {-1, -2, 2, 12, 1 << 30}) {
      oracle::Plan plan = sound();
      const int32_t right = plan.row_of_assignment[a];
      if (row == right) continue;
      plan.row_of_assignment[a] = row;
      EXPECT_TRUE(plan_fault(plan, {"row_of_assignment", assignment, row, right})) << row;
    }
  }
}

TEST(CheckPlan, a_masked_or_dropped_assignment_with_a_row_is_found) {
  oracle::Plan plan = sound();
  ASSERT_EQ(plan.row_of_assignment[6], -1);  // masked
  plan.row_of_assignment[6] = 4;
  EXPECT_TRUE(plan_fault(plan, {"row_of_assignment", 6, 4, -1}));
  plan = sound();
  ASSERT_EQ(plan.row_of_assignment[7], -1);  // dropped
  plan.row_of_assignment[7] = 1;
  EXPECT_TRUE(plan_fault(plan, {"row_of_assignment", 7, 1, -1}));
}

TEST(CheckPlan, a_masked_assignment_with_a_row_number_below_minus_one_is_found) {
  oracle::Plan plan = sound();
  plan.row_of_assignment[6] = -2;
  EXPECT_TRUE(plan_fault(plan, {"row_of_assignment", 6, -2, -1}));
}

/// 7 of 8 assignments on 3 experts.
struct Given {
  std::vector<int32_t> indices = {5, 0, 2, 6, 1, 7, 3}, bin_ids = {0, 0, 0, 2, 2, 2, 2}, bins = {3, 3, 7};
  bool with_ids = true;
  std::optional<Fault> fault() const {
    return check_bins({indices.data(), with_ids ? bin_ids.data() : nullptr, static_cast<int64_t>(indices.size()),
                       bins.data(), static_cast<int64_t>(bins.size())},
                      {4, 2, 3, 0});
  }
};

TEST(CheckBins, sound_bins_have_no_fault) {
  Given given;
  EXPECT_FALSE(given.fault().has_value());
  given.with_ids = false;
  EXPECT_FALSE(given.fault().has_value());
}

TEST(CheckBins, every_fault_is_found_at_each_position) {
  for (const int64_t position : {0, 3, 6}) {
    const auto p = static_cast<size_t>(position);
    Given given;
    const int32_t right = given.bin_ids[p];
    given.bin_ids[p] = 1;
    EXPECT_TRUE(finds(given.fault(), {"bin_ids", position, 1, right}));
    for (const int32_t value : {-1, 8}) {
      given = Given();
      given.indices[p] = value;
      EXPECT_TRUE(finds(given.fault(), {"index_range", position, value, 8}));
    }
    if (position == 0) continue;
    given = Given();
    given.indices[p] = 5;
    EXPECT_TRUE(finds(given.fault(), {"index_unique", position, 5, 0}));
  }
  for (const int64_t e : {0, 1, 2}) {
    Given given;
    given.bins[static_cast<size_t>(e)] = -1;
    EXPECT_TRUE(finds(given.fault(), {"bins_nonnegative", e, -1, 0}));
  }
  for (const int64_t e : {1, 2}) {
    Given given;
    given.bins[static_cast<size_t>(e)] = 2;
    EXPECT_TRUE(finds(given.fault(), {"bins_monotonic", e, 2, 3}));
  }
  for (const int32_t end : {3, 6, 8, 1000}) {
    Given given;
    given.bins[2] = end;
    EXPECT_TRUE(finds(given.fault(), {"bins_end", 2, end, 7}));
  }
}

TEST(CheckBins, sizes_that_do_not_go_together_are_refused) {
  const std::vector<int32_t> bins = {2, 2}, indices = {0, 1};
  const auto refused = [&](const Bins& given, const Sizes& sizes, const std::string& text) {
    return refuses([&] { check_bins(given, sizes); }, "check", text);
  };
  EXPECT_TRUE(
      refused({indices.data(), nullptr, 2, bins.data(), 2}, {2, 1, 3, 0}, "bins has 2 entries, but num_experts is 3"));
  EXPECT_TRUE(refused({indices.data(), nullptr, 2, bins.data(), 2}, {1, 1, 2, 0},
                      "indices has 2 entries, but there are 1 assignments"));
  EXPECT_TRUE(refused({indices.data(), nullptr, -1, bins.data(), 2}, {2, 1, 2, 0}, "indices has -1 entries"));
  EXPECT_TRUE(refused({nullptr, nullptr, 2, bins.data(), 2}, {2, 1, 2, 0}, "indices is null, but has 2 entries"));
  EXPECT_TRUE(refused({indices.data(), nullptr, 2, nullptr, 2}, {2, 1, 2, 0}, "bins is null, but has 2 entries"));
}

TEST(Describe, names_array_position_value_limit_and_check) {
  EXPECT_EQ(describe(Fault{"index_range", 3, 9, 8}), "indices[3] is 9, but must be in [0, 8) (check index_range)");
  EXPECT_EQ(describe(Fault{"bins_end", 1, 9, 8}), "bins[1] is 9, but there are 8 indices (check bins_end)");
  EXPECT_EQ(describe(Fault{"bin_ids_tail", 4, 0, 2}), "bin_ids[4] is 0, but should be 2 (check bin_ids_tail)");
}

}  // namespace
}  // namespace test
