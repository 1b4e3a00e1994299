#include "ascend/tiling/buffers.h"

#include <algorithm>

namespace binmoe::ascend {
namespace {

constexpr int64_t kBlockAssignments = 256;  // map entries of a block of tokens, at most 8 tokens
constexpr int64_t kMostBlockTokens = 8;
constexpr int64_t kSubBlockPositions = 32;
constexpr int64_t kZeroBytes = 16 * 1024;
constexpr int64_t kKeptExperts = 1024, kBinExperts = 4096;
constexpr int32_t kStagedBlocks = binmoe_ascend::kMaxSlots + 1;

int32_t to_int(int64_t value) {
  return static_cast<int32_t>(value);
}

binmoe_ascend::ScalarType scalar_type(DType type) {
  using binmoe_ascend::ScalarType;
  return type == DType::f32 ? ScalarType::f32 : type == DType::bf16 ? ScalarType::bf16 : ScalarType::f16;
}

struct Builder {
  MoverPlan plan;

  void add(const char* name, int64_t bytes, int32_t count = 1) { plan.buffers.push_back({name, bytes, count}); }

  const TileRequest& request() const { return plan.request; }
  binmoe_ascend::MoverTile& tile() { return plan.mover; }
  bool is_f32() const { return plan.request.rows == DType::f32; }
  int64_t pitch() const { return plan.mover.row_pitch; }
  int64_t slot_bytes() const { return pitch() * plan.mover.slot_rows; }

  void add_map() { add("map and weights of a block", tile().map_bytes + tile().weight_bytes, kStagedBlocks); }

  void add_zeros() {
    add("kept counts", int64_t{tile().kept_experts} * 4);
    add("zero rows", tile().zero_bytes);
  }

  void add_scaler() {
    add("scaled rows", slot_bytes(), tile().out_slots);
    if (is_f32()) return;
    tile().float_bytes = to_int(slot_bytes() * 2);
    add("rows in f32", tile().float_bytes);
    add("products in f32", tile().float_bytes);
  }

  void gather_by_token() {
    add("rows", slot_bytes(), tile().slots);
    if (request().weights) add_scaler();
    add_map();
    add_zeros();
  }

  void gather_by_expert() {
    add("rows", slot_bytes(), tile().slots);
    if (request().weights) {
      add_scaler();
      add("weights of a slot", tile().slot_rows * kUbLine, binmoe_ascend::kMaxSlots);
    }
    add("bins", int64_t{tile().bin_experts} * 4);
    add("indices of a sub-block", tile().map_bytes, 2);
    add_zeros();
  }

  void scatter() {
    add("rows", slot_bytes(), tile().slots);
    add("sums out", pitch(), tile().out_slots);
    if (!is_f32()) {
      tile().float_bytes = to_int(slot_bytes() * 2);
      add("rows in f32", tile().float_bytes);
      add("sum in f32", pitch() * 2);
    }
    add("zeros in f32", pitch() * (is_f32() ? 1 : 2));
    add_map();
  }

  void dots(bool stores_dy) {
    add("rows of y", slot_bytes(), tile().slots);
    add("rows of grad", pitch(), tile().out_slots);
    if (stores_dy) add("rows of dy", slot_bytes(), tile().out_slots);
    if (stores_dy && !request().weights) add("zeros", pitch());
    if (!is_f32()) {
      tile().float_bytes = to_int(slot_bytes() * 2);
      add("rows of y in f32", tile().float_bytes);
      add("grad in f32", pitch() * 2);
    }
    add("scratch of the sums", int64_t{tile().reduce_bytes} * tile().slot_rows);
    if (tile().num_tiles > 1) add("parts of sums", kUbLine * tile().slot_rows);
    add("dw, a line each", tile().result_bytes, 2);
    add("dw packed", tile().dw_bytes, 2);
    add_map();
    if (stores_dy) add_zeros();
  }
};

void set_blocks(MoverPlan& plan) {
  const TileRequest& r = plan.request;
  const bool by_expert = plan.order == Order::expert;
  const int64_t block =
      by_expert ? kSubBlockPositions : std::clamp<int64_t>(kBlockAssignments / r.top_k, 1, kMostBlockTokens);
  const int64_t entries = by_expert ? block : block * r.top_k;
  binmoe_ascend::MoverTile& tile = plan.mover;
  tile.block_tokens = to_int(block);
  tile.map_bytes = to_int(round_up(entries * 4, kUbLine));
  tile.weight_type = scalar_type(r.weights.value_or(DType::f32));
  tile.dw_type = scalar_type(r.dw);
  if (r.weights && !by_expert) tile.weight_bytes = to_int(round_up(entries * size_of(*r.weights), kUbLine));
  tile.result_bytes = to_int(entries * kUbLine);
  tile.dw_bytes = to_int(entries * size_of(r.dw));
  plan.items = by_expert ? r.tokens * r.top_k : r.tokens;
  plan.items_per_block = block;
}

}  // namespace

MoverPlan shape(const TileRequest& r, Order order, int64_t columns, const Depth& depth) {
  Builder builder;
  MoverPlan& plan = builder.plan;
  plan.request = r;
  plan.order = order;
  binmoe_ascend::MoverTile& tile = plan.mover;
  tile = {};
  tile.tokens = r.tokens;
  tile.hidden_size = tile.token_stride = tile.expert_row_stride = tile.dy_stride = r.hidden_size;
  tile.top_k = r.top_k;
  tile.num_experts = r.num_experts;
  tile.expert_capacity = to_int(r.expert_capacity);
  tile.block_x = to_int(columns);
  tile.num_tiles = columns > 0 ? to_int((r.hidden_size + columns - 1) / columns) : 1;
  tile.row_pitch = to_int(round_up(std::max<int64_t>(columns, 1) * row_element_bytes(r), kUbLine));
  tile.slots = depth.slots;
  tile.out_slots = depth.out_slots;
  tile.slot_rows = depth.slot_rows;
  tile.kept_experts = to_int(std::min<int64_t>(r.num_experts, kKeptExperts));
  tile.bin_experts = to_int(std::min<int64_t>(r.num_experts, kBinExperts));
  tile.zero_bytes =
      to_int(std::min(kZeroBytes, round_up(std::max<int64_t>(r.hidden_size, 1) * row_element_bytes(r), kUbLine) * 16));
  tile.zero_rows = to_int(std::max<int64_t>(1, kZeroBytes / tile.row_pitch));
  tile.reduce_bytes = to_int(round_up(round_up(columns, 64) / 64 * 4 + kUbLine, kUbLine));
  set_blocks(plan);
  plan.num_programs = r.soc->vector_cores;
  plan.sub_block_size = depth.slot_rows;
  plan.block_x = columns;
  switch (r.op) {
    case Op::gather:
      order == Order::token ? builder.gather_by_token() : builder.gather_by_expert();
      break;
    case Op::scatter:
      builder.scatter();
      break;
    case Op::wgrad:
      builder.dots(false);
      break;
    case Op::scatter_backward:
      builder.dots(true);
      break;
    case Op::plan:
      break;
  }
  return plan;
}

}  // namespace binmoe::ascend
