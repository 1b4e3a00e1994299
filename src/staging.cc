#include "staging.h"

#include <string>

#include "validate.h"

namespace binmoe {

Staging::Staging(const char* operation, const Backend& backend, const Context& context, Resources& resources)
    : operation_(operation),
      memory_(backend.operations->memory),
      resources_(resources),
      active_(backend.memory != context.memory) {}

Staging::~Staging() {
  for (void* block : blocks_) memory_->release(block, resources_);
}

void* Staging::scratch(size_t bytes) {
  if (bytes == 0) return nullptr;
  void* block = memory_->allocate(bytes, resources_);
  if (block == nullptr) throw out_of_memory(operation_, bytes);
  blocks_.push_back(block);
  return block;
}

void* Staging::place(const void* host, int64_t bytes) {
  constexpr uintptr_t kAlignment = 256;  // of a device block
  if (host == nullptr || bytes == 0) return const_cast<void*>(host);
  const size_t offset = reinterpret_cast<uintptr_t>(host) % kAlignment;
  char* device = static_cast<char*>(scratch(static_cast<size_t>(bytes) + offset)) + offset;
  memory_->copy_in(device, host, static_cast<size_t>(bytes), resources_);
  return device;
}

void* Staging::place_out(void* host, int64_t bytes) {
  void* device = place(host, bytes);
  if (device != host) outputs_.push_back({host, device, static_cast<size_t>(bytes)});
  return device;
}

namespace {

int64_t bytes_of(const Extent& extent) {
  return extent.end - extent.begin;
}

int64_t map_bytes(int64_t count) {
  return count * static_cast<int64_t>(sizeof(int32_t));
}

constexpr int64_t kStatusBytes = 3 * static_cast<int64_t>(sizeof(int64_t));

}  // namespace

ConstRows Staging::in(const ConstRows& rows) {
  ConstRows copy = rows;
  if (active_) copy.data = place(rows.data, bytes_of(extent_of("", rows)));
  return copy;
}

Weights Staging::in(const Weights& weights) {
  Weights copy = weights;
  if (active_) copy.data = place(weights.data, bytes_of(extent_of("", weights)));
  return copy;
}

Ids Staging::in(const Ids& ids) {
  Ids copy = ids;
  if (active_) copy.data = place(ids.data, bytes_of(extent_of("", ids)));
  return copy;
}

Bins Staging::in(const Bins& bins) {
  Bins copy = bins;
  if (!active_) return copy;
  copy.indices = static_cast<const int32_t*>(place(bins.indices, map_bytes(bins.count)));
  copy.bin_ids = static_cast<const int32_t*>(place(bins.bin_ids, map_bytes(bins.count)));
  copy.bins = static_cast<const int32_t*>(place(bins.bins, map_bytes(bins.num_experts)));
  return copy;
}

ConstPlanView Staging::in(const ConstPlanView& plan) {
  ConstPlanView copy = plan;
  if (!active_) return copy;
  const auto map = [&](const int32_t* array, int64_t count) {
    return static_cast<const int32_t*>(place(array, map_bytes(count)));
  };
  const int64_t assignments = plan.sizes.assignments(), experts = plan.sizes.num_experts;
  copy.indices = map(plan.indices, assignments);
  copy.bin_ids = map(plan.bin_ids, assignments);
  copy.row_of_assignment = map(plan.row_of_assignment, assignments);
  copy.bins = map(plan.bins, experts);
  copy.tokens_per_expert = map(plan.tokens_per_expert, experts);
  copy.kept_per_expert = map(plan.kept_per_expert, experts);
  return copy;
}

Rows Staging::out(const Rows& rows) {
  Rows copy = rows;
  if (active_) copy.data = place_out(rows.data, bytes_of(extent_of("", rows)));
  return copy;
}

WeightGradients Staging::out(const WeightGradients& gradients) {
  WeightGradients copy = gradients;
  if (active_) copy.data = place_out(gradients.data, bytes_of(extent_of("", gradients)));
  return copy;
}

PlanView Staging::out(const PlanView& plan) {
  PlanView copy = plan;
  if (!active_) return copy;
  const auto map = [&](int32_t* array, int64_t count) {
    return static_cast<int32_t*>(place_out(array, map_bytes(count)));
  };
  const int64_t assignments = plan.sizes.assignments(), experts = plan.sizes.num_experts;
  copy.indices = map(plan.indices, assignments);
  copy.bin_ids = map(plan.bin_ids, assignments);
  copy.row_of_assignment = map(plan.row_of_assignment, assignments);
  copy.bins = map(plan.bins, experts);
  copy.tokens_per_expert = map(plan.tokens_per_expert, experts);
  copy.kept_per_expert = map(plan.kept_per_expert, experts);
  copy.status = static_cast<int64_t*>(plan.status != nullptr ? place_out(plan.status, kStatusBytes)
                                                             : scratch(static_cast<size_t>(kStatusBytes)));
  return copy;
}

std::optional<Fault> Staging::fault_of(const PlanView& plan, int64_t num_experts) {
  int64_t status[3] = {};
  memory_->copy_out(status, plan.status, sizeof(status), resources_);
  if (status[0] == 0) return std::nullopt;
  return Fault{"expert_id_range", status[1], status[2], num_experts};
}

void Staging::finish() {
  for (const CopyBack& output : outputs_) memory_->copy_out(output.host, output.device, output.bytes, resources_);
}

}  // namespace binmoe
