// binmoe::ascend::simulate: one operation on the model, with tensors that have no memory behind them.
#include <numeric>

#include "ascend/model/run_plan.h"
#include "ascend/model/runner.h"
#include "binmoe/plan.h"
#include "validate.h"

namespace binmoe::ascend {
namespace {

constexpr vector_core::ReplayOptions kSlowScalar = {.scalar_factor = 2, .issue_queue = 8};

PipeWork work_of(const vector_core::PipeStats& pipe) {
  return {pipe.operations, pipe.bytes, pipe.bursts, pipe.waits};
}

LaunchReport report_of(const vector_core::Machine& machine, const vector_core::Launch& launch) {
  LaunchReport out;
  out.kernel = launch.kernel;
  out.ub_high_water = launch.ub_high_water;
  out.gm_read_bytes = launch.gm_read_bytes;
  out.gm_written_bytes = launch.gm_written_bytes;
  for (const vector_core::CoreStats& core : launch.cores)
    out.programs.push_back({work_of(core.of(vector_core::Pipe::scalar)), work_of(core.of(vector_core::Pipe::vector)),
                            work_of(core.of(vector_core::Pipe::mte2)), work_of(core.of(vector_core::Pipe::mte3)),
                            core.scalar_reads, core.scalar_writes, core.scalar_operations});
  for (ProgramWork& program : out.programs)
    program.scalar.operations = program.scalar_reads + program.scalar_writes + program.scalar_operations;
  out.estimate_us = vector_core::estimate(machine.profile(), launch).seconds * 1e6;
  out.estimate_slow_scalar_us = vector_core::estimate(machine.profile(), launch, kSlowScalar).seconds * 1e6;
  return out;
}

/// Minimum bytes of docs/design.md, section 6.
int64_t minimum_bytes(const TileRequest& r, const ConstPlanView& plan) {
  const Load load = load_of(plan);
  const int64_t assignments = plan.sizes.assignments(), top_k = plan.sizes.top_k, rows = plan.sizes.expert_rows();
  const int64_t row = r.hidden_size * size_of(r.rows), maps = 4 * assignments;
  const int64_t weights = r.weights ? size_of(*r.weights) * assignments : 0;
  int64_t used = 0;
  for (int64_t t = 0; t < plan.sizes.tokens; ++t) {
    int64_t kept = 0;
    for (int64_t a = t * top_k; a < (t + 1) * top_k; ++a) kept += plan.row_of_assignment[a] >= 0;
    used += kept > 0;
  }
  switch (r.op) {
    case Op::plan:
      return 2 * maps + 8 * (load.kept + load.dropped) + 12 * plan.sizes.num_experts;
    case Op::gather:
      return (used + rows) * row + 4 * load.kept;
    case Op::scatter:
      return (load.kept + plan.sizes.tokens) * row + maps + weights;
    case Op::wgrad:
      return (used + load.kept) * row + maps + size_of(r.dw) * assignments;
    case Op::scatter_backward:
      return (used + load.kept + rows) * row + maps + weights + size_of(r.dw) * assignments;
  }
  return 0;
}

/// expert_ids that give this plan (under token_order).
std::vector<int32_t> ids_of(const ConstPlanView& plan) {
  std::vector<int32_t> ids(static_cast<size_t>(plan.sizes.assignments()), -1);
  const int32_t count = plan.bins[plan.sizes.num_experts - 1];
  for (int32_t p = 0; p < count; ++p) ids[static_cast<size_t>(plan.indices[p])] = plan.bin_ids[p];
  return ids;
}

void run(vector_core::Machine& machine, const MoverPlan& tile, const ConstPlanView& plan) {
  const TileRequest& r = tile.request;
  const auto rows = [&](int64_t count) { return Rows{nullptr, count, r.hidden_size, r.hidden_size, r.rows}; };
  const Rows x = rows(plan.sizes.tokens), y = rows(plan.sizes.expert_rows());
  // Weights are read as scalars, so they need values; ones do.
  const std::vector<float> ones(static_cast<size_t>(plan.sizes.assignments()), 1.0f);
  const std::vector<uint16_t> halves(ones.size(), r.weights == DType::bf16 ? 0x3f80 : 0x3c00);
  Weights weights;
  if (r.weights == DType::f32)
    weights = {ones.data(), static_cast<int64_t>(ones.size()), DType::f32};
  else if (r.weights)
    weights = {halves.data(), static_cast<int64_t>(halves.size()), *r.weights};
  const WeightGradients dw{nullptr, plan.sizes.assignments(), r.dw};
  switch (r.op) {
    case Op::plan:
      break;
    case Op::gather:
      return run_gather(machine, tile, {plan, x, weights, y});
    case Op::scatter:
      return run_scatter(machine, tile, {plan, y, weights, x});
    case Op::wgrad:
      return run_wgrad(machine, tile, {plan, y, x, dw});
    case Op::scatter_backward:
      return run_scatter_backward(machine, tile, {plan, y, x, weights, y, dw});
  }
}

}  // namespace

Simulation simulate(const TileRequest& asked, const ConstPlanView& plan, std::string* chrome_trace) {
  validate_plan("simulate", plan);
  TileRequest request = asked;
  if (request.op == Op::wgrad) request.weights.reset();  // it takes none
  Simulation out;
  vector_core::Machine machine(profile_of(*request.soc));
  if (request.op == Op::plan) {
    out.tile = tile_plan(request);
    const std::vector<int32_t> ids = ids_of(plan);
    Plan made(plan.sizes);
    const std::vector<float> ones(ids.size(), 1.0f);
    const std::vector<uint16_t> halves(ids.size(), 0x3c00);
    Weights priority;
    if (request.policy == DropPolicy::by_weight) {
      priority = {ones.data(), static_cast<int64_t>(ids.size()), request.weights.value_or(DType::f32)};
      if (priority.type != DType::f32) priority.data = halves.data();
    }
    run_plan(machine, *request.soc,
             {{ids.data(), static_cast<int64_t>(ids.size()), IdType::i32}, request.policy, priority, made.view()});
  } else {
    const MoverPlan tile = mover_plan(request);
    out.tile = tile;
    run(machine, tile, plan);
  }
  if (chrome_trace != nullptr) chrome_trace->clear();
  for (const vector_core::Launch& launch : machine.launches()) {
    out.launches.push_back(report_of(machine, launch));
    out.estimate_us += out.launches.back().estimate_us;
    out.estimate_slow_scalar_us += out.launches.back().estimate_slow_scalar_us;
    if (chrome_trace != nullptr && chrome_trace->empty()) *chrome_trace = machine.chrome_trace(launch);
  }
  out.minimum_bytes = minimum_bytes(request, plan);
  const auto bytes = static_cast<double>(out.minimum_bytes);
  const vector_core::Profile& profile = machine.profile();
  out.bound_us =
      1e6 * std::max(bytes / profile.gm_bytes_per_s, bytes / (profile.core_bytes_per_s * out.tile.num_programs));
  return out;
}

}  // namespace binmoe::ascend
