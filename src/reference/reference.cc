// The reference backend: the semantics of docs/design.md, section 2, as plain loops on one thread, never optimised.
// Gather pulls through indices and bins, as the definition says; the other operations read row_of_assignment.
#include <algorithm>
#include <cstring>
#include <vector>

#include "backend.h"
#include "finish_plan.h"
#include "layout.h"
#include "numeric.h"

namespace binmoe {
namespace {

using numeric::load;
using numeric::store;

bool comes_first(double a, double b) {  // larger weight first, NaN last
  if (a != a || b != b) return a == a && b != b;
  return a > b;
}

std::optional<Fault> plan(const PlanJob& job, const Resources&) {
  const Sizes& s = job.out.sizes;
  const int64_t count = s.assignments();
  std::vector<int32_t> order;  // unmasked assignments
  std::vector<int32_t> counts(static_cast<size_t>(s.num_experts), 0);
  for (int64_t a = 0; a < count; ++a) {
    const int64_t e = numeric::load_id(job.ids, a);
    if (e < -1 || e >= s.num_experts) return Fault{"expert_id_range", a, e, s.num_experts};
    if (e < 0) continue;
    order.push_back(static_cast<int32_t>(a));
    ++counts[static_cast<size_t>(e)];
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const int64_t expert_a = numeric::load_id(job.ids, a), expert_b = numeric::load_id(job.ids, b);
    if (expert_a != expert_b) return expert_a < expert_b;
    if (job.policy == DropPolicy::choice_order) return a % s.top_k < b % s.top_k;
    if (job.policy == DropPolicy::by_weight)
      return comes_first(load<double>(job.priority.data, job.priority.type, a),
                         load<double>(job.priority.data, job.priority.type, b));
    return false;
  });
  std::copy(order.begin(), order.end(), job.out.indices);
  finish_plan(job.out, counts);
  return std::nullopt;
}

void plan_from_bins(const PlanFromBinsJob& job, const Resources&) {
  plan_from_bins_on_host(job);
}

template <class Real>
void scale_row(const ConstRows& source, int64_t source_row, const Weights& weights, int64_t assignment, const Rows& out,
               int64_t out_row) {
  const char* from = row_at<const char>(source, source_row);
  char* to = row_at<char>(out, out_row);
  if (weights.data == nullptr) {
    if (source.cols > 0) std::memcpy(to, from, static_cast<size_t>(source.cols * source.element_size()));
    return;
  }
  const Real weight = load<Real>(weights.data, weights.type, assignment);
  for (int64_t h = 0; h < source.cols; ++h) store<Real>(to, out.type, h, weight * load<Real>(from, source.type, h));
}

template <class Real>
void gather_as(const GatherJob& job) {
  const ConstPlanView& plan = job.plan;
  for (int32_t e = 0; e < plan.sizes.num_experts; ++e) {
    const ExpertRows rows = expert_rows(plan, e);
    const int32_t* sorted = plan.indices + (plan.bins[e] - plan.tokens_per_expert[e]);
    for (int64_t r = rows.begin; r < rows.kept_end; ++r) {
      const int32_t a = sorted[r - rows.begin];
      scale_row<Real>(job.x, a / plan.sizes.top_k, job.weights, a, job.y, r);
    }
    for (int64_t r = rows.kept_end; r < rows.end && job.y.cols > 0; ++r)
      std::memset(row_at<char>(job.y, r), 0, static_cast<size_t>(job.y.cols * job.y.element_size()));
  }
}

template <class Real>
void scatter_as(const ScatterJob& job) {
  const int32_t top_k = job.plan.sizes.top_k;
  for (int64_t t = 0; t < job.plan.sizes.tokens; ++t) {
    for (int64_t h = 0; h < job.out.cols; ++h) {
      Real sum = 0;
      for (int64_t a = t * top_k; a < (t + 1) * top_k; ++a) {
        const int32_t row = job.plan.row_of_assignment[a];
        if (row < 0) continue;
        const Real value = load<Real>(row_at<const char>(job.y, row), job.y.type, h);
        sum += job.weights.data == nullptr ? value : load<Real>(job.weights.data, job.weights.type, a) * value;
      }
      store<Real>(row_at<char>(job.out, t), job.out.type, h, sum);
    }
  }
}

/// The dot in double, from h = 0 up, rounded to Real and then to dw's dtype.
template <class Real>
void wgrad_as(const WgradJob& job) {
  for (int64_t a = 0; a < job.plan.sizes.assignments(); ++a) {
    const int32_t row = job.plan.row_of_assignment[a];
    double sum = 0;
    for (int64_t h = 0; row >= 0 && h < job.y.cols; ++h)
      sum += load<double>(row_at<const char>(job.y, row), job.y.type, h) *
             load<double>(row_at<const char>(job.grad, a / job.plan.sizes.top_k), job.grad.type, h);
    store<Real>(job.dw.data, job.dw.type, a, static_cast<Real>(sum));
  }
}

void gather(const GatherJob& job, const Resources&) {
  job.x.type == DType::f64 ? gather_as<double>(job) : gather_as<float>(job);
}

void scatter(const ScatterJob& job, const Resources&) {
  job.y.type == DType::f64 ? scatter_as<double>(job) : scatter_as<float>(job);
}

void wgrad(const WgradJob& job, const Resources&) {
  job.y.type == DType::f64 ? wgrad_as<double>(job) : wgrad_as<float>(job);
}

void scatter_backward(const ScatterBackwardJob& job, const Resources& resources) {
  gather({job.plan, job.grad, job.weights, job.dy}, resources);
  if (job.dw.data != nullptr) wgrad({job.plan, job.y, job.grad, job.dw}, resources);
}

constexpr BackendOperations kOperations = {
    .options = [] { return std::vector<BackendOption>{}; },
    .check_options = [](const char* options) -> std::string {
      return *options == '\0' ? "" : "the backend reference takes no options";
    },
    .plan_workspace_bytes = [](const Sizes&, DropPolicy, DType, const Executor&) { return size_t{0}; },
    .plan = plan,
    .plan_from_bins = plan_from_bins,
    .gather = gather,
    .scatter = scatter,
    .wgrad = wgrad,
    .scatter_backward = scatter_backward,
};

}  // namespace

Backend reference_backend() {
  return {"reference", "plain loops on one thread: the oracle", nullptr, &kOperations, kAllDTypes};
}

}  // namespace binmoe
