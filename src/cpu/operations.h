// The operations of the cpu backend; one file each.
#pragma once

#include "backend.h"

namespace binmoe::cpu {

size_t plan_workspace_bytes(const Sizes&, DropPolicy, DType priority_type, const Executor&);
std::optional<Fault> plan(const PlanJob&, const Resources&);
void plan_from_bins(const PlanFromBinsJob&, const Resources&);
void gather(const GatherJob&, const Resources&);
void scatter(const ScatterJob&, const Resources&);
void wgrad(const WgradJob&, const Resources&);
void scatter_backward(const ScatterBackwardJob&, const Resources&);

}  // namespace binmoe::cpu
