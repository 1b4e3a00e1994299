#include "mover_problem.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "backend.h"

namespace test {
namespace {

/// Bits that are easily lost: both zeros, subnormals, the smallest and the largest numbers, infinities, halfway cases.
double extreme_number(DType type, Random& random) {
  const oracle::Format f = oracle::format_of(type);
  const double largest = std::ldexp(2.0 - std::ldexp(1.0, 1 - f.precision), f.max_exponent);
  const double smallest = std::ldexp(1.0, f.min_exponent - f.precision + 1);
  const double values[] = {0.0,
                           largest,
                           std::numeric_limits<double>::infinity(),
                           smallest,
                           smallest * 3,
                           std::ldexp(1.0, f.min_exponent) - smallest,
                           1.0,
                           1.0 + std::ldexp(1.0, 1 - f.precision)};
  const double value = values[random.below(std::size(values))];
  return random.below(2) == 0 ? value : -value;
}

void fill_row(Tensor& tensor, int64_t row, MoverProblem::Values values, Random& random) {
  const Tensor::Shape& shape = tensor.shape();
  if (values == MoverProblem::Values::any_bits) {
    for (int64_t i = 0; i < shape.cols * tensor.element_size(); ++i)
      tensor.row(row)[i] = static_cast<unsigned char>(random.bits());
    return;
  }
  for (int64_t h = 0; h < shape.cols; ++h)
    tensor.set(row, h, values == MoverProblem::Values::numbers ? random.number() : extreme_number(shape.type, random));
}

std::string optional_name(const std::optional<DType>& type) {
  return type ? binmoe::name_of(*type) : "none";
}

/// Call run(job) with the job of the mover.
template <class Run>
void with_job(const MoverProblem& p, Mover mover, MoverOutput& output, const Run& run) {
  switch (mover) {
    case Mover::gather_by_token:
    case Mover::gather_by_expert:
      return run(GatherJob{p.plan, p.x.view(), p.weights_view(), output.rows->view()});
    case Mover::scatter:
      return run(ScatterJob{p.plan, p.y.view(), p.weights_view(), output.rows->view()});
    case Mover::wgrad:
      return run(WgradJob{p.plan, p.y.view(), p.grad.view(), output.dw->gradients()});
    case Mover::scatter_backward:
      return run(ScatterBackwardJob{p.plan, p.y.view(), p.grad.view(), p.weights_view(), output.rows->view(),
                                    output.dw->gradients()});
  }
}

struct OnReference {
  Resources resources{default_executor(), "", nullptr, 0};
  const BackendOperations& operations = *reference_backend().operations;

  void operator()(const GatherJob& job) const { operations.gather(job, resources); }
  void operator()(const ScatterJob& job) const { operations.scatter(job, resources); }
  void operator()(const WgradJob& job) const { operations.wgrad(job, resources); }
  void operator()(const ScatterBackwardJob& job) const { operations.scatter_backward(job, resources); }
};

struct OnModel {
  vector_core::Machine& machine;
  const ascend::MoverPlan& plan;

  void operator()(const GatherJob& job) const { ascend::run_gather(machine, plan, job); }
  void operator()(const ScatterJob& job) const { ascend::run_scatter(machine, plan, job); }
  void operator()(const WgradJob& job) const { ascend::run_wgrad(machine, plan, job); }
  void operator()(const ScatterBackwardJob& job) const { ascend::run_scatter_backward(machine, plan, job); }
};

}  // namespace

const char* name_of(Mover mover) {
  constexpr const char* kNames[] = {"gather by token", "gather by expert", "scatter", "wgrad", "scatter backward"};
  return kNames[static_cast<int>(mover)];
}

ascend::Op op_of(Mover mover) {
  constexpr ascend::Op kOps[] = {ascend::Op::gather, ascend::Op::gather, ascend::Op::scatter, ascend::Op::wgrad,
                                 ascend::Op::scatter_backward};
  return kOps[static_cast<int>(mover)];
}

std::string describe(const MoverCase& c) {
  std::ostringstream out;
  out << "T=" << c.sizes.tokens << " K=" << c.sizes.top_k << " E=" << c.sizes.num_experts
      << " C=" << c.sizes.expert_capacity << " H=" << c.hidden << " rows " << binmoe::name_of(c.rows) << " weights "
      << optional_name(c.weights) << " dw " << binmoe::name_of(c.dw) << " gap " << c.gap << " seed " << c.seed;
  return out.str();
}

std::vector<int32_t> random_ids(const Sizes& sizes, Random& random, int64_t masked_share) {
  std::vector<int32_t> ids(static_cast<size_t>(sizes.assignments()));
  for (int32_t& id : ids) {
    const int64_t expert =
        random.below(3) == 0 ? random.below(2) * (sizes.num_experts - 1) : random.below(sizes.num_experts);
    id = masked_share > 0 && random.below(masked_share) == 0 ? -1 : static_cast<int32_t>(expert);
  }
  return ids;
}

std::vector<int32_t> counted_ids(const Sizes& sizes, const std::vector<int64_t>& counts, Random& random) {
  std::vector<int32_t> ids;
  for (size_t e = 0; e < counts.size(); ++e)
    ids.insert(ids.end(), static_cast<size_t>(counts[e]), static_cast<int32_t>(e));
  ids.resize(static_cast<size_t>(sizes.assignments()), -1);
  for (size_t i = ids.size(); i > 1; --i)
    std::swap(ids[i - 1], ids[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  return ids;
}

ascend::Soc small_chip(int32_t programs, int64_t ub_limit_bytes) {
  return {"small", "A2", programs, ub_limit_bytes, ub_limit_bytes, "none"};
}

MoverProblem::MoverProblem(const MoverCase& made_from, const std::vector<int32_t>& ids, Values values)
    : c(made_from),
      plan([&] {
        Context context;
        context.backend = &find_backend("reference");
        return make_plan({ids.data(), static_cast<int64_t>(ids.size()), IdType::i32}, c.sizes, DropPolicy::token_order,
                         {}, context);
      }()),
      x({c.sizes.tokens, c.hidden, c.rows, 0, c.gap, 0}, Memory::Use::input),
      grad({c.sizes.tokens, c.hidden, c.rows, 0, c.gap, 0}, Memory::Use::input),
      y({c.sizes.expert_rows(), c.hidden, c.rows, 0, 2 * c.gap, 0}, Memory::Use::input),
      weights(c.sizes.assignments(), c.weights.value_or(DType::f32), Memory::Use::input) {
  fill(values);
}

/// All of it begins as NaN; what a kept row makes use of gets a value.
void MoverProblem::fill(Values values) {
  Random random(c.seed + 1000);
  const std::span<const int32_t> rows = plan.row_of_assignment();
  for (int64_t t = 0; t < c.sizes.tokens; ++t) {
    bool is_used = false;
    for (int64_t a = t * c.sizes.top_k; a < (t + 1) * c.sizes.top_k; ++a) {
      const int32_t row = rows[static_cast<size_t>(a)];
      if (row < 0) continue;
      is_used = true;
      ++kept;
      fill_row(y, row, values, random);
      weights.set(
          a, values == Values::extremes ? extreme_number(c.weights.value_or(DType::f32), random) : random.number());
    }
    if (!is_used) continue;
    ++used;
    fill_row(x, t, values, random);
    fill_row(grad, t, values, random);
  }
}

MoverOutput empty_output(const MoverProblem& p, Mover mover) {
  MoverOutput out;
  if (mover != Mover::wgrad) {
    const bool by_token = mover == Mover::scatter;
    const int64_t rows = by_token ? p.c.sizes.tokens : p.c.sizes.expert_rows();
    out.rows.emplace(Tensor::Shape{rows, p.c.hidden, p.c.rows, 0, 3 * p.c.gap, 0}, Memory::Use::output);
    out.rows_name = by_token ? "out" : mover == Mover::scatter_backward ? "dy" : "y";
  }
  if (mover == Mover::wgrad || mover == Mover::scatter_backward)
    out.dw.emplace(p.c.sizes.assignments(), p.c.dw, Memory::Use::output);
  return out;
}

MoverOutput run_on_reference(const MoverProblem& p, Mover mover) {
  MoverOutput out = empty_output(p, mover);
  with_job(p, mover, out, OnReference());
  return out;
}

ascend::TileRequest request_of(const MoverProblem& p, Mover mover, const ascend::Soc& soc) {
  ascend::TileRequest request;
  MoverOutput out = empty_output(p, mover);
  with_job(p, mover, out, [&](const auto& job) { request = ascend::request_of(soc, job); });
  if (mover == Mover::gather_by_token) request.order = ascend::Order::token;
  if (mover == Mover::gather_by_expert) request.order = ascend::Order::expert;
  return request;
}

void run_on_model(vector_core::Machine& machine, const ascend::MoverPlan& plan, const MoverProblem& p, Mover mover,
                  MoverOutput& output) {
  with_job(p, mover, output, OnModel{machine, plan});
}

std::vector<vector_core::ByteRange> row_ranges(const MoverOutput& output) {
  const ConstRows rows = static_cast<const Tensor&>(*output.rows).view();
  const int64_t size = rows.element_size();
  std::vector<vector_core::ByteRange> out;
  if (rows.cols == 0) return out;
  if (rows.stride == rows.cols && rows.rows > 0) return {{0, rows.rows * rows.cols * size}};
  for (int64_t r = 0; r < rows.rows; ++r) out.push_back({r * rows.stride * size, (r * rows.stride + rows.cols) * size});
  return out;
}

void expect_written_once(const vector_core::Machine& machine, const MoverOutput& output) {
  if (output.rows) machine.expect_written_once(output.rows_name, row_ranges(output));
  if (output.dw) machine.expect_written_once("dw");
}

}  // namespace test
