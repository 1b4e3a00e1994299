// The tile plan of the plan kernels: blocks of assignments, experts at a time, and the exact UB budget of each launch.
#pragma once

#include <string>
#include <vector>

#include "ascend/kernels/plan_tile.h"
#include "ascend/tiling/tile_plan.h"

namespace binmoe::ascend {

struct PlanRequest {
  const Soc* soc = nullptr;
  Sizes sizes;  ///< T*K and E*C below 2^31
  IdType ids = IdType::i32;
  DropPolicy policy = DropPolicy::token_order;
  DType priority = DType::f32;  ///< by_weight: f32, bf16 or f16
};

/// Kernels of one kind, in the order of their first launch.
struct PlanLaunch {
  std::string kernel;  ///< as the launch is called
  int32_t launches = 1;
  std::vector<TileBuffer> buffers;  ///< one for one with InitBuffer
  int64_t ub_bytes = 0;
};

struct PlanTiling {
  PlanRequest request;
  int32_t num_programs = 0;
  binmoe_ascend::PlanTile experts;  ///< the pass by expert, the last one
  binmoe_ascend::PlanTile digits;   ///< by_weight: a pass by digit; key_shift is the caller's
  binmoe_ascend::PlanTile records;  ///< by_weight: the making of the records
  int32_t digit_passes = 0;
  std::vector<PlanLaunch> launches;
  int64_t ub_bytes = 0;  ///< the most of any launch
  int64_t ub_limit_bytes = 0;
  int64_t workspace_bytes = 0;  ///< of global memory
};

/// Errors: sizes; a priority that the kernels do not take; UB too small (with the bytes wanted and there).
PlanTiling plan_tiling(const PlanRequest& request);

/// Bytes of the tables of one counting pass.
struct PlanTables {
  int64_t counts, bases, starts, sums;
  int64_t all() const { return counts + bases + starts + sums; }
};
PlanTables plan_tables(const binmoe_ascend::PlanTile& tile);

}  // namespace binmoe::ascend
