// What the kernels need of a tile plan beside its public part (binmoe/ascend.h).
#pragma once

#include "ascend/kernels/tile.h"
#include "binmoe/ascend.h"

namespace binmoe::ascend {

struct MoverPlan : TilePlan {
  binmoe_ascend::MoverTile mover;  // strides: rows without gaps; the caller sets its own
};

/// As tile_plan, for the Ascend C movers.
MoverPlan mover_plan(const TileRequest& request);

}  // namespace binmoe::ascend
