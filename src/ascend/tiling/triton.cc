#include "ascend/tiling/triton.h"

#include <algorithm>
#include <cmath>

#include "ascend/tiling/buffers.h"

namespace binmoe::ascend {
namespace {

// What the compiler may keep for itself (docs/ascend.md, section 3); the open-source planner does not apply it.
constexpr int64_t kReserve = 16 * 1024;
constexpr int64_t kMostRows = 32, kMostRowsOfSum = 16, kMostBlockTokens = 16;
constexpr int64_t kBlockAssignments = 256;  // map entries of a block of tokens
constexpr int64_t kEnoughRows = 4;          // a store of 4 long rows is large; fewer rows of full length are not taken
constexpr int64_t kLeastTileBytes = 512;    // shorter pieces of a row are copied at a fraction of the bandwidth
constexpr int64_t kFloatBytes = 4, kIndexBytes = 4;

/// The buffers that the compiler makes of the kernels in python/binmoe/ascend, as docs/ascend.md, section 6, found
/// them: a tile that a loop loads or stores is there twice; a value computed once a turn, and the zeros that a tile
/// starts from, once; a tail is a path of its own with tiles of its own, except where K is 1. Vectors of a few lanes
/// share and split 32-byte lines in more ways than are worth a rule: theirs is an upper bound.
class Budget {
 public:
  Budget(TilePlan& plan, bool has_tail)
      : plan_(plan),
        r_(plan.request),
        rows_(plan.sub_block_size),
        row_(round_up(plan.block_x * row_element_bytes(r_), kUbLine)),
        floats_(plan.block_x * kFloatBytes),
        is_f32_(r_.rows == DType::f32),
        has_tail_(has_tail) {}

  void fill() {
    add("zero rows", rows_ * row_, 1);
    if (r_.op == Op::gather && plan_.order == Order::expert) return gather_by_expert();
    add("map", map_bytes(), 2);
    if (r_.op == Op::gather) return gather_by_token();
    if (r_.op == Op::scatter) return scatter();
    dots();
  }

 private:
  void add(const std::string& name, int64_t bytes, int32_t count) {
    plan_.buffers.push_back({name, round_up(bytes, kUbLine), count});
  }
  /// For the full tiles, and again for the tail.
  void add_path(const std::string& name, int64_t bytes, int32_t count) {
    add(name, bytes, count);
    if (has_tail_) add("tail: " + name, bytes, count);
  }
  int64_t map_entries() const { return plan_.items_per_block * r_.top_k; }
  int64_t map_bytes() const { return round_up(map_entries() * kIndexBytes, kUbLine); }

  void gather_by_expert() {
    const int64_t lanes = round_up(rows_ * kIndexBytes, kUbLine);
    add("indices", lanes, r_.row_copy == RowCopy::index_select ? 10 : 2);
    if (r_.weights) add("weights", lanes, 6);
    const bool by_row = r_.row_copy == RowCopy::element_insert;
    add(by_row ? "rows collected and stored" : "rows loaded", rows_ * row_, 2);
    if (r_.weights && by_row) {
      add("row loaded", row_, 2);
      if (!is_f32_) add("row in f32", floats_, 1);
    } else if (r_.weights) {
      add("rows in f32, then stored", rows_ * floats_, 2);
      add("weights, a block each", lanes * 8, 1);
    }
    if (!has_tail_) return;
    add("tail: rows collected and stored", rows_ * row_, 2);
    add("tail: row loaded", row_, 2);
    if (r_.weights && !is_f32_) add("tail: row in f32", floats_, 1);
  }

  void gather_by_token() {
    if (r_.weights) add("weights", map_entries() * size_of(*r_.weights), 2);
    add_path("row loaded", row_, 2);
    if (!r_.weights) return;
    add_path("row in f32, then stored", floats_, 2);
    if (r_.weights != DType::f32) add_path("weight in f32", kUbLine, 2);
  }

  void scatter() {
    if (r_.weights) {
      add("weights and masks", map_bytes(), 6);
      add("odd lanes", 6 * kUbLine, 1);
    }
    add_path("rows loaded", rows_ * row_, 2);
    if (r_.top_k == 1) {  // no loop over k: nothing is summed, a row of the tail goes straight into its tile
      if (!is_f32_) add_path("row in f32", floats_, 1);
      if (is_f32_ && r_.weights) add_path("row stored", floats_, 2);
    } else {
      add("zeros of the sum", floats_, 1);
      if (has_tail_) add("tail: row loaded", row_, 2);
      if (is_f32_)
        add_path("sum stored", floats_, 2);
      else
        add_path("sum in f32", floats_, 1);
      if (!is_f32_ || r_.weights) add_path("row in f32", floats_, 1);
    }
    if (!is_f32_) add_path("row stored", row_, 2);
  }

  /// wgrad and scatter backward.
  void dots() {
    const int64_t tokens = plan_.items_per_block;
    const int64_t sums = r_.top_k == 1 ? tokens * kFloatBytes : tokens * round_up(rows_ * kFloatBytes, kUbLine);
    add("sums of a block, masks and dw", sums, 9);
    add("odd lanes", 8 * kUbLine, 1);
    add_path("row of grad loaded", row_, 2);
    if (!is_f32_) add_path("row of grad in f32", floats_, 1);
    add_path("rows of y loaded", rows_ * row_, 2);
    if (has_tail_ && r_.top_k > 1) add("tail: row of y loaded", row_, 2);
    if (!is_f32_) add_path("products in f32", rows_ * floats_, 1);
    add_path("scratch of the sums", std::max(rows_ * floats_ / 2, rows_ * kUbLine), 1);
    if (r_.op == Op::wgrad || !r_.weights) return;
    add("weights", map_entries() * size_of(*r_.weights), 2);
    add_path("row of dy in f32, then stored", floats_, 2);
    if (r_.weights != DType::f32) add_path("weight in f32", kUbLine, 2);
  }

  TilePlan& plan_;
  const TileRequest& r_;
  int64_t rows_, row_, floats_;
  bool is_f32_, has_tail_;
};

/// A plan with this tile, whether it fits or not.
TilePlan shape(const TileRequest& r, Order order, int64_t rows, int64_t columns) {
  TilePlan plan;
  plan.request = r;
  plan.order = order;
  plan.num_programs = r.soc->vector_cores;
  plan.sub_block_size = rows;
  plan.block_x = columns;
  const bool by_expert = r.op == Op::gather && order == Order::expert;
  plan.items = by_expert ? r.tokens * r.top_k : r.tokens;
  plan.items_per_block = by_expert ? rows : std::clamp<int64_t>(kBlockAssignments / r.top_k, 1, kMostBlockTokens);
  Budget(plan, r.hidden_size % columns != 0).fill();
  for (const TileBuffer& buffer : plan.buffers) plan.ub_bytes += buffer.bytes * buffer.count;
  plan.ub_limit_bytes = r.soc->ub_bytes - kReserve;
  return plan;
}

/// Columns of the tiles of a row, the best first. Tiles that cut the row evenly need no tail; where the row has none of
/// 512 bytes or more, the last tile is a tail.
std::vector<int64_t> column_choices(const TileRequest& r) {
  const int64_t size = row_element_bytes(r), unit = kUbLine / size, hidden = std::max<int64_t>(r.hidden_size, 1);
  std::vector<int64_t> columns;
  for (int64_t tiles = 1; hidden / tiles >= unit; ++tiles) {
    const bool is_even = hidden % tiles == 0 && hidden / tiles % unit == 0;
    if (is_even && (tiles == 1 || hidden / tiles * size >= kLeastTileBytes)) columns.push_back(hidden / tiles);
  }
  int64_t last = 0;
  for (int64_t tiles = 1; last != unit; tiles = tiles < 8 ? tiles + 1 : tiles * 2) {
    const int64_t bytes = (hidden + tiles - 1) / tiles * size;
    const int64_t cut = round_up(bytes, bytes >= 2 * kLeastTileBytes ? kLeastTileBytes : kUbLine) / size;
    if (cut != last && hidden % cut != 0) columns.push_back(cut);
    last = cut;
  }
  if (columns.empty()) columns.push_back(unit);
  return columns;
}

/// The largest tile that fits.
TilePlan fit(const TileRequest& r, Order order) {
  const bool by_expert = r.op == Op::gather && order == Order::expert;
  const int64_t most = r.op == Op::gather ? kMostRows : std::clamp<int64_t>(r.top_k, 1, kMostRowsOfSum);
  const int64_t fewest = by_expert ? 2 : 1;  // the compiler takes no index vector of one lane
  const std::vector<int64_t> columns = column_choices(r);
  int64_t least = -1;
  for (const int64_t enough : {std::min(most, r.op == Op::gather ? kEnoughRows : most), fewest}) {
    for (const int64_t wide : columns) {
      for (int64_t rows = most; rows >= enough; rows = rows > 1 ? (rows + 1) / 2 : 0) {
        const TilePlan plan = shape(r, order, rows, wide);
        if (plan.ub_bytes <= plan.ub_limit_bytes) return plan;
        if (least < 0 || plan.ub_bytes < least) least = plan.ub_bytes;
      }
    }
  }
  throw Error(ErrorKind::invalid_argument, "tile",
              std::string(name_of(r.op)) + " in " + name_of(order) + " order wants at least " + std::to_string(least) +
                  " bytes of UB, but " + r.soc->name + " has " + std::to_string(r.soc->ub_bytes - kReserve) +
                  " for a Triton kernel");
}

/// Copies of kept rows to UB. element_insert waits for each (the compiler puts a barrier between inserts); the others
/// copy the rows of a run side by side, but always a whole sub-block of them.
double copy_us(const TilePlan& plan) {
  const TileRequest& r = plan.request;
  const double rows = static_cast<double>(plan.sub_block_size), experts = r.num_experts;
  const double kept =
      std::min(static_cast<double>(r.tokens) * r.top_k, experts * static_cast<double>(r.expert_capacity));
  const double row_us = static_cast<double>(plan.block_x * row_element_bytes(r)) / kCoreBytesPerUs;
  const double tiles = std::ceil(static_cast<double>(r.hidden_size) / static_cast<double>(plan.block_x));
  if (r.row_copy == RowCopy::element_insert) return tiles * kept * (row_us + kLatencyUs);
  const double runs = kept / rows + std::min(experts, kept);
  return tiles * runs * (rows * row_us + kLatencyUs);
}

/// The row copy of least cost. index_select is indexed_load with tokens divided one by one: only on request.
TilePlan with_row_copy_picked(TileRequest r, Order order) {
  r.row_copy = RowCopy::element_insert;
  const TilePlan inserted = fit(r, order);
  r.row_copy = RowCopy::indexed_load;
  const TilePlan indexed = fit(r, order);
  return copy_us(indexed) < copy_us(inserted) ? indexed : inserted;
}

}  // namespace

TilePlan triton_plan(const TileRequest& request, Order order) {
  const bool has_forms = request.op == Op::gather && order == Order::expert;
  return has_forms && !request.row_copy ? with_row_copy_picked(request, order) : fit(request, order);
}

}  // namespace binmoe::ascend
