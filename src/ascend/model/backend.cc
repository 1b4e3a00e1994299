// The backend ascend-model: every operation runs the Ascend C kernels on the vector-core model. For checking, not for
// speed; chosen by name only.
#include "backend.h"

#include "ascend/model/options.h"
#include "ascend/model/run_plan.h"
#include "ascend/model/runner.h"
#include "finish_plan.h"
#include "numeric.h"

namespace binmoe {
namespace {

using namespace ascend;

MoverPlan plan_of(TileRequest request, const ModelOptions& options) {
  if (request.op == Op::gather) request.order = options.order;
  return mover_plan(request);
}

std::optional<Fault> first_bad_id(const Ids& ids, const Sizes& sizes) {
  for (int64_t a = 0; a < ids.count; ++a) {
    const int64_t id = numeric::load_id(ids, a);
    if (id < -1 || id >= sizes.num_experts) return Fault{"expert_id_range", a, id, sizes.num_experts};
  }
  return std::nullopt;
}

std::optional<Fault> plan(const PlanJob& job, const Resources& resources) {
  if (auto fault = first_bad_id(job.ids, job.out.sizes)) return fault;
  const ModelOptions options = options_of(resources.options);
  vector_core::Machine machine(profile_of(*options.soc));
  run_plan(machine, *options.soc, job);
  return std::nullopt;
}

void plan_from_bins(const PlanFromBinsJob& job, const Resources&) {
  plan_from_bins_on_host(job);
}

template <class Job, class Run>
void run_on_model(const Job& job, const Resources& resources, const Run& run) {
  const ModelOptions options = options_of(resources.options);
  vector_core::Machine machine(profile_of(*options.soc));
  run(machine, plan_of(request_of(*options.soc, job), options), job);
}

/// The dot of no columns. The kernels are not launched on rows without columns.
void clear(const WeightGradients& dw) {
  for (int64_t a = 0; a < dw.count; ++a) numeric::store<float>(dw.data, dw.type, a, 0.0f);
}

void gather(const GatherJob& job, const Resources& resources) {
  if (job.x.cols > 0) run_on_model(job, resources, run_gather);
}

void scatter(const ScatterJob& job, const Resources& resources) {
  if (job.y.cols > 0) run_on_model(job, resources, run_scatter);
}

void wgrad(const WgradJob& job, const Resources& resources) {
  job.y.cols > 0 ? run_on_model(job, resources, run_wgrad) : clear(job.dw);
}

void scatter_backward(const ScatterBackwardJob& job, const Resources& resources) {
  if (job.dw.data == nullptr) return gather({job.plan, job.grad, job.weights, job.dy}, resources);
  job.y.cols > 0 ? run_on_model(job, resources, run_scatter_backward) : clear(job.dw);
}

constexpr uint8_t kDTypes = kAllDTypes & ~(1 << static_cast<int>(DType::f64));

constexpr BackendOperations kOperations = {
    .options = model_options,
    .check_options = check_model_options,
    .plan_workspace_bytes = [](const Sizes&, DropPolicy, DType, const Executor&) { return size_t{0}; },
    .plan = plan,
    .plan_from_bins = plan_from_bins,
    .gather = gather,
    .scatter = scatter,
    .wgrad = wgrad,
    .scatter_backward = scatter_backward,
};

}  // namespace

Backend ascend_model_backend() {
  return {"ascend-model", "the Ascend C kernels on our model of an Ascend vector core; for checking, by name only",
          nullptr,        &kOperations,
          kDTypes,        true};
}

}  // namespace binmoe
