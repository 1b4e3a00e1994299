// Tile plans: never above a chip's limit, exact to the byte against the kernels on the model, refusals that say why.
#include <cmath>
#include <set>

#include "tiling_support.h"

namespace test {
namespace {

constexpr int64_t kVectorBytes = 255 * 256;  // of one vector instruction

/// The row in one tile, or multiples of 32 bytes; of 512 where the row has two of them.
void check_columns(const TilePlan& plan) {
  const TileRequest& r = plan.request;
  if (plan.block_x == r.hidden_size) return;
  const int64_t row = r.hidden_size * size_of(r.rows), tile = plan.block_x * size_of(r.rows);
  EXPECT_GT(plan.block_x, 0);
  EXPECT_LT(plan.block_x, r.hidden_size);
  EXPECT_EQ(tile % (row >= 1024 ? 512 : 32), 0) << tile;
}

void check_plan(const ascend::MoverPlan& plan) {
  const TileRequest& r = plan.request;
  SCOPED_TRACE(describe(r));
  check_budget(plan);
  check_columns(plan);
  EXPECT_EQ(plan.ub_limit_bytes, r.soc->ub_limit_bytes);
  EXPECT_EQ(plan.num_programs, r.soc->vector_cores);
  EXPECT_EQ(plan.items, plan.order == Order::expert ? r.tokens * r.top_k : r.tokens);
  EXPECT_GE(plan.items_per_block, 1);
  EXPECT_GE(plan.sub_block_size, 1);
  EXPECT_LE(plan.sub_block_size, binmoe_ascend::kMaxSlotRows);
  EXPECT_TRUE(std::isfinite(plan.estimate_us) && plan.estimate_us > 0) << plan.estimate_us;
  const binmoe_ascend::MoverTile& tile = plan.mover;
  EXPECT_EQ(tile.row_pitch, ascend::round_up(plan.block_x * size_of(r.rows), 32));
  EXPECT_GE(int64_t{tile.num_tiles} * plan.block_x, r.hidden_size);
  EXPECT_LT(int64_t{tile.num_tiles - 1} * plan.block_x, r.hidden_size);
  const bool computes = plan.request.op != Op::gather || plan.request.weights;
  EXPECT_TRUE(!computes || plan.block_x * 4 <= kVectorBytes) << plan.block_x;  // in f32 one instruction takes a tile
  if (tile.num_tiles == 1 || r.hidden_size * 4 > kVectorBytes) return;
  // A row is cut only where the smallest pipeline of whole rows does not fit.
  const ascend::MoverPlan whole = ascend::shape(r, plan.order, r.hidden_size, {3, 2, 1});
  EXPECT_GT(sum_of(whole.buffers), r.soc->ub_limit_bytes);
}

/// False where it was refused.
bool check_request(const TileRequest& r) {
  try {
    check_plan(ascend::mover_plan(r));
    return true;
  } catch (const Error& error) {
    check_refusal(r, error, r.soc->ub_limit_bytes);
    return false;
  }
}

TileRequest random_request(uint64_t seed) {
  constexpr int32_t kExperts[] = {1, 8, 160, 256, 4097, 65536}, kTopK[] = {1, 2, 3, 8, 9, 33, 129, 300, 2000, 100000};
  constexpr int64_t kTokens[] = {0, 1, 7, 4096, (int64_t{1} << 31) + 5, int64_t{1} << 40};
  constexpr int64_t kCapacity[] = {0, 1, 100, 1 << 20, INT32_MAX};
  Random random(seed);
  const auto any = [&](const auto& list) { return list[random.below(static_cast<int64_t>(std::size(list)))]; };
  TileRequest r = request_for(any(kMovers));
  r.soc = &ascend::socs()[static_cast<size_t>(random.below(static_cast<int64_t>(ascend::socs().size())))];
  r.rows = any(kDeviceFloats);
  if (random.below(2) == 0) r.weights = any(kDeviceFloats);
  r.dw = any(kDeviceFloats);
  r.hidden_size = random.below(2) == 0 ? any(kHidden) : 1 + random.below(40000);
  r.num_experts = any(kExperts);
  r.top_k = any(kTopK);
  r.tokens = any(kTokens);
  r.expert_capacity = any(kCapacity);
  return r;
}

TEST(Tiling, fits_any_request_on_any_chip_or_says_what_is_missing) {
  int refused = 0;
  constexpr uint64_t kRequests = 12000;
  for (uint64_t seed = 0; seed < kRequests; ++seed) {
    refused += !check_request(random_request(seed));
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, 100);
  EXPECT_LT(refused, static_cast<int>(kRequests) / 2);
}

TEST(Tiling, cuts_rows_of_every_length_into_aligned_tiles) {
  for (const Mover mover : kMovers)
    for (const DType rows : kDeviceFloats)
      for (int64_t hidden = 1; hidden <= 40000; hidden += hidden < 600 ? 1 : 41) {
        TileRequest r = request_for(mover);
        r.rows = rows;
        r.hidden_size = hidden;
        if (hidden % 2 == 1) r.weights = DType::f32;
        EXPECT_TRUE(check_request(r)) << describe(r);
        if (HasFailure()) return;
      }
}

TEST(Tiling, refuses_what_no_tile_makes_fit) {
  TileRequest r = request_for(Mover::gather_by_token);
  r.top_k = 100000;  // the map of a token alone is 400 KB
  EXPECT_FALSE(check_request(r));
  r.order = Order::expert;
  r.num_experts = 65536;
  EXPECT_TRUE(check_request(r));
}

TEST(Tiling, counts_the_bytes_that_the_kernels_take) {
  std::set<int32_t> tiles, slots, slot_rows;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Random random(seed);
    MoverCase c;
    const auto top_k = static_cast<int32_t>(1 + random.below(random.below(3) == 0 ? 100 : 9));
    c.sizes = {1 + random.below(30 / top_k + 2), top_k, static_cast<int32_t>(1 + random.below(6)), 3};
    c.hidden = random.below(2) == 0 ? kHidden[random.below(std::size(kHidden))] : 1 + random.below(3000);
    c.rows = kDeviceFloats[random.below(3)];
    if (random.below(2) == 0) c.weights = kDeviceFloats[random.below(3)];
    c.dw = kDeviceFloats[random.below(3)];
    const MoverProblem p(c, random_ids(c.sizes, random), MoverProblem::Values::any_bits);
    const Soc small = small_chip(2, (48 + random.below(100)) * kKib);
    const Soc& soc = seed % 2 == 0 ? small : ascend::socs()[seed % ascend::socs().size()];
    for (const Mover mover : kMovers) {
      const ascend::MoverPlan plan = ascend::mover_plan(request_of(p, mover, soc));
      SCOPED_TRACE(describe(plan.request));
      tiles.insert(plan.mover.num_tiles);
      slots.insert(plan.mover.slots);
      slot_rows.insert(plan.mover.slot_rows);
      vector_core::Profile profile = ascend::profile_of(soc);
      profile.ub_bytes = plan.ub_bytes;  // to the byte
      vector_core::Machine machine(profile);
      MoverOutput output = empty_output(p, mover);
      run_on_model(machine, plan, p, mover, output);
      EXPECT_EQ(machine.launches().at(0).ub_high_water, plan.ub_bytes);

      profile.ub_bytes -= 32;
      vector_core::Machine smaller(profile);
      MoverOutput unused = empty_output(p, mover);
      try {
        run_on_model(smaller, plan, p, mover, unused);
        ADD_FAILURE() << "32 bytes less did not overflow";
      } catch (const vector_core::ModelFault& fault) {
        EXPECT_EQ(fault.rule, vector_core::rule::kOverflow) << fault.what();
      }
    }
    if (HasFailure()) return;
  }
  EXPECT_GE(tiles.size(), 4u);
  EXPECT_GE(slots.size(), 2u);
  EXPECT_GE(slot_rows.size(), 4u);
}

TEST(Tiling, chooses_the_order_with_the_smaller_estimate) {
  for (const int64_t hidden : {64, 2048, 7168})
    for (const int32_t top_k : {2, 3, 8}) {
      TileRequest r = request_for(Mover::gather_by_token);
      r.hidden_size = hidden;
      r.top_k = top_k;
      r.order.reset();
      const TilePlan chosen = ascend::tile_plan(r);
      for (const Order order : {Order::token, Order::expert}) {
        r.order = order;
        EXPECT_LE(chosen.estimate_us, ascend::tile_plan(r).estimate_us) << describe(r);
      }
    }
}

TEST(Tiling, estimates_more_time_for_more_tokens_and_longer_rows) {
  for (const Mover mover : kMovers) {
    TileRequest r = request_for(mover);
    double last = 0;
    for (const int64_t tokens : {100, 1000, 10000, 100000}) {
      r.tokens = tokens;
      r.expert_capacity = tokens / 8;
      EXPECT_GT(ascend::tile_plan(r).estimate_us, last) << describe(r);
      last = ascend::tile_plan(r).estimate_us;
    }
    r.hidden_size *= 2;
    EXPECT_GT(ascend::tile_plan(r).estimate_us, last) << describe(r);
  }
}

TEST(Tiling, plans_the_plan_kernels_too) {
  for (const Soc& soc : ascend::socs())
    for (const int32_t experts : {1, 64, 257, 65536}) {
      TileRequest r = request_for(Mover::scatter);
      r.soc = &soc;
      r.op = Op::plan;
      r.num_experts = experts;
      const TilePlan plan = ascend::tile_plan(r);
      SCOPED_TRACE(describe(r));
      check_budget(plan);
      EXPECT_EQ(plan.num_programs, soc.vector_cores);
      EXPECT_EQ(plan.items, r.tokens * r.top_k);
    }
  TileRequest r = request_for(Mover::scatter);
  r.op = Op::plan;
  r.tokens = int64_t{1} << 30;
  EXPECT_TRUE(refuses([&] { ascend::tile_plan(r); }, "tile", "less than 2147483648"));
}

TEST(Tiling, refuses_sizes_and_dtypes_that_the_kernels_do_not_take) {
  const auto refused = [](const std::function<void(TileRequest&)>& change, const char* part) {
    TileRequest r = request_for(Mover::scatter_backward);
    change(r);
    return refuses([&] { ascend::tile_plan(r); }, "tile", part);
  };
  EXPECT_TRUE(refused([](TileRequest& r) { r.soc = nullptr; }, "a SoC is needed"));
  EXPECT_TRUE(refused([](TileRequest& r) { r.tokens = -1; }, "must not be negative"));
  EXPECT_TRUE(refused([](TileRequest& r) { r.hidden_size = -1; }, "must not be negative"));
  EXPECT_TRUE(refused([](TileRequest& r) { r.expert_capacity = -1; }, "must not be negative"));
  EXPECT_TRUE(refused([](TileRequest& r) { r.top_k = 0; }, "top_k is 0"));
  EXPECT_TRUE(refused([](TileRequest& r) { r.num_experts = 0; }, "num_experts is 0"));
  EXPECT_TRUE(refused([](TileRequest& r) { r.rows = DType::f64; }, "rows of f64"));
  EXPECT_TRUE(refused([](TileRequest& r) { r.rows = DType::bytes; }, "are not taken; there are: f32, bf16, f16"));
  EXPECT_TRUE(refused([](TileRequest& r) { r.weights = DType::f64; }, "weights of f64"));
  EXPECT_TRUE(refused([](TileRequest& r) { r.dw = DType::f64; }, "dw of f64"));
  EXPECT_TRUE(refused([](TileRequest& r) { r.order = Order::token; }, "only gather has orders"));
  EXPECT_TRUE(refused(
      [](TileRequest& r) {
        r.op = Op::plan;
        r.family = Family::triton;
      },
      "a plan has no Triton kernel"));
}

TEST(Socs, hold_the_figures_of_the_documents) {
  std::set<std::string> names;
  for (const Soc& soc : ascend::socs()) {
    const std::string name = soc.name, generation = soc.generation;
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_TRUE(generation == "A2" || generation == "A3" || generation == "950") << generation;
    const bool is_950 = generation == "950";
    EXPECT_EQ(soc.ub_bytes, is_950 ? 256 * kKib : 192 * kKib) << name;
    EXPECT_EQ(soc.ub_limit_bytes, is_950 ? 248 * kKib : 192 * kKib - 256 - 8 * kKib) << name;
    EXPECT_NE(std::string(soc.source), "") << name;
    EXPECT_EQ(&ascend::find_soc(name), &soc);
    EXPECT_EQ(&ascend::find_soc("Ascend" + name), &soc);
  }
  EXPECT_EQ(names.size(), 16u);
  EXPECT_EQ(ascend::find_soc("910B1").vector_cores, 48);
  EXPECT_EQ(ascend::find_soc("910B3").vector_cores, 40);
  EXPECT_EQ(ascend::find_soc("910_9372").vector_cores, 40);
  EXPECT_EQ(ascend::find_soc("910_9382").vector_cores, 48);
  EXPECT_EQ(ascend::find_soc("950_957x").vector_cores, 56);
  EXPECT_EQ(ascend::find_soc("950_959x").vector_cores, 72);
}

TEST(Socs, are_found_by_name_alone) {
  for (const char* name : {"", "910", "910b3", "Ascend", "910B3 "})
    EXPECT_TRUE(refuses([&] { ascend::find_soc(name); }, "tile", "there are: 910B1, 910B2, ")) << name;
}

}  // namespace
}  // namespace test
