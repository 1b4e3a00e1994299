// dw[a] = dot(y[row_of_assignment[a]], grad[a / top_k]), one row of y at a time; the token's grad row stays in the
// cache.
#include "cpu/operations.h"
#include "cpu/work.h"

namespace binmoe::cpu {

void wgrad(const WgradJob& job, const Resources& resources) {
  const Settings settings = settings_of(resources.options);
  const ConstPlanView& plan = job.plan;
  const int64_t top_k = plan.sizes.top_k, tokens = plan.sizes.tokens;
  const DotRows dot = settings.kernels->dot[static_cast<size_t>(job.y.type)];
  const int64_t chunks = chunk_count(resources.executor, tokens, tokens * (1 + top_k) * row_bytes(job.y));
  parallel_for(resources.executor, chunks, [&](int64_t i) {
    const Range range = part_of(tokens, i, chunks);
    const int64_t end = range.end * top_k;
    for (int64_t a = range.begin * top_k; a < end; ++a) {
      const int32_t row = plan.row_of_assignment[a];
      double value = 0;
      if (row >= 0) {
        const int64_t next = next_kept(plan, a + 1, end);
        value = dot(row_at<const char>(job.y, row), row_at<const char>(job.grad, a / top_k), job.y.cols,
                    next < end ? row_at<const char>(job.y, plan.row_of_assignment[next]) : nullptr);
      }
      store_weight_gradient(job.dw, a, value, job.y.type);
    }
  });
}

}  // namespace binmoe::cpu
