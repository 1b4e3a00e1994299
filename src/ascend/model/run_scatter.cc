#include "ascend/kernels/scatter.h"
#include "ascend/model/bind.h"

namespace binmoe::ascend {

void run_scatter(vector_core::Machine& machine, const MoverPlan& plan, const ScatterJob& job) {
  using namespace binmoe_ascend;
  MoverTile tile = plan.mover;
  tile.token_stride = job.out.stride;
  tile.expert_row_stride = job.y.stride;
  const GM_ADDR map = bind_row_of_assignment(machine, job.plan), weights = bind_weights(machine, job.weights);
  const GM_ADDR y = bind_rows(machine, "y", job.y, vector_core::Role::input);
  const GM_ADDR out = bind_rows(machine, "out", job.out, vector_core::Role::output);
  with_row_type(job.y.type, [&]<class T>() {
    if (job.weights.data != nullptr)
      launch<Scatter<T, true>>(machine, "scatter", plan.num_programs, tile, map, y, weights, out);
    else
      launch<Scatter<T, false>>(machine, "scatter", plan.num_programs, tile, map, y, weights, out);
  });
}

}  // namespace binmoe::ascend
