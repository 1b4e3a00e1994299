// The operations of the cuda backend: host code that picks a kernel by the sizes and launches it. Arrays are in device
// memory; arguments were checked by dispatch. Nothing here allocates, waits, or looks at what arrays hold.
#pragma once

#include "backend.h"
#include "cuda/launch.h"

namespace binmoe::cuda {

size_t plan_workspace_bytes(const Sizes& sizes, DropPolicy policy, DType priority_type);
void plan(const PlanJob& job, const Launcher& launcher);
void plan_from_bins(const PlanFromBinsJob& job, const Launcher& launcher);
void gather(const GatherJob& job, const Launcher& launcher);
void scatter(const ScatterJob& job, const Launcher& launcher);
void wgrad(const WgradJob& job, const Launcher& launcher);
void scatter_backward(const ScatterBackwardJob& job, const Launcher& launcher);

}  // namespace binmoe::cuda
