// The kernels of src/ascend/kernels on the vector-core model: for each operation, make a tile plan, bind the tensors,
// launch. Used by the backend, by `binmoe simulate` and by the tests.
#pragma once

#include <optional>

#include "ascend/tiling/tile_plan.h"
#include "ascend/vector_core/machine.h"
#include "backend.h"

namespace binmoe::ascend {

/// The model of a chip.
vector_core::Profile profile_of(const Soc& soc);

/// A request for the tile plan of a job; order and soc are the caller's.
TileRequest request_of(const Soc& soc, const GatherJob& job);
TileRequest request_of(const Soc& soc, const ScatterJob& job);
TileRequest request_of(const Soc& soc, const WgradJob& job);
TileRequest request_of(const Soc& soc, const ScatterBackwardJob& job);

/// Launch. The plan is one of request_of's; strides are taken from the job.
void run_gather(vector_core::Machine& machine, const MoverPlan& plan, const GatherJob& job);
void run_scatter(vector_core::Machine& machine, const MoverPlan& plan, const ScatterJob& job);
void run_wgrad(vector_core::Machine& machine, const MoverPlan& plan, const WgradJob& job);
void run_scatter_backward(vector_core::Machine& machine, const MoverPlan& plan, const ScatterBackwardJob& job);

}  // namespace binmoe::ascend
