// The plan kernels on the vector-core model.
#pragma once

#include "ascend/tiling/plan_tile.h"
#include "ascend/vector_core/machine.h"
#include "backend.h"

namespace binmoe::ascend {

PlanRequest request_of(const Soc& soc, const PlanJob& job);

/// Bind the job's arrays and the workspaces (the machine owns these), and launch, in order. An id outside [-1, E)
/// counts as masked here; whoever must refuse it looks before. Errors: as plan_tiling.
void run_plan(vector_core::Machine& machine, const Soc& soc, const PlanJob& job);
void run_plan(vector_core::Machine& machine, const PlanTiling& plan, const PlanJob& job);

}  // namespace binmoe::ascend
