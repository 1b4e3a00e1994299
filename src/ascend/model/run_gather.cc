#include "ascend/kernels/gather_by_expert.h"
#include "ascend/kernels/gather_by_token.h"
#include "ascend/model/bind.h"

namespace binmoe::ascend {

namespace {

template <class T, bool kWeighted>
void launch_gather(vector_core::Machine& machine, const MoverPlan& plan, const binmoe_ascend::MoverTile& tile,
                   const GatherJob& job) {
  using namespace binmoe_ascend;
  const GM_ADDR kept = bind_kept(machine, job.plan), weights = bind_weights(machine, job.weights);
  const GM_ADDR x = bind_rows(machine, "x", job.x, vector_core::Role::input);
  const GM_ADDR y = bind_rows(machine, "y", job.y, vector_core::Role::output);
  if (plan.order == Order::token) {
    const GM_ADDR map = bind_row_of_assignment(machine, job.plan);
    launch<GatherByToken<T, kWeighted>>(machine, "gather_by_token", plan.num_programs, tile, map, kept, x, weights, y);
    return;
  }
  const GM_ADDR indices = bind_map(machine, "indices", job.plan.indices, tile.count);
  const GM_ADDR bins = bind_map(machine, "bins", job.plan.bins, job.plan.sizes.num_experts);
  launch<GatherByExpert<T, kWeighted>>(machine, "gather_by_expert", plan.num_programs, tile, indices, bins, kept, x,
                                       weights, y);
}

}  // namespace

void run_gather(vector_core::Machine& machine, const MoverPlan& plan, const GatherJob& job) {
  const int64_t scale = job.x.type == DType::bytes ? job.x.element_bytes : 1;
  binmoe_ascend::MoverTile tile = plan.mover;
  tile.token_stride = job.x.stride * scale;
  tile.expert_row_stride = job.y.stride * scale;
  tile.count = job.plan.bins[job.plan.sizes.num_experts - 1];
  if (job.x.type == DType::bytes) return launch_gather<uint8_t, false>(machine, plan, tile, job);
  with_row_type(job.x.type, [&]<class T>() {
    if (job.weights.data != nullptr)
      launch_gather<T, true>(machine, plan, tile, job);
    else
      launch_gather<T, false>(machine, plan, tile, job);
  });
}

}  // namespace binmoe::ascend
