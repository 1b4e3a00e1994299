// out[t] = sum over k of w[t,k] * y[row_of_assignment[t,k]], k rising, in f32 or f64, one rounding. While a token is
// summed, the same columns of the next token's rows are fetched (.61 -> .77 of a copy, docs/cpu.md).
#include <utility>

#include "cpu/operations.h"
#include "cpu/work.h"

namespace binmoe::cpu {
namespace {

constexpr int64_t kMostRows = 64;       // rows that one call of the kernel sums
constexpr int64_t kCarryColumns = 512;  // columns that a sum over more rows carries at a time

/// Kept rows of some assignments of a token, k rising.
template <class Real>
struct KeptRows {
  const char* rows[kMostRows];
  Real weights[kMostRows];
  int64_t count = 0;

  /// column_bytes: where in the row the kernel starts.
  void collect(const ScatterJob& job, Range assignments, int64_t column_bytes = 0) {
    count = 0;
    for (int64_t a = assignments.begin; a < assignments.end; ++a) {
      const int32_t row = job.plan.row_of_assignment[a];
      if (row < 0) continue;
      rows[count] = row_at<const char>(job.y, row) + column_bytes;
      if (job.weights.data != nullptr) weights[count] = numeric::load<Real>(job.weights.data, job.weights.type, a);
      ++count;
    }
  }

  SumSources sources(const ScatterJob& job) const {
    return {rows, job.weights.data != nullptr ? weights : nullptr, count, nullptr, 0, nullptr, nullptr};
  }
};

template <class Real>
void scatter_tokens(const ScatterJob& job, SumRows sum, Range tokens, bool stream) {
  const int64_t top_k = job.plan.sizes.top_k;
  KeptRows<Real> buffers[2];
  KeptRows<Real>*now = &buffers[0], *next = &buffers[1];
  now->collect(job, {tokens.begin * top_k, (tokens.begin + 1) * top_k});
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    const int64_t after = t + 1 < tokens.end ? top_k : 0;
    next->collect(job, {(t + 1) * top_k, (t + 1) * top_k + after});
    SumSources sources = now->sources(job);
    sources.next = next->rows;
    sources.next_count = next->count;
    sum(row_at<char>(job.out, t), sources, job.out.cols, stream);
    std::swap(now, next);
  }
}

/// The same for any top_k: some columns at a time, kMostRows assignments at a time.
template <class Real>
void scatter_tokens_in_parts(const ScatterJob& job, SumRows sum, Range tokens, bool stream) {
  const int64_t top_k = job.plan.sizes.top_k, size = job.out.element_size();
  alignas(64) Real carry[kCarryColumns];
  KeptRows<Real> kept;
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    for (int64_t column = 0; column < job.out.cols; column += kCarryColumns) {
      const int64_t cols = std::min(kCarryColumns, job.out.cols - column);
      for (int64_t k = 0; k < top_k; k += kMostRows) {
        kept.collect(job, {t * top_k + k, t * top_k + std::min(k + kMostRows, top_k)}, column * size);
        SumSources sources = kept.sources(job);
        sources.before = k > 0 ? carry : nullptr;
        sources.after = k + kMostRows < top_k ? carry : nullptr;
        sum(row_at<char>(job.out, t) + column * size, sources, cols, stream);
      }
    }
  }
}

template <class Real>
void scatter_as(const ScatterJob& job, const Resources& resources) {
  const Settings settings = settings_of(resources.options);
  const int64_t tokens = job.plan.sizes.tokens, bytes = tokens * row_bytes(job.out);
  const bool stream = bytes >= settings.stream_bytes;
  const SumRows sum = settings.kernels->sum[static_cast<size_t>(job.out.type)];
  const int64_t moved = bytes * (1 + job.plan.sizes.top_k);
  const int64_t chunks = chunk_count(resources.executor, tokens, moved);
  parallel_for(resources.executor, chunks, [&](int64_t i) {
    const Range range = part_of(tokens, i, chunks);
    if (job.plan.sizes.top_k <= kMostRows)
      scatter_tokens<Real>(job, sum, range, stream);
    else
      scatter_tokens_in_parts<Real>(job, sum, range, stream);
    if (stream) settings.kernels->flush();
  });
}

}  // namespace

void scatter(const ScatterJob& job, const Resources& resources) {
  job.y.type == DType::f64 ? scatter_as<double>(job, resources) : scatter_as<float>(job, resources);
}

}  // namespace binmoe::cpu
