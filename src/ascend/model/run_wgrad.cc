#include "ascend/kernels/wgrad.h"
#include "ascend/model/bind.h"

namespace binmoe::ascend {

void run_wgrad(vector_core::Machine& machine, const MoverPlan& plan, const WgradJob& job) {
  using namespace binmoe_ascend;
  MoverTile tile = plan.mover;
  tile.token_stride = job.grad.stride;
  tile.expert_row_stride = job.y.stride;
  const GM_ADDR map = bind_row_of_assignment(machine, job.plan);
  const GM_ADDR y = bind_rows(machine, "y", job.y, vector_core::Role::input);
  const GM_ADDR grad = bind_rows(machine, "grad", job.grad, vector_core::Role::input);
  const GM_ADDR dw = bind_gradients(machine, job.dw);
  with_row_type(job.y.type, [&]<class T>() {
    launch<Wgrad<T>>(machine, "wgrad", plan.num_programs, tile, map, y, grad, nullptr, nullptr, dw);
  });
}

}  // namespace binmoe::ascend
