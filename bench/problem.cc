#include "bench/problem.h"

#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>

#include "bench/routing.h"

namespace binmoe::bench {
namespace {

bool writes_expert_rows(Op op) {
  return op == Op::gather || op == Op::scatter_backward;
}

/// value in [0.5, 1.5), stored exactly enough for a benchmark: bf16 and f16 by truncation.
void store(char* to, DType dtype, double value) {
  const auto single = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &single, 4);
  switch (dtype) {
    case DType::f64:
      std::memcpy(to, &value, 8);
      return;
    case DType::bf16:
      bits >>= 16;
      std::memcpy(to, &bits, 2);
      return;
    case DType::f16:
      bits = (bits - 0x38000000u) >> 13;
      std::memcpy(to, &bits, 2);
      return;
    default:
      std::memcpy(to, &bits, 4);
      return;
  }
}

/// Repeats with an odd period: rows differ, and filling stays cheap.
Buffer make_rows(int64_t count, DType dtype, uint64_t stream) {
  constexpr int64_t kPeriod = 65521;
  const auto size = static_cast<size_t>(size_of(dtype));
  Buffer buffer(static_cast<size_t>(count) * size);
  for (int64_t i = 0; i < count && i < kPeriod; ++i)
    store(buffer.data() + static_cast<size_t>(i) * size, dtype, 0.5 + noise(stream, static_cast<uint64_t>(i)));
  const size_t period = static_cast<size_t>(kPeriod) * size;
  for (size_t at = period; at < buffer.bytes(); at += period)
    std::memcpy(buffer.data() + at, buffer.data(), std::min(period, buffer.bytes() - at));
  return buffer;
}

int64_t count_tokens_with_a_row(const Plan& plan) {
  const auto rows = plan.row_of_assignment();
  const auto top_k = static_cast<size_t>(plan.sizes().top_k);
  int64_t count = 0;
  for (size_t t = 0; t < rows.size(); t += top_k) {
    bool kept = false;
    for (size_t k = 0; k < top_k; ++k) kept = kept || rows[t + k] >= 0;
    count += kept;
  }
  return count;
}

[[noreturn]] void differ(Op op, const char* what) {
  throw std::runtime_error(std::string("bench: ") + name_of(op) + " gives another " + what + " than the reference");
}

}  // namespace

const char* name_of(Op op) {
  switch (op) {
    case Op::plan:
      return "plan";
    case Op::gather:
      return "gather";
    case Op::scatter:
      return "scatter";
    case Op::wgrad:
      return "wgrad";
    case Op::scatter_backward:
      return "scatter-backward";
    case Op::gather_backward:
      return "gather-backward";
  }
  return "unknown";
}

std::vector<Op> all_ops() {
  return {Op::plan, Op::gather, Op::scatter, Op::wgrad, Op::scatter_backward, Op::gather_backward};
}

Buffer::Buffer(size_t bytes) : bytes_(bytes) {
  void* memory = ::operator new (bytes + 1, std::align_val_t{64}, std::nothrow);
  if (memory == nullptr)
    throw Error(ErrorKind::out_of_memory, "bench", "cannot allocate " + std::to_string(bytes) + " bytes");
  data_.reset(static_cast<char*>(memory));
  std::memset(data_.get(), 0xff, bytes);
}

Problem::Problem(const std::vector<int32_t>& expert_ids, const Sizes& sizes, int64_t hidden_size, DType dtype)
    : ids_(expert_ids),
      sizes_(sizes),
      hidden_size_(hidden_size),
      dtype_(dtype),
      plan_(make_plan({ids_.data(), static_cast<int64_t>(ids_.size()), IdType::i32}, sizes)),
      load_(load_of(plan_)),
      tokens_with_a_row_(count_tokens_with_a_row(plan_)),
      weights_(make_rows(sizes.assignments(), DType::f32, 3)) {}

int64_t Problem::minimum_bytes(Op op) const {
  const int64_t row = hidden_size_ * size_of(dtype_), assignments = sizes_.assignments();
  const int64_t maps = 4 * assignments, weights = 4 * assignments;
  const int64_t u = tokens_with_a_row_, kept = load_.kept, rows = sizes_.expert_rows();
  switch (op) {
    case Op::plan:
      return 2 * maps + 8 * (load_.kept + load_.dropped) + 12 * sizes_.num_experts;
    case Op::gather:
      return (u + rows) * row + 4 * kept;
    case Op::scatter:
      return (kept + sizes_.tokens) * row + maps + weights;
    case Op::wgrad:
      return (u + kept) * row + maps + weights;
    case Op::scatter_backward:
      return (u + kept + rows) * row + maps + 2 * weights;
    case Op::gather_backward:
      return minimum_bytes(Op::scatter) + minimum_bytes(Op::wgrad);
  }
  return 0;
}

ConstRows Problem::view(const Buffer& buffer, int64_t rows) const {
  return {buffer.data(), rows, hidden_size_, hidden_size_, dtype_};
}

void Problem::make_inputs(Op op) {
  if (op == Op::plan) return;
  if (op != Op::scatter && tokens_.data() == nullptr) tokens_ = make_rows(sizes_.tokens * hidden_size_, dtype_, 1);
  if (op != Op::gather && expert_rows_.data() == nullptr)
    expert_rows_ = make_rows(sizes_.expert_rows() * hidden_size_, dtype_, 2);
}

Problem::Outputs Problem::make_outputs(Op op) const {
  Outputs out;
  if (op == Op::plan) {
    out.plan = Plan(sizes_);
    return out;
  }
  const int64_t rows = writes_expert_rows(op) ? sizes_.expert_rows() : sizes_.tokens;
  if (op != Op::wgrad) out.rows = Buffer(static_cast<size_t>(rows * hidden_size_ * size_of(dtype_)));
  out.weights = Buffer(static_cast<size_t>(sizes_.assignments() * (dtype_ == DType::f64 ? 8 : 4)));
  return out;
}

void Problem::run_into(Op op, Outputs& outputs, const Context& context) const {
  const int64_t rows = writes_expert_rows(op) ? sizes_.expert_rows() : sizes_.tokens;
  const ConstRows x = view(tokens_, sizes_.tokens), y = view(expert_rows_, sizes_.expert_rows());
  const Rows out{outputs.rows.data(), rows, hidden_size_, hidden_size_, dtype_};
  const Weights weights{weights_.data(), sizes_.assignments(), DType::f32};
  const WeightGradients dw{outputs.weights.data(), sizes_.assignments(),
                           dtype_ == DType::f64 ? DType::f64 : DType::f32};
  const Ids ids{ids_.data(), static_cast<int64_t>(ids_.size()), IdType::i32};
  switch (op) {
    case Op::plan:
      return plan(ids, DropPolicy::token_order, {}, outputs.plan.view(), context);
    case Op::gather:
      return gather(plan_, x, {}, out, context);
    case Op::scatter:
      return scatter(plan_, y, weights, out, context);
    case Op::wgrad:
      return wgrad(plan_, y, x, dw, context);
    case Op::scatter_backward:
      return scatter_backward(plan_, y, x, weights, out, dw, context);
    case Op::gather_backward:
      return gather_backward(plan_, y, weights, x, out, dw, context);
  }
}

void Problem::run(Op op, const Context& context) {
  if (!have_outputs_ || outputs_for_ != op) {
    outputs_ = {};
    make_inputs(op);
    outputs_ = make_outputs(op);
    outputs_for_ = op;
    have_outputs_ = true;
  }
  run_into(op, outputs_, context);
}

void Problem::verify(Op op, const Context& context) {
  Context reference;
  reference.backend = &find_backend("reference");
  make_inputs(op);
  Outputs expected = make_outputs(op);
  run_into(op, expected, reference);
  run(op, context);
  if (op == Op::plan) {
    const auto a = expected.plan.row_of_assignment(), b = outputs_.plan.row_of_assignment();
    const auto c = expected.plan.indices(), d = outputs_.plan.indices();
    if (!std::equal(a.begin(), a.end(), b.begin(), b.end()) || !std::equal(c.begin(), c.end(), d.begin(), d.end()))
      differ(op, "plan");
    if (check(outputs_.plan)) differ(op, "plan");
    return;
  }
  if (expected.rows.bytes() > 0 && std::memcmp(expected.rows.data(), outputs_.rows.data(), expected.rows.bytes()) != 0)
    differ(op, "row");
  if (op == Op::gather || op == Op::scatter) return;
  const bool wide = dtype_ == DType::f64;
  const double bound = static_cast<double>(hidden_size_) * (wide ? 0x1p-53 : 0x1p-24);
  for (int64_t a = 0; a < sizes_.assignments(); ++a) {
    double want, got;
    if (wide) {
      std::memcpy(&want, expected.weights.data() + a * 8, 8);
      std::memcpy(&got, outputs_.weights.data() + a * 8, 8);
    } else {
      float f[2];
      std::memcpy(&f[0], expected.weights.data() + a * 4, 4);
      std::memcpy(&f[1], outputs_.weights.data() + a * 4, 4);
      want = f[0], got = f[1];
    }
    if (!(std::abs(want - got) <= bound * want)) differ(op, "weight gradient");
  }
}

}  // namespace binmoe::bench
