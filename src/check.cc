// What a plan must hold: the checks of docs/design.md, section 2, "Bad input". Arrays on a device are fetched first.
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "binmoe/operations.h"
#include "layout.h"
#include "staging.h"
#include "validate.h"

namespace binmoe {
namespace {

std::optional<Fault> check_bins_values(const int32_t* bins, int64_t num_experts) {
  int32_t before = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    if (bins[e] < 0) return Fault{"bins_nonnegative", e, bins[e], 0};
    if (bins[e] < before) return Fault{"bins_monotonic", e, bins[e], before};
    before = bins[e];
  }
  return std::nullopt;
}

std::optional<Fault> check_bin_ids(const int32_t* bin_ids, const int32_t* bins, int64_t num_experts) {
  int64_t p = 0;
  for (int64_t e = 0; e < num_experts; ++e)
    for (; p < bins[e]; ++p)
      if (bin_ids[p] != e) return Fault{"bin_ids", p, bin_ids[p], e};
  return std::nullopt;
}

/// Marks the assignments that stand in indices.
std::optional<Fault> check_indices(const int32_t* indices, int64_t count, int64_t assignments,
                                   std::vector<bool>& unmasked) {
  try {
    unmasked.resize(static_cast<size_t>(assignments));
  } catch (const std::bad_alloc&) {
    throw out_of_memory("check", static_cast<size_t>(assignments / 8 + 1));
  }
  for (int64_t p = 0; p < count; ++p) {
    const int32_t a = indices[p];
    if (a < 0 || a >= assignments) return Fault{"index_range", p, a, assignments};
    if (unmasked[static_cast<size_t>(a)]) {
      int64_t first = 0;
      while (indices[first] != a) ++first;
      return Fault{"index_unique", p, a, first};
    }
    unmasked[static_cast<size_t>(a)] = true;
  }
  return std::nullopt;
}

std::optional<Fault> check_value(const char* check, const int32_t* array, int64_t position, int64_t expected) {
  if (array[position] == expected) return std::nullopt;
  return Fault{check, position, array[position], expected};
}

/// Tails, counts and the inverse map of a plan whose first N entries are sound.
std::optional<Fault> check_derived(const ConstPlanView& plan, const std::vector<bool>& unmasked) {
  const Sizes& s = plan.sizes;
  for (int64_t p = plan.bins[s.num_experts - 1]; p < s.assignments(); ++p) {
    if (auto fault = check_value("indices_tail", plan.indices, p, -1)) return fault;
    if (auto fault = check_value("bin_ids_tail", plan.bin_ids, p, s.num_experts)) return fault;
  }
  for (int64_t e = 0; e < s.num_experts; ++e) {
    const int64_t begin = e > 0 ? plan.bins[e - 1] : 0;
    const int64_t tokens = plan.bins[e] - begin;
    const int64_t kept = tokens < s.expert_capacity ? tokens : s.expert_capacity;
    if (auto fault = check_value("tokens_per_expert", plan.tokens_per_expert, e, tokens)) return fault;
    if (auto fault = check_value("kept_per_expert", plan.kept_per_expert, e, kept)) return fault;
    const int64_t first_row = expert_rows(plan, e).begin;
    for (int64_t p = begin; p < plan.bins[e]; ++p) {
      const int64_t row = p - begin < kept ? first_row + p - begin : -1;
      if (auto fault = check_value("row_of_assignment", plan.row_of_assignment, plan.indices[p], row)) return fault;
    }
  }
  for (int64_t a = 0; a < s.assignments(); ++a)
    if (!unmasked[static_cast<size_t>(a)])
      if (auto fault = check_value("row_of_assignment", plan.row_of_assignment, a, -1)) return fault;
  return std::nullopt;
}

/// The memory and the way there of arrays that `context` says are on a device.
struct Device {
  explicit Device(const Context& context)
      : backend(context.backend != nullptr ? *context.backend : default_backend(context.memory)),
        resources{default_executor(), "", nullptr, 0, context.stream} {
    if (backend.memory != context.memory || backend.unsupported != nullptr)
      throw Error(ErrorKind::unsupported, "check",
                  std::string("the arrays are on a device, but the backend ") + backend.name + " cannot read them");
  }
  template <class T>
  std::vector<T> fetch(const T* array, int64_t count) const {
    try {
      return array == nullptr ? std::vector<T>{} : binmoe::fetch(backend, resources, array, count);
    } catch (const std::bad_alloc&) {
      throw out_of_memory("check", static_cast<size_t>(count) * sizeof(T));
    }
  }

  const Backend& backend;
  const Resources resources;
};

std::optional<Fault> check_fetched(const Bins& bins, const Sizes& sizes, const Context& context) {
  const Device device(context);
  const auto indices = device.fetch(bins.indices, bins.count);
  const auto bin_ids = device.fetch(bins.bin_ids, bins.count);
  const auto ends = device.fetch(bins.bins, bins.num_experts);
  Bins host = bins;
  host.indices = indices.data();
  host.bin_ids = bins.bin_ids != nullptr ? bin_ids.data() : nullptr;
  host.bins = ends.data();
  return check_bins(host, sizes);
}

std::optional<Fault> check_fetched(const ConstPlanView& plan, const Context& context) {
  const Device device(context);
  const int64_t assignments = plan.sizes.assignments(), experts = plan.sizes.num_experts;
  const auto indices = device.fetch(plan.indices, assignments);
  const auto bin_ids = device.fetch(plan.bin_ids, assignments);
  const auto rows = device.fetch(plan.row_of_assignment, assignments);
  const auto bins = device.fetch(plan.bins, experts);
  const auto tokens = device.fetch(plan.tokens_per_expert, experts);
  const auto kept = device.fetch(plan.kept_per_expert, experts);
  const auto status = device.fetch(plan.status, 3);
  return check({plan.sizes, indices.data(), bin_ids.data(), rows.data(), bins.data(), tokens.data(), kept.data(),
                plan.status != nullptr ? status.data() : nullptr});
}

}  // namespace

std::optional<Fault> check_bins(const Bins& bins, const Sizes& sizes, const Context& context) {
  validate_bins("check", bins, sizes);
  if (context.memory != Memory::host) return check_fetched(bins, sizes, context);
  if (auto fault = check_bins_values(bins.bins, bins.num_experts)) return fault;
  const int64_t end = bins.bins[bins.num_experts - 1];
  if (end != bins.count) return Fault{"bins_end", bins.num_experts - 1, end, bins.count};
  if (bins.bin_ids != nullptr)
    if (auto fault = check_bin_ids(bins.bin_ids, bins.bins, bins.num_experts)) return fault;
  std::vector<bool> unmasked;
  return check_indices(bins.indices, bins.count, sizes.assignments(), unmasked);
}

std::optional<Fault> check(const ConstPlanView& plan, const Context& context) {
  validate_plan("check", plan);
  if (context.memory != Memory::host) return check_fetched(plan, context);
  const Sizes& s = plan.sizes;
  if (plan.status != nullptr && plan.status[0] != 0)
    return Fault{"expert_id_range", plan.status[1], plan.status[2], s.num_experts};
  if (auto fault = check_bins_values(plan.bins, s.num_experts)) return fault;
  const int64_t count = plan.bins[s.num_experts - 1];
  if (count > s.assignments()) return Fault{"bins_limit", s.num_experts - 1, count, s.assignments()};
  if (auto fault = check_bin_ids(plan.bin_ids, plan.bins, s.num_experts)) return fault;
  std::vector<bool> unmasked;
  if (auto fault = check_indices(plan.indices, count, s.assignments(), unmasked)) return fault;
  return check_derived(plan, unmasked);
}

}  // namespace binmoe
