// Tile plans of the Triton-Ascend kernels. tests/triton holds their budgets against the compiler's own planner.
#include <algorithm>
#include <map>

#include "tiling_support.h"

namespace test {
namespace {

TileRequest triton_request(Mover mover, int64_t hidden, DType rows) {
  TileRequest r = request_for(mover);
  r.family = Family::triton;
  r.row_copy = RowCopy::element_insert;  // else the planner picks one for each size
  r.hidden_size = hidden;
  r.rows = rows;
  return r;
}

constexpr RowCopy kRowCopies[] = {RowCopy::indexed_load, RowCopy::element_insert, RowCopy::index_select};

void check_triton_plan(const TilePlan& plan) {
  const TileRequest& r = plan.request;
  check_budget(plan);
  EXPECT_EQ(plan.ub_limit_bytes, r.soc->ub_bytes - 16 * kKib);
  EXPECT_EQ(plan.num_programs, r.soc->vector_cores);
  EXPECT_GT(plan.block_x, 0);
  EXPECT_EQ(plan.block_x * size_of(r.rows) % 32, 0) << plan.block_x;
  EXPECT_GE(plan.items_per_block, 1);
  const bool by_expert = r.op == Op::gather && plan.order == Order::expert;
  EXPECT_GE(plan.sub_block_size, by_expert ? 2 : 1);  // the compiler takes no index vector of one lane
  EXPECT_TRUE(!by_expert || plan.items_per_block == plan.sub_block_size);
  EXPECT_TRUE(r.op == Op::gather || plan.sub_block_size == r.top_k);  // 4 here: a token's choices in one tile
  for (const TileBuffer& buffer : plan.buffers)  // the compiler doubles what a loop loads or stores
    if (buffer.name.ends_with("loaded") || buffer.name.ends_with("stored")) {
      EXPECT_EQ(buffer.count, 2) << buffer.name;
    }
}

TEST(TritonTiling, stays_within_UB_less_the_reserve_of_the_compiler) {
  for (const Soc& soc : ascend::socs())
    for (const Mover mover : kMovers)
      for (const DType rows : kDeviceFloats)
        for (const RowCopy row_copy : kRowCopies)
          for (const int64_t hidden : kHidden) {
            TileRequest r = triton_request(mover, hidden, rows);
            r.soc = &soc;
            r.row_copy = row_copy;
            if (hidden % 2 == 1) r.weights = DType::bf16;
            SCOPED_TRACE(describe(r));
            check_triton_plan(ascend::tile_plan(r));
            if (HasFailure()) return;
          }
}

TEST(TritonTiling, cuts_a_row_evenly_where_it_can) {
  for (const Mover mover : kMovers)
    for (const DType rows : kDeviceFloats)
      for (const int64_t hidden : {2048, 2880, 4096, 5120, 7168}) {
        const TileRequest r = triton_request(mover, hidden, rows);
        EXPECT_EQ(hidden % ascend::tile_plan(r).block_x, 0) << describe(r);
      }
}

TEST(TritonTiling, takes_a_row_of_no_whole_lines_as_a_tail) {
  for (const Mover mover : kMovers) {
    const TilePlan plan = ascend::tile_plan(triton_request(mover, 70, DType::bf16));
    EXPECT_EQ(plan.block_x, 80) << name_of(mover);  // one tile, all of it tail
    const auto is_tail = [](const TileBuffer& buffer) { return buffer.name.starts_with("tail: "); };
    EXPECT_TRUE(std::any_of(plan.buffers.begin(), plan.buffers.end(), is_tail)) << name_of(mover);
  }
}

TEST(TritonTiling, takes_more_bytes_for_wider_tiles_of_the_same_kind) {
  for (const Mover mover : kMovers)
    for (const DType rows : kDeviceFloats) {
      std::map<std::pair<int64_t, bool>, std::map<int64_t, int64_t>> bytes;  // by rows and tail, then by columns
      for (int64_t hidden = 1; hidden <= 8192; hidden += 61) {
        const TilePlan plan = ascend::tile_plan(triton_request(mover, hidden, rows));
        bytes[{plan.sub_block_size, hidden % plan.block_x != 0}][plan.block_x] = plan.ub_bytes;
      }
      for (const auto& [kind, by_columns] : bytes) {
        int64_t last = 0;
        for (const auto& [columns, ub] : by_columns) {
          EXPECT_GE(ub, last) << name_of(mover) << " " << kind.first << " x " << columns;
          last = ub;
        }
      }
    }
}

// Figures of the open-source planner (ascendnpu-ir 1.2.0) for the kernels in python/binmoe/ascend; tests/triton asks it
// again for every plan of the models.
TEST(TritonTiling, gives_the_compilers_figures_for_tiles_without_weights_to_the_byte) {
  const auto budget = [](Mover mover, int64_t hidden, DType rows, int32_t top_k) {
    TileRequest r = triton_request(mover, hidden, rows);
    r.top_k = top_k;
    return ascend::tile_plan(r).ub_bytes;
  };
  EXPECT_EQ(budget(Mover::gather_by_expert, 4096, DType::bf16, 2), 98368);  // 4 x 4096
  EXPECT_EQ(budget(Mover::gather_by_expert, 7168, DType::f32, 8), 172096);  // 4 x 3584
  EXPECT_EQ(budget(Mover::gather_by_token, 2880, DType::bf16, 4), 104192);  // 16 x 2880
  EXPECT_EQ(budget(Mover::scatter, 5120, DType::bf16, 1), 71808);           // 1 x 5120
}

TEST(TritonTiling, refuses_what_does_not_fit_with_both_numbers_of_bytes) {
  TileRequest r = triton_request(Mover::scatter, 4096, DType::f32);
  r.top_k = 100000;  // the map of a token alone is 400 KB
  try {
    ascend::tile_plan(r);
    FAIL() << "it fits";
  } catch (const Error& error) {
    check_refusal(r, error, r.soc->ub_bytes - 16 * kKib);
  }
}

}  // namespace
}  // namespace test
