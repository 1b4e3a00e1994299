// Tile plans of the Triton-Ascend kernels: by the rules of docs/ascend.md, section 3; not yet held against the
// compiler.
#pragma once

#include "binmoe/ascend.h"

namespace binmoe::ascend {

/// Errors: no tile that fits, with the bytes wanted and there.
TilePlan triton_plan(const TileRequest& request, Order order);

}  // namespace binmoe::ascend
