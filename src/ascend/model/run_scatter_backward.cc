#include "ascend/kernels/scatter_backward.h"
#include "ascend/model/bind.h"

namespace binmoe::ascend {

void run_scatter_backward(vector_core::Machine& machine, const MoverPlan& plan, const ScatterBackwardJob& job) {
  using namespace binmoe_ascend;
  MoverTile tile = plan.mover;
  tile.token_stride = job.grad.stride;
  const GM_ADDR map = bind_row_of_assignment(machine, job.plan), kept = bind_kept(machine, job.plan);
  const GM_ADDR weights = bind_weights(machine, job.weights), dw = bind_gradients(machine, job.dw);
  const GM_ADDR y = bind_rows(machine, "y", job.y, vector_core::Role::input);
  const GM_ADDR grad = bind_rows(machine, "grad", job.grad, vector_core::Role::input);
  const GM_ADDR dy = bind_rows(machine, "dy", job.dy, vector_core::Role::output);
  tile.expert_row_stride = job.y.stride;
  tile.dy_stride = job.dy.stride;
  with_row_type(job.grad.type, [&]<class T>() {
    if (job.weights.data != nullptr)
      launch<ScatterBackward<T, true>>(machine, "scatter_backward", plan.num_programs, tile, map, kept, y, grad,
                                       weights, dy, dw);
    else
      launch<ScatterBackward<T, false>>(machine, "scatter_backward", plan.num_programs, tile, map, kept, y, grad,
                                        weights, dy, dw);
  });
}

}  // namespace binmoe::ascend
