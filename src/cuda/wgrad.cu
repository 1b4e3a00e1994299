// Wgrad: scatter_backward's pass without dy.
#include "cuda/dots.h"
#include "cuda/operations.h"

namespace binmoe::cuda {

void wgrad(const WgradJob& job, const Launcher& launcher) {
  make_dots({job.plan, job.y, job.grad, {}, {}, job.dw}, launcher);
}

}  // namespace binmoe::cuda
