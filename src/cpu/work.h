// How the movers cut their work: ranges of tokens and of expert rows, one writer each.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend.h"
#include "cpu/settings.h"
#include "layout.h"
#include "numeric.h"

namespace binmoe::cpu {

/// Below this many bytes a second thread costs more than it saves.
constexpr int64_t kSerialBytes = int64_t{256} << 10;
/// Below this many the operands may be in the cores' caches: a chunk a thread, so that they can stay there. Above it
/// more chunks, for balance.
constexpr int64_t kCachedBytes = int64_t{8} << 20;
constexpr int64_t kChunksPerThread = 8;

/// Call body(i) for i in [0, chunks).
template <class Body>
void parallel_for(Executor& executor, int64_t chunks, const Body& body) {
  const auto call = [](void* argument, int64_t i) { (*static_cast<const Body*>(argument))(i); };
  executor.parallel_for(chunks, call, const_cast<void*>(static_cast<const void*>(&body)));
}

/// Pieces for `items` that move `bytes` in all: one when that is little.
inline int64_t chunk_count(const Executor& executor, int64_t items, int64_t bytes) {
  if (bytes < kSerialBytes || executor.concurrency() == 1) return items > 0 ? 1 : 0;
  return std::min(items, executor.concurrency() * (bytes < kCachedBytes ? 1 : kChunksPerThread));
}

struct Range {
  int64_t begin, end;
};

/// Part `i` of `parts` nearly equal ones of [0, count).
inline Range part_of(int64_t count, int64_t i, int64_t parts) {
  return {count * i / parts, count * (i + 1) / parts};
}

inline int64_t row_bytes(const ConstRows& view) {
  return view.cols * view.element_size();
}

/// Zero the empty rows among expert rows [range.begin, range.end) of y.
void zero_empty_rows(const ConstPlanView& plan, const Rows& y, Range range, const RowKernels& kernels, bool stream);

/// Run token_body(tokens) over all tokens and zero y's empty rows, in one parallel_for; the rows after the tokens, or
/// large outputs take 6 % longer. bytes: what is moved in all.
template <class TokenBody>
void for_tokens_and_empty_rows(const Resources& resources, const Settings& settings, const ConstPlanView& plan,
                               const Rows& y, bool stream, int64_t bytes, const TokenBody& token_body) {
  const int64_t tokens = plan.sizes.tokens, rows = plan.sizes.expert_rows();
  const int64_t parts = chunk_count(resources.executor, std::max(tokens, rows), bytes);
  const bool together = bytes < kCachedBytes;
  parallel_for(resources.executor, together ? parts : 2 * parts, [&](int64_t i) {
    if (together || i < parts) token_body(part_of(tokens, i % parts, parts));
    if (together || i >= parts) zero_empty_rows(plan, y, part_of(rows, i % parts, parts), *settings.kernels, stream);
    if (stream) settings.kernels->flush();
  });
}

/// The first kept assignment in [a, end), or end.
inline int64_t next_kept(const ConstPlanView& plan, int64_t a, int64_t end) {
  while (a < end && plan.row_of_assignment[a] < 0) ++a;
  return a;
}

/// A weight as the double that holds it exactly.
inline double weight_at(const Weights& weights, int64_t assignment) {
  return numeric::load<double>(weights.data, weights.type, assignment);
}

/// Store one dw, computed in f32 (or f64 with f64 rows).
inline void store_weight_gradient(const WeightGradients& dw, int64_t assignment, double value, DType row_type) {
  if (row_type == DType::f64)
    numeric::store<double>(dw.data, dw.type, assignment, value);
  else
    numeric::store<float>(dw.data, dw.type, assignment, static_cast<float>(value));
}

}  // namespace binmoe::cpu
