// Tile plans of the Triton-Ascend kernels in python/binmoe/ascend. The budget is calibrated against the open-source UB
// planner: an upper bound of its figure, within 25 % (tests/triton holds every plan of the models against it).
#pragma once

#include "binmoe/ascend.h"

namespace binmoe::ascend {

/// block_x: a multiple of 32 bytes, also where hidden_size is none; the kernels take what is over as a tail.
/// Errors: no tile that fits, with the bytes wanted and there.
TilePlan triton_plan(const TileRequest& request, Order order);

}  // namespace binmoe::ascend
