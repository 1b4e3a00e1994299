// Where an expert's rows stand in the binned tensor. The movers ask here, never for e*C: another layout (compact,
// padded) changes this file and the plan, not the movers (design.md, section 4).
#pragma once

#include <cstdint>

#include "binmoe/types.h"

namespace binmoe {

/// Rows [begin, kept_end) hold tokens, [kept_end, end) are empty.
struct ExpertRows {
  int64_t begin, kept_end, end;
};

inline ExpertRows expert_rows(const ConstPlanView& plan, int64_t expert) {
  const int64_t begin = expert * plan.sizes.expert_capacity;
  return {begin, begin + plan.kept_per_expert[expert], begin + plan.sizes.expert_capacity};
}

/// Start of row `row`. The one place where a row number becomes an address: 64 bits from the first multiplication.
template <class Byte, class View>
inline Byte* row_at(const View& view, int64_t row) {
  return static_cast<Byte*>(view.data) + row * (view.stride * view.element_size());
}

}  // namespace binmoe
