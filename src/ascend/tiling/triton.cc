#include "ascend/tiling/triton.h"

#include <algorithm>

#include "ascend/tiling/buffers.h"

namespace binmoe::ascend {
namespace {

constexpr int64_t kReserve = 16 * 1024;  // what the compiler keeps for itself (docs/ascend.md, section 3)
constexpr int64_t kMostRows = 32, kMostRowsOfSum = 16;
constexpr int64_t kFloatBytes = 4, kIndexBytes = 4;

/// Tiles loaded or stored in a loop are doubled by the compiler's multi-buffering.
TilePlan shape(const TileRequest& r, Order order, int64_t rows, int64_t columns) {
  TilePlan plan;
  plan.request = r;
  plan.order = order;
  plan.num_programs = r.soc->vector_cores;
  plan.sub_block_size = plan.items_per_block = rows;
  plan.block_x = columns;
  plan.items = order == Order::expert ? r.tokens * r.top_k : r.tokens;
  const int64_t row = round_up(columns * row_element_bytes(r), kUbLine), tile = rows * row,
                floats = columns * kFloatBytes;
  const auto add = [&](const char* name, int64_t bytes, int32_t count) {
    plan.buffers.push_back({name, round_up(bytes, kUbLine), count});
  };
  switch (r.op) {
    case Op::plan:
      break;
    case Op::gather:
      add("rows loaded", order == Order::expert ? tile : row, 2);
      if (order == Order::expert) add("rows collected and stored", tile, 2);
      if (r.weights) add("rows in f32", (order == Order::expert ? rows : 1) * floats, 2);
      add("zero rows", tile, 1);
      break;
    case Op::scatter:
      add("rows loaded", tile, 2);
      add("rows in f32", rows * floats, 1);
      add("sum in f32", floats, 2);
      add("row stored", row, 2);
      break;
    case Op::wgrad:
    case Op::scatter_backward:
      add("rows of y loaded", tile, 2);
      add("row of grad loaded", row, 2);
      add("rows in f32", rows * floats, 2);
      if (r.op == Op::scatter_backward) add("rows of dy stored", tile, 2);
      break;
  }
  add("indices, bins and weights", rows * std::max<int64_t>(r.top_k, 1) * (2 * kIndexBytes + kFloatBytes), 2);
  if (order == Order::expert) add("bins", int64_t{r.num_experts} * kIndexBytes, 1);
  for (const TileBuffer& buffer : plan.buffers) plan.ub_bytes += buffer.bytes * buffer.count;
  plan.ub_limit_bytes = r.soc->ub_bytes - kReserve;
  return plan;
}

/// About half of the columns: a multiple of 512 bytes while there are more, then of 32.
int64_t half_of(int64_t columns, int64_t size) {
  const int64_t bytes = columns * size / 2;
  return round_up(bytes, bytes > 512 ? 512 : kUbLine) / size;
}

/// A 2-D indexed load keeps no column mask: its tiles must divide the row.
bool is_allowed(const TileRequest& r, int64_t columns) {
  return r.row_copy != RowCopy::indexed_load || r.op != Op::gather || r.hidden_size % columns == 0;
}

}  // namespace

TilePlan triton_plan(const TileRequest& r, Order order) {
  const bool sums = r.op != Op::gather;
  const int64_t size = row_element_bytes(r), unit = kUbLine / size;
  const int64_t most_rows = sums ? std::min<int64_t>(kMostRowsOfSum, r.top_k) : kMostRows;
  if (r.op == Op::gather && r.row_copy == RowCopy::indexed_load && r.hidden_size % unit != 0)
    throw Error(ErrorKind::invalid_argument, "tile",
                "an indexed_load keeps no column mask: its tiles must divide the row, but " +
                    std::to_string(r.hidden_size) + " columns are no multiple of 32 bytes; take another row copy");
  int64_t least = -1;
  for (int64_t rows = std::max<int64_t>(most_rows, 1); rows > 0; rows /= 2) {
    for (int64_t columns = std::clamp<int64_t>(r.hidden_size, 1, 8192);; columns = half_of(columns, size)) {
      const TilePlan plan = shape(r, order, rows, columns);
      if (plan.ub_bytes <= plan.ub_limit_bytes && is_allowed(r, columns)) return plan;
      if (least < 0 || plan.ub_bytes < least) least = plan.ub_bytes;
      if (columns <= unit) break;
    }
  }
  throw Error(ErrorKind::invalid_argument, "tile",
              std::string(name_of(r.op)) + " in " + name_of(order) + " order wants at least " + std::to_string(least) +
                  " bytes of UB, but " + r.soc->name + " has " + std::to_string(r.soc->ub_bytes - kReserve) +
                  " for a Triton kernel");
}

}  // namespace binmoe::ascend
