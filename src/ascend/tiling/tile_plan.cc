#include "ascend/tiling/tile_plan.h"

#include <algorithm>
#include <cmath>

#include "ascend/tiling/buffers.h"
#include "ascend/tiling/plan_tile.h"
#include "ascend/tiling/triton.h"

namespace binmoe::ascend {
namespace {

constexpr int64_t kSlotBytes = 16 * 1024;  // transfers from here on use the bandwidth best (docs/ascend.md, section 1)
constexpr int64_t kSlotBytesOfToken = 32 * 1024;  // one slot for all rows of a token spares the scalar unit work
constexpr int64_t kBurstAlignment = 512;
constexpr int64_t kVectorBytes = 255 * 256;  // of one vector instruction: 255 repeats
constexpr int64_t kFloatBytes = 4;
constexpr double kMemoryBytesPerUs = 1.8e6;      // docs/ascend.md, section 1
constexpr double kScalarUsPerAssignment = 0.05;  // of the plan's scalar unit, as the model has it
constexpr double kClearlyFaster = 0.9;           // by the rounding of shares alone, an estimate is no finer

/// Slots of rows and of results, the best first.
constexpr std::pair<int32_t, int32_t> kDepths[] = {{4, 4}, {4, 3}, {3, 3}, {4, 2}, {3, 2}, {2, 2}};

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorKind::invalid_argument, "tile", message);
}

void validate(const TileRequest& r) {
  if (r.soc == nullptr) refuse("a SoC is needed");
  if (r.tokens < 0 || r.hidden_size < 0 || r.expert_capacity < 0)
    refuse("tokens, hidden_size and expert_capacity must not be negative");
  if (r.top_k < 1) refuse("top_k is " + std::to_string(r.top_k) + ", but must be at least 1");
  if (r.num_experts < 1) refuse("num_experts is " + std::to_string(r.num_experts) + ", but must be at least 1");
  if (r.op != Op::plan && r.family == Family::ascendc && r.expert_capacity > INT32_MAX)
    refuse("expert_capacity is " + std::to_string(r.expert_capacity) + ", but must be below 2^31");
  int64_t assignments = 0;
  if (__builtin_mul_overflow(r.tokens, int64_t{r.top_k}, &assignments)) refuse("tokens * top_k passes 2^63");
  const auto is_taken = [](DType type) { return type == DType::f32 || type == DType::bf16 || type == DType::f16; };
  const bool copied = r.rows == DType::bytes && r.op == Op::gather && !r.weights && r.family == Family::ascendc;
  if (!copied && !is_taken(r.rows))
    refuse(std::string("rows of ") + name_of(r.rows) + " are not taken; there are: f32, bf16, f16");
  if (r.weights && !is_taken(*r.weights))
    refuse(std::string("weights of ") + name_of(*r.weights) + " are not taken; there are: f32, bf16, f16");
  if (!is_taken(r.dw)) refuse(std::string("dw of ") + name_of(r.dw) + " is not taken; there are: f32, bf16, f16");
  if (r.order && r.op != Op::gather) refuse("only gather has orders");
}

/// Checked, and without the weights that wgrad and plan do not take.
TileRequest without_unused(TileRequest r) {
  validate(r);
  if (r.op == Op::wgrad || (r.op == Op::plan && r.policy != DropPolicy::by_weight)) r.weights.reset();
  return r;
}

/// Columns of a tile when a row is cut in `tiles`: the row, or a multiple of 512 bytes (of 32 in short rows).
int64_t columns_of(const TileRequest& r, int64_t tiles) {
  if (tiles == 1) return r.hidden_size;
  const int64_t size = row_element_bytes(r), bytes = (r.hidden_size + tiles - 1) / tiles * size;
  return round_up(bytes, r.hidden_size * size >= 2 * kBurstAlignment ? kBurstAlignment : kUbLine) / size;
}

void sum_buffers(MoverPlan& plan) {
  plan.ub_bytes = 0;
  for (TileBuffer& buffer : plan.buffers) {
    buffer.bytes = round_up(buffer.bytes, kUbLine);
    plan.ub_bytes += buffer.bytes * buffer.count;
  }
  plan.ub_limit_bytes = plan.request.soc->ub_limit_bytes;
}

/// Rows that one vector instruction can take in f32.
int64_t rows_of_instruction(const TileRequest& r, int64_t pitch) {
  return std::max<int64_t>(1, kVectorBytes / (pitch / row_element_bytes(r) * kFloatBytes));
}

int64_t large_rows(int64_t pitch) {
  return std::clamp<int64_t>(kSlotBytes / pitch, 1, binmoe_ascend::kMaxSlotRows);
}

/// Rows of a slot: as many as make a large transfer; of one token's rows also more, up to all of them.
int64_t slot_rows_of(const TileRequest& r, int64_t pitch) {
  if (r.op == Op::gather && r.weights) return std::min(large_rows(pitch), rows_of_instruction(r, pitch));
  if (r.op == Op::gather) return large_rows(pitch);
  if (r.op == Op::scatter)
    return std::min<int64_t>(large_rows(pitch), r.top_k);  // 6 rows of 4 KiB a slot: .90 of the bound, 4: .93
  const int64_t of_token = std::min<int64_t>(kSlotBytesOfToken / pitch, binmoe_ascend::kMaxSlotRows);
  return std::min({std::max(large_rows(pitch), of_token), rows_of_instruction(r, pitch), int64_t{r.top_k}});
}

/// The deepest queues that fit, with the largest slots that then fit; more tiles last.
MoverPlan fit(const TileRequest& r, Order order) {
  int64_t least = -1;
  for (int64_t tiles = 1;; tiles = tiles < 8 ? tiles + 1 : tiles * 2) {
    const int64_t columns = columns_of(r, tiles);
    const int64_t pitch = round_up(std::max<int64_t>(columns, 1) * row_element_bytes(r), kUbLine);
    const bool smallest = columns * row_element_bytes(r) <= kBurstAlignment;
    const bool computed = r.op != Op::gather || r.weights;
    if (computed && columns * kFloatBytes > kVectorBytes) continue;
    const int64_t most = slot_rows_of(r, pitch);
    for (const bool enough : {true, false}) {  // slots of large transfers first
      const int64_t fewest = enough ? std::min(most, large_rows(pitch)) : 1;
      for (const auto& [slots, out_slots] : kDepths) {
        if (slots < 3 && !smallest) continue;
        for (int64_t rows = most; rows >= fewest; --rows) {
          MoverPlan plan = shape(r, order, columns, {slots, out_slots, static_cast<int32_t>(rows)});
          sum_buffers(plan);
          if (plan.ub_bytes <= plan.ub_limit_bytes) return plan;
          if (least < 0 || plan.ub_bytes < least) least = plan.ub_bytes;
        }
      }
    }
    if (smallest) break;
  }
  refuse(std::string(name_of(r.op)) + " in " + name_of(order) + " order wants at least " + std::to_string(least) +
         " bytes of UB, but " + r.soc->name + " has " + std::to_string(r.soc->ub_limit_bytes));
}

/// Bytes moved when the kept rows are as many as can be: min(T*K, E*C).
double bytes_moved(const TileRequest& r, Order order) {
  const auto row = static_cast<double>(r.hidden_size * row_element_bytes(r));
  const double tokens = static_cast<double>(r.tokens), assignments = tokens * r.top_k;
  const double expert_rows = static_cast<double>(r.num_experts) * static_cast<double>(r.expert_capacity);
  const double kept = std::min(assignments, expert_rows), used = std::min(tokens, kept);
  const double maps = 4 * assignments * (r.weights ? 2 : 1);
  switch (r.op) {
    case Op::plan:
      return 16 * assignments;
    case Op::gather:
      return ((order == Order::token ? used : kept) + expert_rows) * row + maps;
    case Op::scatter:
      return (kept + tokens) * row + maps;
    case Op::wgrad:
      return (used + kept) * row + maps + 4 * assignments;
    case Op::scatter_backward:
      return (used + kept + expert_rows) * row + maps + 4 * assignments;
  }
  return 0;
}

void estimate(TilePlan& plan) {
  const double bytes = bytes_moved(plan.request, plan.order);
  const int64_t blocks = (plan.items + plan.items_per_block - 1) / std::max<int64_t>(plan.items_per_block, 1);
  const double even = static_cast<double>(blocks) / std::max(1, plan.num_programs);
  const double uneven = even > 0 ? std::ceil(even) / even : 1;  // the busiest program's share over the mean
  plan.estimate_us =
      std::max(bytes / kMemoryBytesPerUs, bytes * uneven / plan.num_programs / kCoreBytesPerUs) + 2 * kLatencyUs;
}

}  // namespace

const char* name_of(Family family) {
  return family == Family::ascendc ? "ascendc" : "triton";
}

const char* name_of(RowCopy form) {
  switch (form) {
    case RowCopy::indexed_load:
      return "indexed_load";
    case RowCopy::element_insert:
      return "element_insert";
    case RowCopy::index_select:
      return "index_select";
  }
  return "unknown";
}

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
  }
  return "unknown";
}

const char* name_of(Order order) {
  return order == Order::token ? "token" : "expert";
}

MoverPlan mover_plan(const TileRequest& asked) {
  const TileRequest request = without_unused(asked);
  MoverPlan plan = fit(request, request.order.value_or(Order::token));
  estimate(plan);
  if (request.op != Op::gather || request.order) return plan;
  // Expert order reads a row once per kept choice, token order once per token: it is the faster one in few cases.
  try {
    MoverPlan by_expert = fit(request, Order::expert);
    estimate(by_expert);
    return by_expert.estimate_us < plan.estimate_us * kClearlyFaster ? by_expert : plan;
  } catch (const Error&) {
    return plan;  // it does not fit
  }
}

namespace {

/// The plan's kernels as one tile plan: the buffers of the launch that takes most.
TilePlan plan_of_plan(const TileRequest& r) {
  if (r.expert_capacity > INT32_MAX) refuse("expert_capacity must be below 2^31");
  PlanRequest request;
  request.soc = r.soc;
  request.sizes = {r.tokens, r.top_k, r.num_experts, static_cast<int32_t>(r.expert_capacity)};
  request.policy = r.policy;
  request.priority = r.weights.value_or(DType::f32);
  const PlanTiling tiling = plan_tiling(request);
  TilePlan plan;
  plan.request = r;
  plan.num_programs = tiling.num_programs;
  plan.items = request.sizes.assignments();
  plan.items_per_block = plan.sub_block_size = tiling.experts.block_positions;
  plan.ub_bytes = tiling.ub_bytes;
  plan.ub_limit_bytes = tiling.ub_limit_bytes;
  for (const PlanLaunch& launch : tiling.launches)
    if (launch.ub_bytes == tiling.ub_bytes) plan.buffers = launch.buffers;
  const double passes = 1 + tiling.digit_passes;
  plan.estimate_us = passes * static_cast<double>(plan.items) / plan.num_programs * kScalarUsPerAssignment;
  return plan;
}

}  // namespace

TilePlan tile_plan(const TileRequest& asked) {
  const TileRequest request = without_unused(asked);
  if (request.op == Op::plan && request.family == Family::triton)
    refuse("a plan has no Triton kernel: it is made of torch operations");
  if (request.op == Op::plan) return plan_of_plan(request);
  if (request.family == Family::ascendc) return mover_plan(request);
  TilePlan plan = triton_plan(request, request.order.value_or(Order::token));
  estimate(plan);
  return plan;
}

}  // namespace binmoe::ascend
