#include "validate.h"

#include <string>

namespace binmoe {
namespace {

constexpr int64_t kMapLimit = int64_t{1} << 31;

std::string text(int64_t value) {
  return std::to_string(value);
}

[[noreturn]] void refuse(const char* operation, const std::string& message) {
  throw Error(ErrorKind::invalid_argument, operation, message);
}

void require_pointer(const char* operation, const char* name, const void* data, int64_t count) {
  if (data == nullptr && count > 0)
    refuse(operation, std::string(name) + " is null, but has " + text(count) + " entries");
}

bool is_float(DType type) {
  return type == DType::f32 || type == DType::f64 || type == DType::bf16 || type == DType::f16;
}

void check_overlap(const char* operation, const Extent& out, const Extent& other) {
  if (out.begin < other.end && other.begin < out.end)
    refuse(operation, std::string(out.name) + " overlaps " + other.name + " in memory; an output needs its own");
}

}  // namespace

void validate_sizes(const char* operation, const Sizes& s) {
  if (s.tokens < 0) refuse(operation, "tokens is " + text(s.tokens) + ", but must not be negative");
  if (s.top_k < 1) refuse(operation, "top_k is " + text(s.top_k) + ", but must be at least 1");
  if (s.num_experts < 1) refuse(operation, "num_experts is " + text(s.num_experts) + ", but must be at least 1");
  if (s.expert_capacity < 0)
    refuse(operation, "expert_capacity is " + text(s.expert_capacity) + ", but must not be negative");
  if (s.tokens >= kMapLimit || s.assignments() >= kMapLimit)
    refuse(operation, "tokens * top_k is " + text(s.tokens) + " * " + text(s.top_k) + ", but must be below 2^31");
  if (s.expert_rows() >= kMapLimit)
    refuse(operation, "num_experts * expert_capacity is " + text(s.num_experts) + " * " + text(s.expert_capacity) +
                          ", but must be below 2^31");
}

void validate_plan(const char* operation, const ConstPlanView& plan) {
  validate_sizes(operation, plan.sizes);
  const int64_t assignments = plan.sizes.assignments();
  require_pointer(operation, "indices", plan.indices, assignments);
  require_pointer(operation, "bin_ids", plan.bin_ids, assignments);
  require_pointer(operation, "row_of_assignment", plan.row_of_assignment, assignments);
  require_pointer(operation, "bins", plan.bins, plan.sizes.num_experts);
  require_pointer(operation, "tokens_per_expert", plan.tokens_per_expert, plan.sizes.num_experts);
  require_pointer(operation, "kept_per_expert", plan.kept_per_expert, plan.sizes.num_experts);
}

void validate_bins(const char* operation, const Bins& bins, const Sizes& sizes) {
  validate_sizes(operation, sizes);
  if (bins.num_experts != sizes.num_experts)
    refuse(operation, "bins has " + text(bins.num_experts) + " entries, but num_experts is " + text(sizes.num_experts));
  if (bins.count < 0 || bins.count > sizes.assignments())
    refuse(operation, "indices has " + text(bins.count) + " entries, but there are " + text(sizes.assignments()) +
                          " assignments (tokens * top_k)");
  require_pointer(operation, "bins", bins.bins, bins.num_experts);
  require_pointer(operation, "indices", bins.indices, bins.count);
}

void validate_ids(const char* operation, const Ids& ids, const Sizes& sizes) {
  if (size_of(ids.type) == 0) refuse(operation, "expert_ids has an unknown type");
  if (ids.count != sizes.assignments())
    refuse(operation,
           "expert_ids has " + text(ids.count) + " entries, but tokens * top_k is " + text(sizes.assignments()));
  require_pointer(operation, "expert_ids", ids.data, ids.count);
}

void validate_rows(const char* operation, const char* name, const ConstRows& view, int64_t rows, bool out) {
  const std::string prefix = name;
  if (!is_float(view.type) && view.type != DType::bytes) refuse(operation, prefix + " has an unknown dtype");
  if (view.type == DType::bytes && view.element_bytes < 1)
    refuse(operation, prefix + " holds bytes, but its element_bytes is " + text(view.element_bytes));
  if (view.rows != rows)
    refuse(operation, prefix + " has " + text(view.rows) + " rows, but the plan was made for " + text(rows));
  if (view.cols < 0) refuse(operation, prefix + " has " + text(view.cols) + " columns, but must not be negative");
  if (rows > 1 && view.cols > 0 && view.stride < (out ? view.cols : 0))
    refuse(operation, prefix + " has a row stride of " + text(view.stride) + ", but must be at least " +
                          text(out ? view.cols : 0));
  int64_t elements = 0, bytes = 0;
  if (rows > 0 && view.cols > 0 &&
      (__builtin_mul_overflow(rows - 1, view.stride, &elements) ||
       __builtin_add_overflow(elements, view.cols, &elements) ||
       __builtin_mul_overflow(elements, view.element_size(), &bytes)))
    refuse(operation, prefix + " is larger than 2^63 bytes");
  if (rows > 0) require_pointer(operation, name, view.data, view.cols);
}

void validate_same(const char* operation, const char* name, const ConstRows& view, const char* other_name,
                   const ConstRows& other) {
  if (view.type != other.type || view.element_size() != other.element_size())
    refuse(operation, std::string(name) + " holds " + name_of(view.type) + ", but " + other_name + " holds " +
                          name_of(other.type) + "; all rows of a call share one dtype");
  if (view.cols != other.cols)
    refuse(operation, std::string(name) + " has a hidden size of " + text(view.cols) + ", but " + other_name + " has " +
                          text(other.cols));
}

void validate_weights(const char* operation, const Weights& weights, const Sizes& sizes, DType row_type) {
  if (weights.data == nullptr) {
    if (weights.count > 0) require_pointer(operation, "weights", nullptr, weights.count);
    return;
  }
  if (row_type == DType::bytes)
    refuse(operation, "rows of bytes cannot be weighted; give them a float dtype or leave the weights out");
  if (!is_float(weights.type)) refuse(operation, "weights must be f32, f64, bf16 or f16");
  if (weights.type == DType::f64 && row_type != DType::f64)
    refuse(operation, std::string("weights are f64, but the rows are ") + name_of(row_type) +
                          "; f64 weights go with f64 rows only");
  if (weights.count != sizes.assignments())
    refuse(operation, "weights has " + text(weights.count) + " entries, but the plan has " + text(sizes.assignments()) +
                          " assignments");
}

void validate_priority(const char* operation, const Weights& priority, DropPolicy policy, const Sizes& sizes) {
  if (policy > DropPolicy::by_weight) refuse(operation, "unknown drop policy");
  const bool present = priority.data != nullptr || priority.count > 0;
  if (policy != DropPolicy::by_weight && present)
    refuse(operation, std::string("weights were given, but the policy ") + name_of(policy) + " does not use them");
  if (policy != DropPolicy::by_weight) return;
  if (!present && sizes.assignments() > 0) refuse(operation, "the policy by_weight needs weights");
  validate_weights(operation, priority, sizes, DType::f64);
}

void validate_weight_gradients(const char* operation, const Weights& dw, const Sizes& sizes) {
  if (!is_float(dw.type)) refuse(operation, "dw must be f32, f64, bf16 or f16");
  if (dw.count != sizes.assignments())
    refuse(operation,
           "dw has " + text(dw.count) + " entries, but the plan has " + text(sizes.assignments()) + " assignments");
  require_pointer(operation, "dw", dw.data, dw.count);
}

Extent extent_of(const char* name, const ConstRows& view) {
  const auto* begin = static_cast<const char*>(view.data);
  if (view.rows == 0 || view.cols == 0 || begin == nullptr) return {name, begin, begin};
  const int64_t elements = (view.rows - 1) * view.stride + view.cols;
  return {name, begin, begin + elements * view.element_size()};
}

Extent extent_of(const char* name, const Weights& weights) {
  const auto* begin = static_cast<const char*>(weights.data);
  return {name, begin, begin == nullptr ? begin : begin + weights.count * size_of(weights.type)};
}

Extent extent_of(const char* name, const Ids& ids) {
  const auto* begin = static_cast<const char*>(ids.data);
  return {name, begin, begin == nullptr ? begin : begin + ids.count * size_of(ids.type)};
}

Extent extent_of(const char* name, const int32_t* array, int64_t count) {
  const auto* begin = reinterpret_cast<const char*>(array);
  return {name, begin, begin == nullptr ? begin : begin + count * static_cast<int64_t>(sizeof(int32_t))};
}

std::array<Extent, 7> extents_of(const ConstPlanView& plan) {
  const int64_t assignments = plan.sizes.assignments(), experts = plan.sizes.num_experts;
  const auto* status = reinterpret_cast<const char*>(plan.status);
  return {extent_of("the plan's indices", plan.indices, assignments),
          extent_of("the plan's bin_ids", plan.bin_ids, assignments),
          extent_of("the plan's row_of_assignment", plan.row_of_assignment, assignments),
          extent_of("the plan's bins", plan.bins, experts),
          extent_of("the plan's tokens_per_expert", plan.tokens_per_expert, experts),
          extent_of("the plan's kept_per_expert", plan.kept_per_expert, experts),
          {"the plan's status", status, status == nullptr ? status : status + 3 * sizeof(int64_t)}};
}

void validate_disjoint(const char* operation, std::span<const Extent> outputs, std::span<const Extent> inputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (size_t j = i + 1; j < outputs.size(); ++j) check_overlap(operation, outputs[i], outputs[j]);
    for (const Extent& input : inputs) check_overlap(operation, outputs[i], input);
  }
}

Error out_of_memory(const char* operation, size_t bytes) {
  return Error(ErrorKind::out_of_memory, operation, "cannot allocate " + std::to_string(bytes) + " bytes");
}

}  // namespace binmoe
