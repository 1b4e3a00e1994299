// The plan kernels on the vector-core model against the reference backend: six arrays, each byte written once, and UB
// budgets exact to the byte.
#include "plan_problem.h"

namespace binmoe::ascend {
namespace {

TEST(PlanKernels, equal_the_reference_for_every_id_type_and_priority) {
  Case c;
  c.sizes = {61, 3, 16, 9};
  c.routing = Routing::masked_often;
  for (const IdType type : kIdTypes) {
    c.ids = type;
    for (uint64_t seed = 0; seed < 3; ++seed) {
      c.seed = seed;
      check_policies(c);
      if (HasFailure()) return;
    }
  }
}

TEST(PlanKernels, equal_the_reference_for_every_shape_and_number_of_programs) {
  uint64_t seed = 0;
  for (const int32_t top_k : {1, 2, 3, 8, 129})
    for (const int32_t experts : {1, 2, 5, 16, 127, 128, 300, 1025, 4096})
      for (const int32_t programs : {1, 7, 40, 48}) {
        Case c;
        Random random(++seed);
        c.sizes = {random.below(900 / top_k + 2), top_k, experts,
                   static_cast<int32_t>(random.below(2000 / experts + 2))};
        c.ids = kIdTypes[random.below(6)];
        c.routing = static_cast<Routing>(random.below(5));
        c.programs = programs;
        c.seed = seed;
        check_policies(c);
        if (HasFailure()) return;
      }
}

TEST(PlanKernels, take_more_experts_than_UB_holds) {
  for (const int32_t experts : {16320, 16321, 65536, 100003}) {
    Case c;
    c.sizes = {23, 2, experts, 1};
    c.ids = experts <= 65536 ? IdType::u16 : IdType::i64;
    check_policies(c);
    c.routing = Routing::one_expert;
    c.sizes = {70, 1, experts, 69};
    c.programs = 1;
    check_policies(c);
    if (HasFailure()) return;
  }
}

TEST(PlanKernels, tile_experts_and_blocks_where_UB_is_small) {
  uint64_t seed = 100;
  for (const int64_t ub : {kSmallUb, kSmallUb + 4096})
    for (const int32_t experts : {1, 9, 255, 1000, 3001})
      for (const int32_t top_k : {1, 4, 37})
        for (const int32_t programs : {1, 3}) {
          Case c;
          c.sizes = {3000 / top_k, top_k, experts, 3000 / experts + 1};
          c.ub = ub;
          c.programs = programs;
          c.seed = ++seed;
          c.ids = seed % 2 == 0 ? IdType::i64 : IdType::i16;
          check_policies(c);
          if (HasFailure()) return;
        }
}

TEST(PlanKernels, add_up_chunks_whose_totals_stand_in_either_buffer) {
  for (const int64_t ub :
       {6016, 7008, 8000})  // 300 experts are two chunks; the last group of blocks has one row or two
    for (const int64_t tokens : {600, 700, 800}) {
      Case c;
      c.sizes = {tokens, 4, 300, 2};
      c.programs = 1;
      c.ub = ub;
      for (const DropPolicy policy : {DropPolicy::token_order, DropPolicy::choice_order}) {
        c.policy = policy;
        check(c);
      }
      if (HasFailure()) return;
    }
}

TEST(PlanKernels, equal_the_reference_on_a_real_batch) {
  Case c;
  c.sizes = {4096, 8, 128, 320};
  c.programs = 40;
  check_policies(c);
}

TEST(PlanKernels, cut_at_every_capacity_around_the_count) {
  for (const int32_t capacity : {0, 1, 49, 50, 51, 1000}) {
    Case c;
    c.sizes = {100, 4, 8, capacity};  // 50 assignments each
    c.routing = Routing::round_robin;
    check_policies(c);
    c.routing = Routing::one_expert;
    check_policies(c);
    if (HasFailure()) return;
  }
}

TEST(PlanKernels, take_counts_around_the_borders_of_blocks_and_stages) {
  const auto block = plan_tiling({&find_soc("910B3"), {1 << 20, 1, 128, 1}}).experts.block_positions;
  for (const int64_t border :
       {int64_t{8}, int64_t{64}, int64_t{7 * 64}, int64_t{256}, int64_t{1024}, int64_t{2048}, int64_t{block}})
    for (int64_t more = -1; more <= 1; ++more) {
      Case c;
      c.sizes = {border + more, 1, 12, static_cast<int32_t>(border / 12)};
      c.programs = border == 7 * 64 ? 7 : 1;
      c.seed = static_cast<uint64_t>(border + more);
      check_policies(c);
      c.sizes = {(border + more) / 2, 2, 12, static_cast<int32_t>(border / 12)};
      check_policies(c);
      if (HasFailure()) return;
    }
}

TEST(PlanKernels, take_nothing_at_all) {
  for (const Sizes& sizes : {Sizes{0, 1, 1, 0}, Sizes{0, 8, 300, 5}, Sizes{1, 1, 1, 0}, Sizes{1, 300, 3, 7}}) {
    Case c;
    c.sizes = sizes;
    check_policies(c);
    c.routing = Routing::all_masked;
    check_policies(c);
    if (HasFailure()) return;
  }
}

void check_bad_ids(Case c) {
  const int64_t experts = c.sizes.num_experts, wide = int64_t{1} << 32;
  const int64_t of_64_bits[] = {-2, experts, 1000000, wide, -wide, wide + 3, INT64_MIN, INT64_MAX};
  const int64_t of_fewer[] = {experts, experts + 1, largest_id(c.ids), is_signed(c.ids) ? -2 : experts + 2};
  Random random(5);
  std::vector<int64_t> ids = make_ids(c, random), masked = ids;
  for (size_t i = 0; i < ids.size(); i += 4) {
    ids[i] = c.ids == IdType::i64 ? of_64_bits[i / 4 % std::size(of_64_bits)] : of_fewer[i / 4 % std::size(of_fewer)];
    masked[i] = -1;
  }
  for (const DropPolicy policy : kPolicies) {
    c.policy = policy;
    check(c, ids, masked, random);
  }
}

TEST(PlanKernels, mask_an_id_out_of_range_and_compare_it_in_its_own_width) {
  for (const IdType type : kIdTypes) {
    Case c;
    c.sizes = {50, 3, 16, 7};
    c.ids = type;
    check_bad_ids(c);
    c.sizes.num_experts = 3000;  // several tiles: a wrong sum with the tile's first expert would show
    c.ub = kSmallUb;
    if (size_of(type) > 1) check_bad_ids(c);
    if (HasFailure()) return;
  }
}

TEST(PlanKernels, equal_the_reference_in_random_cases) {
  for (uint64_t seed = 1000; seed < 1300; ++seed) {
    Random random(seed);
    Case c;
    const auto top_k = static_cast<int32_t>(1 + random.below(random.below(4) == 0 ? 40 : 9));
    const auto experts = static_cast<int32_t>(1 + random.below(random.below(3) == 0 ? 2000 : 40));
    const int64_t tokens = random.below(1500 / top_k + 2);
    c.sizes = {tokens, top_k, experts, static_cast<int32_t>(random.below(2 * tokens * top_k / experts + 3))};
    c.ids = kIdTypes[random.below(6)];
    c.policy = kPolicies[random.below(3)];
    c.priority = kPriorities[random.below(3)];
    c.routing = static_cast<Routing>(random.below(5));
    c.programs = static_cast<int32_t>(1 + random.below(12));
    c.ub = random.below(2) == 0 ? kSmallUb + random.below(2000) / 32 * 32 : kUb;
    c.seed = seed;
    check(c);
    if (HasFailure()) return;
  }
}

TEST(PlanKernels, overflow_in_the_model_when_UB_has_32_bytes_less) {
  Case c;
  c.sizes = {500, 2, 300, 4};
  c.policy = DropPolicy::by_weight;
  Random random(3);
  const Bytes ids = encode_ids(make_ids(c, random), c.ids);
  const Bytes priorities = make_priorities(c.sizes.assignments(), c.priority, random);
  Arrays out(c.sizes);
  const Soc soc = soc_of(c);
  const PlanJob job{{ids.data(), c.sizes.assignments(), c.ids},
                    c.policy,
                    {priorities.data(), c.sizes.assignments(), c.priority},
                    out.view(c.sizes)};
  const PlanTiling plan = plan_tiling(request_of(soc, job));
  for (const PlanLaunch& launch : plan.launches) {
    Soc smaller = soc;
    smaller.ub_limit_bytes = launch.ub_bytes - 32;
    Machine machine(profile_of(smaller));
    try {
      run_plan(machine, plan, job);
      ADD_FAILURE() << launch.kernel << " did not overflow";
    } catch (const vector_core::ModelFault& fault) {
      EXPECT_EQ(fault.rule, vector_core::rule::kOverflow) << fault.what();
    }
  }
}

}  // namespace
}  // namespace binmoe::ascend
