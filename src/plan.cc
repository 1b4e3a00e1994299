#include "binmoe/plan.h"

#include <algorithm>
#include <new>

#include "validate.h"

namespace binmoe {

Load load_of(const ConstPlanView& plan) {
  validate_plan("load_of", plan);
  const Sizes& s = plan.sizes;
  Load load;
  int64_t most = 0;
  for (int64_t e = 0; e < s.num_experts; ++e) {
    load.kept += plan.kept_per_expert[e];
    load.dropped += plan.tokens_per_expert[e] - plan.kept_per_expert[e];
    most = std::max<int64_t>(most, plan.tokens_per_expert[e]);
  }
  const int64_t unmasked = load.kept + load.dropped;
  load.masked = s.assignments() - unmasked;
  load.empty_rows = s.expert_rows() - load.kept;
  if (unmasked > 0) load.max_over_mean = static_cast<double>(most) * s.num_experts / static_cast<double>(unmasked);
  return load;
}

Plan::Plan(const Sizes& sizes) : sizes_(sizes) {
  validate_sizes("plan", sizes);
  const auto entries = 3 * (static_cast<size_t>(sizes.assignments()) + static_cast<size_t>(sizes.num_experts));
  try {
    storage_.resize(entries);
  } catch (const std::bad_alloc&) {
    throw out_of_memory("plan", entries * sizeof(int32_t));
  }
}

size_t Plan::offset(int index) const {
  const auto assignments = static_cast<size_t>(sizes_.assignments());
  const auto experts = static_cast<size_t>(sizes_.num_experts);
  return index <= 3 ? static_cast<size_t>(index) * assignments
                    : 3 * assignments + static_cast<size_t>(index - 3) * experts;
}

std::span<const int32_t> Plan::part(int index) const {
  if (storage_.empty()) return {};
  return {storage_.data() + offset(index), offset(index + 1) - offset(index)};
}

PlanView Plan::view() {
  int32_t* p = storage_.data();
  return {sizes_, p, p + offset(1), p + offset(2), p + offset(3), p + offset(4), p + offset(5)};
}

ConstPlanView Plan::view() const {
  return const_cast<Plan*>(this)->view();
}

Plan make_plan(const Ids& expert_ids, const Sizes& sizes, DropPolicy policy, const Weights& priority,
               const Context& context) {
  Plan made(sizes);
  plan(expert_ids, policy, priority, made.view(), context);
  return made;
}

Plan make_plan_from_bins(const Bins& bins, const Sizes& sizes, const Context& context) {
  Plan made(sizes);
  plan_from_bins(bins, made.view(), context);
  return made;
}

}  // namespace binmoe
