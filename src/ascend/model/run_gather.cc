#include "ascend/kernels/gather_by_expert.h"
#include "ascend/kernels/gather_by_token.h"
#include "ascend/model/bind.h"

namespace binmoe::ascend {

void run_gather(vector_core::Machine& machine, const MoverPlan& plan, const GatherJob& job) {
  using namespace binmoe_ascend;
  MoverTile tile = plan.mover;
  tile.token_stride = job.x.stride;
  tile.expert_row_stride = job.y.stride;
  tile.count = job.plan.bins[job.plan.sizes.num_experts - 1];
  const GM_ADDR kept = bind_kept(machine, job.plan), weights = bind_weights(machine, job.weights);
  const GM_ADDR x = bind_rows(machine, "x", job.x, vector_core::Role::input);
  const GM_ADDR y = bind_rows(machine, "y", job.y, vector_core::Role::output);
  const bool weighted = job.weights.data != nullptr;
  if (plan.order == Order::token) {
    const GM_ADDR map = bind_row_of_assignment(machine, job.plan);
    with_row_type(job.x.type, [&]<class T>() {
      if (weighted)
        launch<GatherByToken<T, true>>(machine, "gather_by_token", plan.num_programs, tile, map, kept, x, weights, y);
      else
        launch<GatherByToken<T, false>>(machine, "gather_by_token", plan.num_programs, tile, map, kept, x, weights, y);
    });
    return;
  }
  const GM_ADDR indices = bind_map(machine, "indices", job.plan.indices, tile.count);
  const GM_ADDR bins = bind_map(machine, "bins", job.plan.bins, job.plan.sizes.num_experts);
  with_row_type(job.x.type, [&]<class T>() {
    if (weighted)
      launch<GatherByExpert<T, true>>(machine, "gather_by_expert", plan.num_programs, tile, indices, bins, kept, x,
                                      weights, y);
    else
      launch<GatherByExpert<T, false>>(machine, "gather_by_expert", plan.num_programs, tile, indices, bins, kept, x,
                                       weights, y);
  });
}

}  // namespace binmoe::ascend
