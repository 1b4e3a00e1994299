// The buffers of each kernel, one for one with its InitBuffer calls.
#pragma once

#include "ascend/tiling/tile_plan.h"

namespace binmoe::ascend {

constexpr int64_t kUbLine = 32;
constexpr double kCoreBytesPerUs = 45e3, kLatencyUs = 0.25;  // of copies: docs/ascend.md, section 1

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Rows of bytes are moved as they are, a byte an element.
constexpr int64_t row_element_bytes(const TileRequest& r) {
  return r.rows == DType::bytes ? 1 : size_of(r.rows);
}

/// How much is in flight.
struct Depth {
  int32_t slots, out_slots, slot_rows;
};

/// A plan with this pipeline and its buffers, whether it fits or not. Bytes are not rounded yet.
MoverPlan shape(const TileRequest& request, Order order, int64_t columns, const Depth& depth);

}  // namespace binmoe::ascend
