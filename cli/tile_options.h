// The options that `tile` and `simulate` share, and the request that they make.
#pragma once

#include <optional>
#include <string>

#include "binmoe/ascend.h"
#include "common.h"

namespace binmoe::cli {

struct TileOptions {
  std::string soc = "910B3", op = "gather", dtype = "bf16", weights_dtype = "f32";
  std::string policy = "token_order", order, family = "ascendc", row_copy;
  bool weighted = false;
  std::optional<int64_t> tokens, hidden_size, num_experts, top_k, expert_capacity;
};

void add_tile_options(CLI::App& command, TileOptions& options);

/// Errors: Failure (usage) for a name that is unknown or a size that is missing. With `sizes`, they come from there.
ascend::TileRequest request_of(const TileOptions& options, const Sizes* sizes = nullptr);

/// Each buffer with a bar, then the budget.
std::string budget_of(const ascend::TilePlan& plan);

/// "[#####     ]": part of whole, `width` characters between the brackets.
std::string bar_of(double share, size_t width);

}  // namespace binmoe::cli
