// What the sweeps do not ask of plan: ids at the ends of their types, bins from elsewhere, workspaces, loads.
#include <algorithm>

#include "problem.h"

namespace test {
namespace {

Plan plan_on(const Variant& variant, const std::vector<int64_t>& ids, IdType type, const Sizes& sizes,
             DropPolicy policy = DropPolicy::token_order, const Weights& priority = {}) {
  const IdArray array(ids, type);
  return make_plan(array.view(), sizes, policy, priority, variant.context());
}

oracle::Plan oracle_plan(const std::vector<int64_t>& ids, const Sizes& sizes,
                         DropPolicy policy = DropPolicy::token_order, const oracle::Matrix& priority = {}) {
  return oracle::plan_of(oracle::buckets(ids, sizes, policy, priority), sizes);
}

TEST(Plan, the_largest_id_of_each_type_is_an_expert_where_there_are_enough) {
  for (const Variant& variant : variants())
    for (const IdType type : {IdType::i8, IdType::u8, IdType::i16, IdType::u16}) {
      SCOPED_TRACE(variant.name + ", ids " + name_of(type));
      const int64_t last = largest_id(type);
      const Sizes sizes = {4, 1, static_cast<int32_t>(last + 1), 2};
      const std::vector<int64_t> ids = {last, 0, last, last};
      EXPECT_TRUE(same_plan(plan_on(variant, ids, type, sizes), oracle_plan(ids, sizes)));
    }
}

TEST(Plan, an_id_is_compared_in_its_own_width) {
  const struct {
    IdType type;
    int64_t id;
    int32_t num_experts;
    int64_t read_as;
  } cases[] = {
      {IdType::u8, 255, 255, 255},
      {IdType::u16, 65535, 5, 65535},
      {IdType::i64, int64_t{1} << 32, 5, int64_t{1} << 32},
      {IdType::i64, (int64_t{1} << 32) - 1, 5, (int64_t{1} << 32) - 1},
      {IdType::i64, -(int64_t{1} << 32), 5, -(int64_t{1} << 32)},
      {IdType::i64, std::numeric_limits<int64_t>::min(), 5, std::numeric_limits<int64_t>::min()},
      {IdType::i64, std::numeric_limits<int64_t>::max(), 5, std::numeric_limits<int64_t>::max()},
      {IdType::i32, std::numeric_limits<int32_t>::min(), 5, std::numeric_limits<int32_t>::min()},
      {IdType::i16, -2, 5, -2},
      {IdType::i8, -128, 5, -128},
  };
  for (const Variant& variant : variants())
    for (const auto& c : cases) {
      SCOPED_TRACE(variant.name + ", ids " + name_of(c.type));
      EXPECT_TRUE(refuses(
          [&] {
            plan_on(variant, {0, 1, c.id, 1}, c.type, {4, 1, c.num_experts, 2});
          },
          "plan",
          "expert_ids[2] is " + std::to_string(c.read_as) + ", but must be in [-1, " + std::to_string(c.num_experts) +
              ")"));
    }
}

TEST(Plan, the_first_bad_id_is_named_and_nothing_is_written) {
  for (const Variant& variant : variants())
    for (const int64_t bad : {int64_t{0}, int64_t{1}, int64_t{4999}, int64_t{9998}, int64_t{9999}}) {
      SCOPED_TRACE(variant.name);
      const Sizes sizes = {5000, 2, 7, 3};
      std::vector<int64_t> ids(10000, 3);
      ids[static_cast<size_t>(bad)] = 7;
      ids[9999] = -2;  // a later one does not matter
      const IdArray array(ids, IdType::i32);
      Plan out(sizes);
      const PlanView view = out.view();
      std::fill_n(view.indices, 3 * (10000 + 7), 12345);
      const int64_t value = bad == 9999 ? -2 : 7;
      try {
        plan(array.view(), DropPolicy::token_order, {}, view, variant.context());
        FAIL() << "the bad id was taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::invalid_data);
        EXPECT_STREQ(error.fault().check, "expert_id_range");
        EXPECT_EQ(error.fault().position, bad);
        EXPECT_EQ(error.fault().value, value);
        EXPECT_EQ(error.fault().limit, 7);
      }
      EXPECT_EQ(std::count(view.indices, view.indices + 3 * (10000 + 7), 12345), 3 * (10000 + 7));
    }
}

TEST(Plan, masked_assignments_take_no_capacity_and_their_weights_no_part) {
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    const Sizes sizes = {6, 1, 2, 2};
    const std::vector<int64_t> ids = {-1, 1, -1, 1, 1, -1};
    Numbers priority(6, DType::f32, Memory::Use::input);
    const double values[] = {1e30, 1, std::nan(""), 3, 2, std::numeric_limits<double>::infinity()};
    for (int i = 0; i < 6; ++i) priority.set(i, values[i]);
    const Plan made = plan_on(variant, ids, IdType::i8, sizes, DropPolicy::by_weight, priority.weights());
    EXPECT_TRUE(same_array("indices", made.indices().data(), {3, 4, 1}));
    EXPECT_TRUE(same_array("row_of_assignment", made.row_of_assignment().data(), {-1, -1, -1, 2, 3, -1}));
  }
}

TEST(Plan, by_weight_compares_numbers_puts_nan_last_and_breaks_ties_by_assignment) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const oracle::Matrix values = {nan, -0.0, 0.0, -infinity, infinity, 0.0, -nan, 0.5, infinity, -0.25, nan};
  const std::vector<int32_t> expected = {4, 8, 7, 1, 2, 5, 9, 3, 0, 6, 10};
  for (const DType type : kFloats)
    for (const Variant& variant : variants_taking({type})) {
      SCOPED_TRACE(variant.name + ", priority " + name_of(type));
      const Sizes sizes = {11, 1, 1, 4};
      Numbers priority(11, type, Memory::Use::input, 1);
      for (int i = 0; i < 11; ++i) priority.set(i, values[static_cast<size_t>(i)]);
      const Plan made =
          plan_on(variant, std::vector<int64_t>(11, 0), IdType::u8, sizes, DropPolicy::by_weight, priority.weights());
      EXPECT_TRUE(same_array("indices", made.indices().data(), expected));
    }
}

TEST(Plan, by_weight_orders_every_16_bit_value_and_neighbours_of_the_wide_ones) {
  for (const DType type : kFloats) {
    const int64_t count = type == DType::f16 || type == DType::bf16 ? 65536 : 4096;
    const Sizes sizes = {count, 1, 3, 100};
    Numbers priority(count, type, Memory::Use::input);
    std::vector<int64_t> ids;
    Random random(3);
    for (int64_t a = 0; a < count; ++a) {
      ids.push_back(random.below(3));
      const double wide = 1.0 + static_cast<double>(random.below(64)) * (type == DType::f64 ? 0x1p-52 : 0x1p-23);
      priority.set(a, count == 65536 ? oracle::decode(static_cast<uint64_t>(a * 40503 % 65536), oracle::format_of(type))
                                     : (random.below(2) == 0 ? wide : -wide));
    }
    const oracle::Plan expected = oracle_plan(ids, sizes, DropPolicy::by_weight, priority.values());
    for (const Variant& variant : variants_taking({type})) {
      SCOPED_TRACE(variant.name + ", priority " + name_of(type));
      EXPECT_TRUE(
          same_plan(plan_on(variant, ids, IdType::i32, sizes, DropPolicy::by_weight, priority.weights()), expected));
    }
  }
}

TEST(Plan, many_assignments_on_several_threads_keep_their_order) {
  for (const DropPolicy policy : kPolicies)
    for (const Routing routing : {Routing::random, Routing::all_last, Routing::round_robin}) {
      const Case c = {
          .sizes = {kThorough ? 20011 : 3011, 6, 61, 1500}, .hidden = 0, .policy = policy, .routing = routing};
      SCOPED_TRACE(describe(c));
      check_plan(Problem(c));
    }
}

TEST(PlanFromBins, any_order_inside_an_expert_is_kept_as_it_stands) {
  const std::vector<int32_t> indices = {5, 0, 2, 9, 1, 7, 3}, bins = {3, 3, 7}, ids = {0, 0, 0, 2, 2, 2, 2};
  const Sizes sizes = {5, 2, 3, 2};
  for (const Variant& variant : variants())
    for (const bool with_ids : {false, true}) {
      SCOPED_TRACE(variant.name);
      const Plan made = make_plan_from_bins({indices.data(), with_ids ? ids.data() : nullptr, 7, bins.data(), 3}, sizes,
                                            variant.context());
      EXPECT_TRUE(same_plan(made, oracle::plan_of({{5, 0, 2}, {}, {9, 1, 7, 3}}, sizes)));
      EXPECT_FALSE(check(made).has_value());
    }
}

TEST(PlanFromBins, faults_of_the_bins_are_refused_and_nothing_is_written) {
  const std::vector<int32_t> bins = {2, 3};
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    const std::vector<int32_t> indices = {0, 1, 1};
    Plan out(Sizes{2, 2, 2, 1});
    const PlanView view = out.view();
    std::fill_n(view.indices, 18, 12345);
    EXPECT_TRUE(refuses(
        [&] {
          plan_from_bins({indices.data(), nullptr, 3, bins.data(), 2}, view, variant.context());
        },
        "plan_from_bins", "indices[2] is 1, which stands at 1 already"));
    EXPECT_EQ(std::count(view.indices, view.indices + 18, 12345), 18);
  }
}

TEST(Workspace, the_exact_size_is_enough_and_one_byte_less_is_refused) {
  for (const DType type : kFloats)
    for (const DropPolicy policy : kPolicies)
      for (const Variant& variant : variants_taking({type})) {
        const Problem p(Case{.sizes = {1500, 3, 33, 100}, .hidden = 0, .weight_type = type, .policy = policy});
        SCOPED_TRACE(variant.name + ": " + describe(p.c));
        const size_t wanted = plan_workspace_bytes(p.c.sizes, policy, type, variant.context());
        for (const int64_t offset : {0, 1}) {
          Memory workspace(static_cast<int64_t>(wanted), offset, Memory::Use::output);
          Context context = variant.context();
          context.workspace = workspace.data();
          context.workspace_bytes = wanted;
          Plan made(p.c.sizes);
          plan(p.id_array.view(), policy, p.priority_view(), made.view(), context);
          EXPECT_TRUE(same_plan(made, p.plan));
          EXPECT_TRUE(workspace.guards_intact()) << "bytes outside the workspace were written";
          if (wanted == 0) continue;
          context.workspace_bytes = wanted - 1;
          EXPECT_TRUE(refuses([&] { plan(p.id_array.view(), policy, p.priority_view(), made.view(), context); }, "plan",
                              "the workspace has " + std::to_string(wanted - 1) + " bytes, but " +
                                  std::to_string(wanted) + " are needed"));
        }
      }
}

TEST(Load, counts_kept_dropped_masked_and_empty_rows) {
  const std::vector<int64_t> ids = {0, 0, 0, -1, 2, 0, -1, 2};
  const IdArray array(ids, IdType::i16);
  const Load load = load_of(make_plan(array.view(), {4, 2, 3, 3}));
  EXPECT_EQ(load.kept, 5);
  EXPECT_EQ(load.dropped, 1);
  EXPECT_EQ(load.masked, 2);
  EXPECT_EQ(load.empty_rows, 4);
  EXPECT_DOUBLE_EQ(load.max_over_mean, 2.0);
  const IdArray none({-1, -1}, IdType::i16);
  EXPECT_EQ(load_of(make_plan(none.view(), {1, 2, 3, 3})).max_over_mean, 0.0);
}

TEST(OwningPlan, shows_its_arrays_cut_to_what_they_hold) {
  EXPECT_EQ(Plan().count(), 0);
  const IdArray array({1, -1, 0, 1}, IdType::i64);
  const Plan made = make_plan(array.view(), {2, 2, 2, 1});
  EXPECT_EQ(made.count(), 3);
  EXPECT_EQ(made.indices().size(), 3u);
  EXPECT_EQ(made.bin_ids().size(), 3u);
  EXPECT_EQ(made.row_of_assignment().size(), 4u);
  EXPECT_EQ(made.bins().size(), 2u);
  EXPECT_EQ(made.sizes(), (Sizes{2, 2, 2, 1}));
  const Plan copied = made;
  EXPECT_TRUE(same_plan(copied, oracle_plan({1, -1, 0, 1}, {2, 2, 2, 1})));
}

}  // namespace
}  // namespace test
