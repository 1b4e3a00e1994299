#include "arguments.h"

#include <string>

#include "openmp_executor.h"

namespace binmoe::python {

int32_t narrow(const char* operation, const char* name, int64_t value) {
  if (value == static_cast<int32_t>(value)) return static_cast<int32_t>(value);
  throw Error(ErrorKind::invalid_argument, operation,
              std::string(name) + " is " + std::to_string(value) + ", but must be below 2^31");
}

Sizes sizes_of(const char* operation, const PlanArgument& argument) {
  const auto& [maps, tokens, top_k, num_experts, expert_capacity] = argument;
  return {tokens, narrow(operation, "top_k", top_k), narrow(operation, "num_experts", num_experts),
          narrow(operation, "expert_capacity", expert_capacity)};
}

namespace {

constexpr int64_t kStatusEntries = 6;

}  // namespace

int64_t block_length(const PlanArgument& argument) {
  const auto& [maps, tokens, top_k, num_experts, expert_capacity] = argument;
  const auto fits = [](int64_t value) { return value >= 0 && value >> 31 == 0; };
  if (!fits(tokens) || !fits(top_k) || !fits(num_experts) || !fits(expert_capacity)) return 0;
  if (top_k == 0 || num_experts == 0) return 0;
  if (!fits(tokens * top_k) || !fits(num_experts * expert_capacity)) return 0;
  return kStatusEntries + 3 * (tokens * top_k + num_experts);
}

PlanView plan_of(const char* operation, const PlanArgument& argument) {
  const Sizes sizes = sizes_of(operation, argument);
  auto* block = static_cast<int32_t*>(pointer(std::get<0>(argument)));
  PlanView plan{.sizes = sizes};
  if (block == nullptr || block_length(argument) == 0) return plan;  // dispatch says what is wrong
  const auto assignments = static_cast<uint64_t>(sizes.assignments());
  const auto experts = static_cast<uint64_t>(sizes.num_experts);
  plan.row_of_assignment = block;
  plan.indices = block + assignments;
  plan.status = reinterpret_cast<int64_t*>(block + 2 * assignments);
  plan.bin_ids = block + 2 * assignments + kStatusEntries;
  plan.bins = plan.bin_ids + assignments;
  plan.tokens_per_expert = plan.bins + experts;
  plan.kept_per_expert = plan.bins + 2 * experts;
  return plan;
}

Rows rows_of(const RowsArgument& argument) {
  const auto& [address, rows, cols, stride, type, element_bytes] = argument;
  return {pointer(address), rows, cols, stride, static_cast<DType>(type), element_bytes};
}

WeightGradients weights_of(const ArrayArgument& argument) {
  const auto& [address, count, type] = argument;
  return {pointer(address), count, static_cast<DType>(type)};
}

size_t workspace_bytes_of(const Sizes& sizes, DropPolicy policy, DType priority, const Context& context) {
  try {
    return plan_workspace_bytes(sizes, policy, priority, context);
  } catch (const Error& error) {
    const std::string what = error.what();
    const size_t prefix = std::string(error.operation()).size() + 3;  // "[operation] "
    throw Error(error.kind(), "plan", what.substr(prefix));
  }
}

Context context_of(const PlaceArgument& place) {
  Context context;
  context.executor = &openmp_executor();
  context.memory = static_cast<Memory>(std::get<0>(place));
  context.stream = pointer(std::get<1>(place));
  return context;
}

}  // namespace binmoe::python
