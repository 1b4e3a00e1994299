// dy[row_of_assignment[a]] = w[a] * grad[a / top_k] and dw[a] = dot(y[row_of_assignment[a]], grad[a / top_k]) in one
// pass over the assignments; dy's empty rows are zeroed by the same parallel_for. Without dw it is a gather.
#include "cpu/operations.h"
#include "cpu/work.h"

namespace binmoe::cpu {

void scatter_backward(const ScatterBackwardJob& job, const Resources& resources) {
  if (job.dw.data == nullptr) return gather({job.plan, job.grad, job.weights, job.dy}, resources);
  const Settings settings = settings_of(resources.options);
  const ConstPlanView& plan = job.plan;
  const int64_t top_k = plan.sizes.top_k, bytes = row_bytes(job.dy);
  const int64_t out_bytes = plan.sizes.expert_rows() * bytes;
  const bool stream = out_bytes >= settings.stream_bytes;
  const DotAndScale dot_and_scale = settings.kernels->dot_and_scale[static_cast<size_t>(job.y.type)];
  const auto push_tokens = [&](Range tokens) {
    const int64_t end = tokens.end * top_k;
    for (int64_t a = tokens.begin * top_k; a < end; ++a) {
      const int32_t row = plan.row_of_assignment[a];
      double value = 0;
      if (row >= 0) {
        const int64_t next = next_kept(plan, a + 1, end);
        const double weight = job.weights.data != nullptr ? weight_at(job.weights, a) : 0;
        value = dot_and_scale(row_at<char>(job.dy, row), row_at<const char>(job.y, row),
                              row_at<const char>(job.grad, a / top_k), job.y.cols,
                              job.weights.data != nullptr ? &weight : nullptr,
                              next < end ? row_at<const char>(job.y, plan.row_of_assignment[next]) : nullptr, stream);
      }
      store_weight_gradient(job.dw, a, value, job.y.type);
    }
  };
  const int64_t moved = 2 * out_bytes + plan.sizes.tokens * bytes;
  for_tokens_and_empty_rows(resources, settings, plan, job.dy, stream, moved, push_tokens);
}

}  // namespace binmoe::cpu
