// A plan that owns its arrays on the host, and the load that it describes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "binmoe/operations.h"

namespace binmoe {

/// What a plan does to a batch. Counts of assignments and of expert rows.
struct Load {
  int64_t kept = 0;
  int64_t dropped = 0;
  int64_t masked = 0;
  int64_t empty_rows = 0;
  double max_over_mean = 0;  ///< of tokens_per_expert; 0 when there are none
};
/// Of a plan in host memory.
Load load_of(const ConstPlanView& plan);

/// Six arrays of one plan in one object. Memory: 12*(T*K + E) bytes.
class Plan {
 public:
  Plan() = default;
  /// Allocate for these sizes; the arrays hold nothing meaningful yet.
  /// Errors: sizes out of range; out_of_memory, with the bytes wanted.
  explicit Plan(const Sizes& sizes);

  const Sizes& sizes() const { return sizes_; }
  PlanView view();
  ConstPlanView view() const;
  operator ConstPlanView() const { return view(); }

  /// N, the number of unmasked assignments.
  int64_t count() const { return bins().empty() ? 0 : bins().back(); }
  std::span<const int32_t> indices() const { return part(0).first(static_cast<size_t>(count())); }
  std::span<const int32_t> bin_ids() const { return part(1).first(static_cast<size_t>(count())); }
  std::span<const int32_t> row_of_assignment() const { return part(2); }
  std::span<const int32_t> bins() const { return part(3); }
  std::span<const int32_t> tokens_per_expert() const { return part(4); }
  std::span<const int32_t> kept_per_expert() const { return part(5); }

 private:
  size_t offset(int index) const;
  std::span<const int32_t> part(int index) const;

  Sizes sizes_{};
  std::vector<int32_t> storage_;
};

/// Allocate and fill a plan. Errors: as plan().
Plan make_plan(const Ids& expert_ids, const Sizes& sizes, DropPolicy policy = DropPolicy::token_order,
               const Weights& priority = {}, const Context& context = {});

/// Allocate and fill a plan from bins that another system made. Errors: as plan_from_bins().
Plan make_plan_from_bins(const Bins& bins, const Sizes& sizes, const Context& context = {});

}  // namespace binmoe
