// y[row_of_assignment[a]] = w[a] * x[a / top_k]. In token order: a row of x is read once and pushed to its places while
// it is in the cache (.78 -> 1.04 of a copy against pulling, docs/cpu.md).
#include "cpu/operations.h"
#include "cpu/work.h"

namespace binmoe::cpu {

void zero_empty_rows(const ConstPlanView& plan, const Rows& y, Range range, const RowKernels& kernels, bool stream) {
  const int64_t bytes = row_bytes(y);
  const bool dense = y.stride == y.cols;
  for (int64_t e = 0; e < plan.sizes.num_experts; ++e) {
    const ExpertRows rows = expert_rows(plan, e);
    const int64_t begin = std::max(rows.kept_end, range.begin), end = std::min(rows.end, range.end);
    if (begin >= end) continue;
    if (dense)
      kernels.zero(row_at<char>(y, begin), (end - begin) * bytes, stream);
    else
      for (int64_t r = begin; r < end; ++r) kernels.zero(row_at<char>(y, r), bytes, stream);
  }
}

void gather(const GatherJob& job, const Resources& resources) {
  const Settings settings = settings_of(resources.options);
  const ConstPlanView& plan = job.plan;
  const int64_t top_k = plan.sizes.top_k, bytes = row_bytes(job.x);
  const int64_t out_bytes = plan.sizes.expert_rows() * bytes;
  const bool stream = out_bytes >= settings.stream_bytes;
  const bool weighted = job.weights.data != nullptr;
  const ScaleRow scale = weighted ? settings.kernels->scale[static_cast<size_t>(job.x.type)] : nullptr;
  const auto push_tokens = [&](Range tokens) {
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      const char* x = row_at<const char>(job.x, t);
      for (int64_t a = t * top_k; a < (t + 1) * top_k; ++a) {
        const int32_t row = plan.row_of_assignment[a];
        if (row < 0) continue;
        char* y = row_at<char>(job.y, row);
        if (weighted)
          scale(y, x, job.x.cols, weight_at(job.weights, a), stream);
        else
          settings.kernels->copy(y, x, bytes, stream);
      }
    }
  };
  for_tokens_and_empty_rows(resources, settings, plan, job.y, stream, out_bytes + plan.sizes.tokens * bytes,
                            push_tokens);
}

}  // namespace binmoe::cpu
