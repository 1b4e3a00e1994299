// y[row_of_assignment[a]] = w[a] * x[a / top_k]. Large outputs in token order: a row of x is read once and pushed to
// its places while it is in the cache (.78 -> 1.04 of a copy, docs/cpu.md). Small ones in the order of their rows: a
// thread writes the same rows whatever the routing, and finds them in its core's cache (1.3 -> 2.4 of a copy).
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

namespace {

/// Moves one row: from the token of an assignment to an expert row.
class RowMover {
 public:
  RowMover(const GatherJob& job, const RowKernels& kernels, bool stream)
      : job_(job), copy_(kernels.copy), bytes_(row_bytes(job.x)), stream_(stream) {
    if (job.weights.data != nullptr) scale_ = kernels.scale[static_cast<size_t>(job.x.type)];
  }

  void operator()(int64_t assignment, int64_t row) const {
    const char* x = row_at<const char>(job_.x, assignment / job_.plan.sizes.top_k);
    char* y = row_at<char>(job_.y, row);
    if (scale_ != nullptr)
      scale_(y, x, job_.x.cols, weight_at(job_.weights, assignment), stream_);
    else
      copy_(y, x, bytes_, stream_);
  }

 private:
  const GatherJob& job_;
  CopyRow copy_;
  ScaleRow scale_ = nullptr;
  int64_t bytes_;
  bool stream_;
};

void push_tokens(const ConstPlanView& plan, Range tokens, const RowMover& move) {
  const int64_t end = tokens.end * plan.sizes.top_k;
  for (int64_t a = tokens.begin * plan.sizes.top_k; a < end; ++a)
    if (plan.row_of_assignment[a] >= 0) move(a, plan.row_of_assignment[a]);
}

void pull_rows(const ConstPlanView& plan, Range rows, const RowMover& move) {
  for (int64_t e = 0; e < plan.sizes.num_experts; ++e) {
    const ExpertRows expert = expert_rows(plan, e);
    const int32_t* entries = plan.indices + (e == 0 ? 0 : plan.bins[e - 1]);
    const int64_t end = std::min(expert.kept_end, rows.end);
    for (int64_t row = std::max(expert.begin, rows.begin); row < end; ++row) move(entries[row - expert.begin], row);
  }
}

}  // namespace

void gather(const GatherJob& job, const Resources& resources) {
  const Settings settings = settings_of(resources.options);
  const ConstPlanView& plan = job.plan;
  const int64_t rows = plan.sizes.expert_rows(), out_bytes = rows * row_bytes(job.x);
  const bool stream = out_bytes >= settings.stream_bytes;
  const RowMover move(job, *settings.kernels, stream);
  if (stream) {
    const int64_t moved = out_bytes + plan.sizes.tokens * row_bytes(job.x);
    for_tokens_and_empty_rows(resources, settings, plan, job.y, stream, moved,
                              [&](Range tokens) { push_tokens(plan, tokens, move); });
    return;
  }
  const int64_t chunks = chunk_count(resources.executor, rows, out_bytes);
  parallel_for(resources.executor, chunks, [&](int64_t i) {
    const Range range = part_of(rows, i, chunks);
    pull_rows(plan, range, move);
    zero_empty_rows(plan, job.y, range, *settings.kernels, stream);
  });
}

}  // namespace binmoe::cpu
