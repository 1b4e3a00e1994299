// Every operation: check the arguments, choose the backend, call it. The only place that throws, with check.cc,
// capacity.cc, plan.cc, staging.cc, table.cc and validate.cc.
#include <memory>
#include <new>
#include <string>

#include "backend.h"
#include "binmoe/operations.h"
#include "staging.h"
#include "validate.h"

namespace binmoe {
namespace {

const Backend& chosen(const char* operation, const Context& context) {
  const Backend& backend = context.backend != nullptr ? *context.backend : default_backend(context.memory);
  if (backend.unsupported != nullptr)
    throw Error(ErrorKind::unsupported, operation,
                std::string("the backend ") + backend.name + " cannot run here: " + backend.unsupported);
  if (context.memory != Memory::host && backend.memory != context.memory)
    throw Error(ErrorKind::unsupported, operation,
                std::string("the arrays are on a device, but the backend ") + backend.name + " works on host memory");
  const std::string complaint = backend.operations->check_options(context.options != nullptr ? context.options : "");
  if (!complaint.empty()) throw Error(ErrorKind::unsupported, operation, complaint);
  return backend;
}

/// A backend may not take every dtype: of rows, weights, dw.
void require_taken(const char* operation, const Backend& backend, std::initializer_list<DType> types) {
  for (const DType type : types) {
    if (backend.takes(type)) continue;
    std::string names;
    for (const DType taken : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::bytes})
      if (backend.takes(taken)) names += (names.empty() ? "" : ", ") + std::string(name_of(taken));
    throw Error(
        ErrorKind::unsupported, operation,
        std::string("the backend ") + backend.name + " does not take " + name_of(type) + "; it takes: " + names);
  }
}

Resources resources_of(const Context& context) {
  return {context.executor != nullptr ? *context.executor : default_executor(),
          context.options != nullptr ? context.options : "", context.workspace, context.workspace_bytes,
          context.stream};
}

/// What one call runs on. `staging` moves host arrays to a device and back where that is needed.
struct Call {
  Call(const char* operation, const Context& context)
      : backend(chosen(operation, context)),
        resources(resources_of(context)),
        staging(operation, backend, context, resources) {}

  const BackendOperations& run() const { return *backend.operations; }

  const Backend& backend;
  Resources resources;
  Staging staging;
};

/// Run a backend function that may allocate.
template <class Function>
auto guarded(const char* operation, const Sizes& sizes, const Function& function) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    throw out_of_memory(operation, static_cast<size_t>(sizes.assignments()) * sizeof(int32_t));
  }
}

/// A row argument and the name that messages give it.
struct NamedRows {
  const char* name;
  ConstRows view;
};

void require_float(const char* operation, const NamedRows& rows) {
  if (rows.view.type == DType::bytes)
    throw Error(ErrorKind::invalid_argument, operation,
                std::string(rows.name) + " holds bytes, but only the unweighted gather takes those");
}

/// Rows from one side of the plan to the other: `from` is read, `to` is written.
void validate_move(const char* operation, const NamedRows& from, const NamedRows& to, const ConstPlanView& plan,
                   const Weights& weights) {
  validate_same(operation, to.name, to.view, from.name, from.view);
  validate_weights(operation, weights, plan.sizes, from.view.type);
  const Extent outputs[] = {extent_of(to.name, to.view)};
  const Extent inputs[] = {extent_of(from.name, from.view), extent_of("weights", weights)};
  validate_disjoint(operation, outputs, inputs);
  validate_disjoint(operation, outputs, extents_of(plan));
}

void validate_gather(const char* operation, const NamedRows& x, const NamedRows& y, const ConstPlanView& plan,
                     const Weights& weights) {
  validate_rows(operation, x.name, x.view, plan.sizes.tokens, false);
  validate_rows(operation, y.name, y.view, plan.sizes.expert_rows(), true);
  validate_move(operation, x, y, plan, weights);
}

void validate_scatter(const char* operation, const NamedRows& y, const NamedRows& out, const ConstPlanView& plan,
                      const Weights& weights) {
  require_float(operation, y);
  validate_rows(operation, y.name, y.view, plan.sizes.expert_rows(), false);
  validate_rows(operation, out.name, out.view, plan.sizes.tokens, true);
  validate_move(operation, y, out, plan, weights);
}

void validate_wgrad(const char* operation, const ConstPlanView& plan, const NamedRows& y, const NamedRows& grad,
                    const WeightGradients& dw) {
  require_float(operation, y);
  validate_rows(operation, y.name, y.view, plan.sizes.expert_rows(), false);
  validate_rows(operation, grad.name, grad.view, plan.sizes.tokens, false);
  validate_same(operation, grad.name, grad.view, y.name, y.view);
  validate_weight_gradients(operation, dw, plan.sizes);
  const Extent outputs[] = {extent_of("dw", dw)};
  const Extent inputs[] = {extent_of(y.name, y.view), extent_of(grad.name, grad.view)};
  validate_disjoint(operation, outputs, inputs);
  validate_disjoint(operation, outputs, extents_of(plan));
}

/// The workspace that plan runs in: the caller's, device memory of a staged call, or `own`.
void provide_workspace(const char* operation, Call& call, size_t wanted, const Context& context,
                       std::unique_ptr<char[]>& own) {
  Resources& resources = call.resources;
  if (resources.workspace != nullptr && resources.workspace_bytes < wanted)
    throw Error(ErrorKind::invalid_argument, operation,
                "the workspace has " + std::to_string(resources.workspace_bytes) + " bytes, but " +
                    std::to_string(wanted) + " are needed");
  if (call.staging.active()) {
    resources.workspace = call.staging.scratch(wanted);
  } else if (resources.workspace == nullptr && context.memory == Memory::host) {
    own.reset(new (std::nothrow) char[wanted]);
    if (own == nullptr) throw out_of_memory(operation, wanted);
    resources.workspace = own.get();
  } else if (resources.workspace == nullptr && wanted > 0) {
    throw Error(ErrorKind::invalid_argument, operation,
                "the workspace is null, but " + std::to_string(wanted) + " bytes of device memory are needed");
  }
}

/// Host backends find no id out of range that they would not have refused.
void set_clean_status(const PlanView& plan, const Context& context) {
  if (plan.status == nullptr || context.memory != Memory::host) return;
  plan.status[0] = 0;
  plan.status[1] = -1;
  plan.status[2] = 0;
}

}  // namespace

void plan(const Ids& expert_ids, DropPolicy policy, const Weights& priority, const PlanView& out,
          const Context& context) {
  constexpr const char* kOperation = "plan";
  validate_plan(kOperation, out);
  validate_ids(kOperation, expert_ids, out.sizes);
  validate_priority(kOperation, priority, policy, out.sizes);
  const Extent inputs[] = {extent_of("expert_ids", expert_ids), extent_of("weights", priority)};
  validate_disjoint(kOperation, extents_of(out), inputs);
  Call call(kOperation, context);
  if (policy == DropPolicy::by_weight) require_taken(kOperation, call.backend, {priority.type});
  const size_t wanted = call.run().plan_workspace_bytes(out.sizes, policy, priority.type, call.resources.executor);
  std::unique_ptr<char[]> own;
  provide_workspace(kOperation, call, wanted, context, own);
  const PlanView placed = call.staging.out(out);
  const PlanJob job = {call.staging.in(expert_ids), policy, call.staging.in(priority), placed};
  auto fault = guarded(kOperation, out.sizes, [&] { return call.run().plan(job, call.resources); });
  if (call.staging.active()) fault = call.staging.fault_of(placed, out.sizes.num_experts);
  if (fault) throw Error(kOperation, *fault);
  call.staging.finish();
  set_clean_status(out, context);
}

void plan_from_bins(const Bins& bins, const PlanView& out, const Context& context) {
  constexpr const char* kOperation = "plan_from_bins";
  validate_plan(kOperation, out);
  validate_bins(kOperation, bins, out.sizes);
  const Extent inputs[] = {extent_of("the input's indices", bins.indices, bins.count),
                           extent_of("the input's bin_ids", bins.bin_ids, bins.count),
                           extent_of("the input's bins", bins.bins, bins.num_experts)};
  validate_disjoint(kOperation, extents_of(out), inputs);
  Call call(kOperation, context);
  if (context.memory == Memory::host)
    if (const auto fault = check_bins(bins, out.sizes)) throw Error(kOperation, *fault);
  const PlanFromBinsJob job = {call.staging.in(bins), call.staging.out(out)};
  guarded(kOperation, out.sizes, [&] { call.run().plan_from_bins(job, call.resources); });
  call.staging.finish();
  set_clean_status(out, context);
}

size_t plan_workspace_bytes(const Sizes& sizes, DropPolicy policy, DType priority_type, const Context& context) {
  constexpr const char* kOperation = "plan_workspace_bytes";
  validate_sizes(kOperation, sizes);
  const Backend& backend = chosen(kOperation, context);
  return backend.operations->plan_workspace_bytes(sizes, policy, priority_type, resources_of(context).executor);
}

void gather(const ConstPlanView& plan, const ConstRows& x, const Weights& weights, const Rows& y,
            const Context& context) {
  constexpr const char* kOperation = "gather";
  validate_plan(kOperation, plan);
  validate_gather(kOperation, {"x", x}, {"y", y}, plan, weights);
  Call call(kOperation, context);
  require_taken(kOperation, call.backend, {x.type, weights.data != nullptr ? weights.type : x.type});
  Staging& s = call.staging;
  call.run().gather({s.in(plan), s.in(x), s.in(weights), s.out(y)}, call.resources);
  s.finish();
}

void scatter(const ConstPlanView& plan, const ConstRows& y, const Weights& weights, const Rows& out,
             const Context& context) {
  constexpr const char* kOperation = "scatter";
  validate_plan(kOperation, plan);
  validate_scatter(kOperation, {"y", y}, {"out", out}, plan, weights);
  Call call(kOperation, context);
  require_taken(kOperation, call.backend, {y.type, weights.data != nullptr ? weights.type : y.type});
  Staging& s = call.staging;
  call.run().scatter({s.in(plan), s.in(y), s.in(weights), s.out(out)}, call.resources);
  s.finish();
}

void wgrad(const ConstPlanView& plan, const ConstRows& y, const ConstRows& grad, const WeightGradients& dw,
           const Context& context) {
  constexpr const char* kOperation = "wgrad";
  validate_plan(kOperation, plan);
  validate_wgrad(kOperation, plan, {"y", y}, {"grad", grad}, dw);
  Call call(kOperation, context);
  require_taken(kOperation, call.backend, {y.type, dw.type});
  Staging& s = call.staging;
  call.run().wgrad({s.in(plan), s.in(y), s.in(grad), s.out(dw)}, call.resources);
  s.finish();
}

void scatter_backward(const ConstPlanView& plan, const ConstRows& y, const ConstRows& grad, const Weights& weights,
                      const Rows& dy, const WeightGradients& dw, const Context& context) {
  constexpr const char* kOperation = "scatter_backward";
  validate_plan(kOperation, plan);
  require_float(kOperation, {"grad", grad});
  validate_gather(kOperation, {"grad", grad}, {"dy", dy}, plan, weights);
  if (dw.data != nullptr) {
    validate_wgrad(kOperation, plan, {"y", y}, {"grad", grad}, dw);
    const Extent outputs[] = {extent_of("dy", dy), extent_of("dw", dw)};
    const Extent inputs[] = {extent_of("y", y), extent_of("weights", weights)};
    validate_disjoint(kOperation, outputs, inputs);
  }
  Call call(kOperation, context);
  require_taken(
      kOperation, call.backend,
      {grad.type, weights.data != nullptr ? weights.type : grad.type, dw.data != nullptr ? dw.type : grad.type});
  Staging& s = call.staging;
  const ConstRows placed_y = dw.data != nullptr ? s.in(y) : y;
  call.run().scatter_backward({s.in(plan), placed_y, s.in(grad), s.in(weights), s.out(dy), s.out(dw)}, call.resources);
  s.finish();
}

void gather_backward(const ConstPlanView& plan, const ConstRows& dy, const Weights& weights, const ConstRows& x,
                     const Rows& dx, const WeightGradients& dw, const Context& context) {
  constexpr const char* kOperation = "gather_backward";
  validate_plan(kOperation, plan);
  validate_scatter(kOperation, {"dy", dy}, {"dx", dx}, plan, weights);
  if (dw.data != nullptr) {
    validate_wgrad(kOperation, plan, {"dy", dy}, {"x", x}, dw);
    const Extent outputs[] = {extent_of("dx", dx), extent_of("dw", dw)};
    const Extent inputs[] = {extent_of("x", x), extent_of("weights", weights)};
    validate_disjoint(kOperation, outputs, inputs);
  }
  Call call(kOperation, context);
  require_taken(kOperation, call.backend,
                {dy.type, weights.data != nullptr ? weights.type : dy.type, dw.data != nullptr ? dw.type : dy.type});
  Staging& s = call.staging;
  const ConstPlanView placed_plan = s.in(plan);
  const ConstRows placed_dy = s.in(dy);
  call.run().scatter({placed_plan, placed_dy, s.in(weights), s.out(dx)}, call.resources);
  if (dw.data != nullptr) call.run().wgrad({placed_plan, placed_dy, s.in(x), s.out(dw)}, call.resources);
  s.finish();
}

}  // namespace binmoe
