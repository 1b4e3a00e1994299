// Plans in device memory at the sizes where the kernels change their path: tiles, digits, numbers of experts.
#include <algorithm>

#include "cuda/on_device.h"

namespace test {
namespace {

class DevicePlans : public Cuda {};

void sweep_plans(const std::vector<Case>& cases) {
  const Stream stream;
  for (const Case& c : cases) {
    SCOPED_TRACE(describe(c));
    const Problem p(c);
    check_plan_on_device(OnDevice(p, stream));
    if (testing::Test::HasFailure()) return;
  }
}

TEST_F(DevicePlans, counts_of_assignments_around_tiles) {
  std::vector<Case> cases;
  for (const int64_t tokens :
       {0, 1, 31, 255, 256, 257, 2047, 2048, 2049, 4097, 8193, 32767, 32768, 32769, 65535, 65536, 65537, 131072})
    for (const DropPolicy policy : kPolicies)
      for (const int32_t experts : {1, 8, 256, 1024})
        cases.push_back({.sizes = {tokens, 1, experts, 100}, .hidden = 0, .policy = policy});
  for (const int64_t tokens : {262145, 600000})  // more tiles than one block scans at once
    for (const DropPolicy policy : kPolicies)
      cases.push_back({.sizes = {tokens, 1, 300, 1500}, .hidden = 0, .policy = policy});
  sweep_plans(cases);
}

TEST_F(DevicePlans, numbers_of_experts_around_powers_of_two) {
  std::vector<Case> cases;
  for (const int32_t experts : {1, 2, 3, 9, 31, 33, 255, 257, 513, 1000, 1023, 1024, 1025, 2048, 4097, 65536, 70001})
    for (const int64_t tokens : {0, 1, 700, 5000})
      for (const DropPolicy policy : kPolicies)
        cases.push_back({.sizes = {tokens, 3, experts, 7}, .hidden = 0, .policy = policy});
  for (const DropPolicy policy : kPolicies)
    for (const int32_t experts : {1025, 65536})
      cases.push_back({.sizes = {10000, 7, experts, 7}, .hidden = 0, .policy = policy});
  sweep_plans(cases);
}

TEST_F(DevicePlans, choices_before_tokens) {
  std::vector<Case> cases;
  for (const Sizes& sizes : {Sizes{1, 9, 5, 2}, Sizes{3, 7, 5, 4}, Sizes{1000, 1, 5, 150}, Sizes{3001, 33, 70, 900}})
    cases.push_back({.sizes = sizes, .hidden = 0, .policy = DropPolicy::choice_order});
  sweep_plans(cases);
}

TEST_F(DevicePlans, every_id_type_policy_and_priority_dtype) {
  std::vector<Case> cases;
  for (const IdType ids : kIdTypes)
    for (const DropPolicy policy : kPolicies)
      for (const DType priority : kFloats) {
        if (policy != DropPolicy::by_weight && priority != DType::f32) continue;
        for (const int64_t tokens : {40, 409, 14000}) {
          const DType rows = priority == DType::f64 ? DType::f64 : DType::f32;
          cases.push_back({.sizes = {tokens, 5, 100, 60},
                           .hidden = 0,
                           .row_type = rows,
                           .weight_type = priority,
                           .id_type = ids,
                           .policy = policy,
                           .offset_bytes = 1});
        }
      }
  sweep_plans(cases);
}

TEST_F(DevicePlans, one_expert_that_takes_all) {
  std::vector<Case> cases;
  for (const DropPolicy policy : kPolicies)
    for (const Routing routing : {Routing::all_first, Routing::all_last, Routing::all_masked, Routing::round_robin})
      for (const int32_t experts : {1, 128, 1024, 3000})
        cases.push_back({.sizes = {9000, 4, experts, 5000}, .hidden = 0, .policy = policy, .routing = routing});
  sweep_plans(cases);
}

TEST_F(DevicePlans, a_million_ids) {
  std::vector<Case> cases;
  for (const DropPolicy policy : kPolicies)
    for (const int32_t experts : {8, 257, 4096})
      cases.push_back({.sizes = {131072, 8, experts, 500}, .hidden = 0, .policy = policy});
  sweep_plans(cases);
}

struct WrongId {
  IdType type;
  int64_t value;
};

constexpr WrongId kWrongIds[] = {
    {IdType::i8, -2},          {IdType::i8, 127},  {IdType::u8, 255},         {IdType::u16, 65535},
    {IdType::i16, 100},        {IdType::i32, 100}, {IdType::i32, 2147483647}, {IdType::i32, -2147483647 - 1},
    {IdType::i64, 4294967295}, {IdType::i64, -2},  {IdType::i64, 4294967296}, {IdType::i64, -4294967297},
};

/// The plan of `c` when the ids at these places are out of range.
void expect_masked(const Case& c, const std::vector<size_t>& places, int64_t wrong, cudaStream_t stream) {
  Problem p(c);
  std::vector<int64_t> raw = p.ids;
  for (const size_t a : places) {
    raw[a] = wrong;
    p.ids[a] = -1;
  }
  const IdArray array(raw, c.id_type);
  p.plan = oracle::plan_of(oracle::buckets(p.ids, c.sizes, c.policy, p.priority.values()), c.sizes);
  const OnDevice d(p, stream);
  d.id_bytes.put(array.view().data);
  const DevicePlan made(c.sizes);
  plan(d.ids(), c.policy, d.priority_view(), made.view(), d.workspace.with(d.context));
  EXPECT_TRUE(made.same(p.plan));
  const auto count = static_cast<int64_t>(places.size()), first = static_cast<int64_t>(places.front());
  EXPECT_EQ(made.status(), (std::array<int64_t, 3>{count, first, wrong}));
  const auto fault = check(made.view(), d.context);
  ASSERT_TRUE(fault.has_value());
  EXPECT_STREQ(fault->check, "expert_id_range");
  EXPECT_EQ(fault->position, first);
  EXPECT_EQ(fault->value, wrong);
  EXPECT_EQ(fault->limit, c.sizes.num_experts);
  PlanView no_status = made.view();
  no_status.status = nullptr;
  plan(d.ids(), c.policy, d.priority_view(), no_status, d.workspace.with(d.context));
  EXPECT_TRUE(made.same(p.plan)) << "without a status";
}

TEST_F(DevicePlans, ids_out_of_range_count_as_masked_and_are_told_in_the_status) {
  const Stream stream;
  for (const WrongId& wrong : kWrongIds)
    for (const DropPolicy policy : kPolicies)
      for (const int64_t tokens : {100, 20000}) {
        const Case c = {.sizes = {tokens, 3, 100, 40}, .hidden = 0, .id_type = wrong.type, .policy = policy};
        SCOPED_TRACE(describe(c) + " wrong id " + std::to_string(wrong.value));
        const auto count = static_cast<size_t>(c.sizes.assignments());
        expect_masked(c, {count / 3, count / 3 + 1, count - 1}, wrong.value, stream);
        expect_masked(c, {count - 1}, wrong.value, stream);
        if (HasFailure()) return;
      }
}

TEST_F(DevicePlans, all_ids_may_be_out_of_range) {
  const Stream stream;
  for (const DropPolicy policy : kPolicies)
    for (const int32_t experts : {100, 2000})
      for (const int64_t tokens : {100, 20000}) {
        const Case c = {.sizes = {tokens, 3, experts, 40}, .hidden = 0, .policy = policy};
        SCOPED_TRACE(describe(c));
        std::vector<size_t> places(static_cast<size_t>(c.sizes.assignments()));
        for (size_t a = 0; a < places.size(); ++a) places[a] = a;
        expect_masked(c, places, 70000, stream);
      }
}

TEST_F(DevicePlans, a_broken_plan_is_found_as_on_the_host) {
  const Problem p(Case{.sizes = {50, 3, 7, 20}});
  const Stream stream;
  const OnDevice d(p, stream);
  EXPECT_FALSE(check(d.plan.view(), d.context).has_value());
  oracle::Plan broken = p.plan;
  std::swap(broken.indices[0], broken.indices[1]);
  broken.row_of_assignment[4] = 6;
  const auto on_host = check(view_of(broken));
  d.plan.put(broken);
  const auto on_device = check(d.plan.view(), d.context);
  ASSERT_TRUE(on_host.has_value());
  ASSERT_TRUE(on_device.has_value());
  EXPECT_EQ(describe(*on_device), describe(*on_host));
  const Bins bins = {d.plan.view().indices, nullptr, 3, d.plan.view().bins, 7};
  EXPECT_TRUE(check_bins(bins, p.c.sizes, d.context).has_value()) << "bins end at another count";
}

/// plan_from_bins on `bins`: nothing is written but the plan, and every row is one of y or -1.
void expect_rows_in_range(const OnDevice& d, const Bins& bins) {
  const Sizes& s = d.p.c.sizes;
  const DevicePlan made(s);
  plan_from_bins(bins, made.view(), d.context);
  EXPECT_TRUE(made.guards_intact());
  const oracle::Plan out = made.fetched();
  const auto outside = [](const std::vector<int32_t>& values, int64_t limit) {
    return std::count_if(values.begin(), values.end(), [&](int32_t value) { return value < -1 || value >= limit; });
  };
  EXPECT_EQ(outside(out.row_of_assignment, s.expert_rows()), 0);
  EXPECT_EQ(outside(out.indices, s.assignments()), 0);
}

TEST_F(DevicePlans, bins_that_make_no_sense_make_no_address) {
  const Problem p(Case{.sizes = {50, 3, 7, 20}});
  const Stream stream;
  const OnDevice d(p, stream);
  oracle::Plan broken = p.plan;
  broken.indices[0] = 2147483647;
  broken.indices[3] = -5;
  broken.indices[7] = 150;
  broken.indices[9] = broken.indices[10];
  d.plan.put(broken);
  const PlanView view = d.plan.view();
  expect_rows_in_range(d, {view.indices, view.bin_ids, p.plan.bins.back(), view.bins, 7});
  for (const std::vector<int32_t>& bins : std::vector<std::vector<int32_t>>{
           {0, 0, 0, 0, 0, 0, 0}, {-7, 3, -2147483647, 9, 5, 2147483647, 12}, {2000, 1, 2000, 1, 2000, 1, 2000}}) {
    broken.bins = bins;
    d.plan.put(broken);
    expect_rows_in_range(d, {view.indices, nullptr, 100, view.bins, 7});
    if (HasFailure()) return;
  }
}

TEST_F(DevicePlans, bins_may_be_empty_or_fewer_than_the_assignments) {
  for (const int32_t experts : {1, 7, 70001}) {
    const Problem p(Case{.sizes = {50, 3, experts, 20}, .routing = Routing::all_masked});
    const Stream stream;
    const OnDevice d(p, stream);
    const DevicePlan made(p.c.sizes);
    plan_from_bins({d.plan.view().indices, nullptr, 0, d.plan.view().bins, experts}, made.view(), d.context);
    EXPECT_TRUE(made.same(p.plan)) << experts << " experts";
  }
}

TEST_F(DevicePlans, a_workspace_is_asked_for) {
  const Problem p(Case{.sizes = {5000, 3, 300, 20}, .policy = DropPolicy::by_weight});
  const Stream stream;
  const OnDevice d(p, stream);
  const DevicePlan made(p.c.sizes);
  const auto before = made.all_bytes();
  ASSERT_GT(plan_workspace_bytes(p.c.sizes, p.c.policy, p.c.weight_type, d.context), 0U);
  EXPECT_TRUE(refuses([&] { plan(d.ids(), p.c.policy, d.priority_view(), made.view(), d.context); }, "plan",
                      "the workspace is null, but"));
  Context small = d.workspace.with(d.context);
  --small.workspace_bytes;
  EXPECT_TRUE(
      refuses([&] { plan(d.ids(), p.c.policy, d.priority_view(), made.view(), small); }, "plan", "the workspace has"));
  EXPECT_EQ(made.all_bytes() == before, true) << "a refused call wrote";
}

}  // namespace
}  // namespace test
