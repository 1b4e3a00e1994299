#include "ascend/tiling/plan_tile.h"

#include <algorithm>

#include "ascend/tiling/buffers.h"

namespace binmoe::ascend {
namespace {

using binmoe_ascend::kDigits;
using binmoe_ascend::kRecordWords;
using binmoe_ascend::PlanTile;
using binmoe_ascend::ScalarType;

constexpr int64_t kWord = sizeof(int32_t);
constexpr int64_t kLineWords = kUbLine / kWord;
constexpr int64_t kRepeatWords = 255 * 64;  // one vector instruction
constexpr int64_t kMostBlockPositions = 8192, kMostScattered = kRepeatWords / kLineWords;
constexpr int64_t kFewestBlockPositions = 64;
constexpr int64_t kExpertsPerPosition = 64;  // a block moves 4 bytes an expert a table, and works 40 ns a position
constexpr int64_t kStage = 1024, kScatteredStage = 256;  // the latter take 32 bytes a position
constexpr int64_t kMostChunkExperts = 2048;
constexpr int64_t kMostStageSums = 1024;
constexpr int64_t kMostGroupRows = 4095;  // blocks of a copy

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorKind::invalid_argument, "tile", message);
}

int64_t divide_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

int32_t to_int(int64_t value) {
  return static_cast<int32_t>(value);
}

enum class Source : uint8_t { ids, ids_by_choice, records_by_digit, records_by_expert };

bool is_scattered(Source source) {
  return source == Source::ids_by_choice || source == Source::records_by_expert;
}

int64_t position_bytes(Source source, IdType ids) {
  if (source == Source::ids) return size_of(ids);
  return source == Source::ids_by_choice ? kUbLine : kRecordWords * kWord;
}

PlanLaunch launch_of(const std::string& kernel, int32_t launches, std::vector<TileBuffer> buffers) {
  PlanLaunch launch{kernel, launches, std::move(buffers), 0};
  for (TileBuffer& buffer : launch.buffers) {
    buffer.bytes = round_up(buffer.bytes, kUbLine);
    launch.ub_bytes += buffer.bytes * buffer.count;
  }
  return launch;
}

/// One counting pass on a chip.
class Pass {
 public:
  Pass(const PlanRequest& request, Source source) : request_(request), source_(source) {
    const Sizes& s = request.sizes;
    tile = {};
    tile.positions = s.assignments();
    const bool by_choice = source == Source::ids_by_choice;
    tile.choice_positions = std::max<int64_t>(by_choice ? s.tokens : tile.positions, 1);
    tile.stride = by_choice ? s.top_k : 1;
    tile.num_experts = by_digit() ? kDigits : s.num_experts;
    tile.expert_capacity = s.expert_capacity;
    tile.row_experts = round_up(tile.num_experts, kLineWords);
    choose_blocks();
    choose_experts();
    choose_chunks();
  }

  PlanLaunch count(int32_t launches) const {
    return launch_of(name("plan_count"), launches,
                     {{"positions of a stage", tile.stage_bytes, 2}, {"counts", tile.count_experts * kWord, 1}});
  }

  PlanLaunch bases(int32_t launches) const {
    return launch_of(
        name("plan_bases"), launches,
        {{"rows of counts", int64_t{tile.group_rows} * tile.chunk_experts * kWord, 2}, {"sum of a chunk", kUbLine, 1}});
  }

  PlanLaunch scan(int32_t launches) const {
    return launch_of(name("plan_scan"), launches,
                     {{"sums of chunks", tile.stage_sums * kWord, 1},
                      {"totals, starts, bins and kept counts", tile.chunk_experts * kWord, 4}});
  }

  PlanLaunch place(int32_t launches) const {
    std::vector<TileBuffer> buffers = {{"positions of a stage", tile.stage_bytes, 2},
                                       {"counts, bases and starts", 3 * int64_t{tile.tile_experts} * kWord, 1},
                                       {"experts of a block", tile.touched_bytes, 1},
                                       {"runs of a block", tile.slot_bytes, 1}};
    if (!by_digit()) {
      buffers.push_back({"rows of a block", tile.map_bytes, 1});
      buffers.push_back({"end of the last bin", kUbLine, 1});
    }
    return launch_of(name("plan_place"), launches, std::move(buffers));
  }

  PlanTile tile;

 private:
  bool by_digit() const { return source_ == Source::records_by_digit; }
  std::string name(const char* kernel) const { return kernel + std::string(by_digit() ? "_digits" : ""); }
  int64_t words() const { return by_digit() ? kRecordWords : 1; }
  int64_t limit() const { return request_.soc->ub_limit_bytes; }

  /// Sizes that follow from the block and from the experts placed at a time.
  void set_sizes(int64_t block, int64_t tile_experts) {
    const int64_t stage = std::min(is_scattered(source_) ? kScatteredStage : kStage, block);
    const int64_t touched = std::min<int64_t>({tile_experts, tile.num_experts, block});
    tile.block_positions = to_int(block);
    tile.blocks = std::max<int64_t>(divide_up(tile.positions, block), 1);
    tile.stage_positions = to_int(stage);
    tile.stage_bytes = to_int(round_up(stage * position_bytes(source_, request_.ids), kUbLine));
    tile.tile_experts = to_int(tile_experts);
    tile.touched_bytes = to_int(round_up(touched * kWord, kUbLine));
    // Each run may waste all but one word of its last line.
    tile.slot_bytes = to_int(round_up((block * words() + touched * (kLineWords - 1)) * kWord, kUbLine));
    tile.map_step = to_int(is_scattered(source_) ? kLineWords : 1);
    tile.map_bytes = to_int(by_digit() ? 0 : round_up(block * kWord * tile.map_step, kUbLine));
  }

  int64_t place_bytes() const { return place(1).ub_bytes; }

  /// What a block takes beside the rows of the tables.
  int64_t block_bytes(int64_t block) {
    set_sizes(block, tile.num_experts);
    return place_bytes() - round_up(3 * int64_t{tile.num_experts} * kWord, kUbLine);
  }

  /// A block for each program, or several, such that experts still have half of UB. Where experts are many, a block
  /// has enough positions to pay for its rows of the tables.
  void choose_blocks() {
    if (block_bytes(kLineWords) > limit() / 2) refuse_ub(2 * block_bytes(kLineWords));
    int64_t largest = 1, too_large = (is_scattered(source_) ? kMostScattered : kMostBlockPositions) / kLineWords + 1;
    while (largest + 1 < too_large) {
      const int64_t middle = (largest + too_large) / 2;
      (block_bytes(middle * kLineWords) <= limit() / 2 ? largest : too_large) = middle;
    }
    const int64_t fewest = std::max<int64_t>(kFewestBlockPositions, tile.num_experts / kExpertsPerPosition);
    const int64_t wanted = std::max(divide_up(tile.positions, request_.soc->vector_cores), fewest);
    const int64_t rounds = divide_up(wanted, largest * kLineWords);
    set_sizes(round_up(divide_up(wanted, rounds), kLineWords), tile.num_experts);
  }

  void choose_experts() {
    const int64_t block = tile.block_positions, all = tile.row_experts;
    set_sizes(block, 0);
    const int64_t free = (limit() - (place_bytes() + touched_bytes())) / (3 * kWord);
    const int64_t most = std::clamp<int64_t>(free, 0, kRepeatWords) / kLineWords * kLineWords;
    const int64_t fewest = by_digit() ? all : kLineWords;  // a digit is placed in one piece
    if (most < fewest) refuse_ub(limit() + (fewest * 3 * kWord - free * 3 * kWord));
    const int64_t tiles = divide_up(all, most);
    set_sizes(block, round_up(divide_up(all, tiles), kLineWords));
    const int64_t counts = (limit() - 2 * tile.stage_bytes) / kWord;
    const int64_t most_counts = std::min(counts, kRepeatWords) / kLineWords * kLineWords;
    tile.count_experts = to_int(round_up(divide_up(all, divide_up(all, most_counts)), kLineWords));
  }

  /// What the most touched experts of a block add: they are left out of a budget without experts.
  int64_t touched_bytes() const {
    const int64_t touched = std::min<int64_t>(tile.num_experts, tile.block_positions);
    return round_up(touched * kWord, kUbLine) + round_up(touched * (kLineWords - 1) * kWord, kUbLine);
  }

  void choose_chunks() {
    const int64_t even = divide_up(tile.row_experts, request_.soc->vector_cores);
    const int64_t most = std::max(limit() / 8 / kWord / kLineWords * kLineWords, kLineWords);
    const int64_t chunk = std::min({round_up(even, kLineWords), kMostChunkExperts, most});
    tile.chunk_experts = to_int(chunk);
    tile.chunks = divide_up(tile.num_experts, chunk);
    tile.stage_sums = to_int(std::min({tile.chunks, kMostStageSums, limit() / 4 / kWord}));
    const int64_t rows = limit() / 4 / (chunk * kWord);
    tile.group_rows = to_int(std::clamp<int64_t>(rows, 1, std::min(tile.blocks, kMostGroupRows)));
  }

  [[noreturn]] void refuse_ub(int64_t wanted) const {
    refuse("plan wants " + std::to_string(wanted) + " bytes of UB, but " + request_.soc->name + " has " +
           std::to_string(limit()));
  }

  const PlanRequest& request_;
  Source source_;
};

/// Choice order is token order where there is one choice, or one token.
bool is_by_choice(const PlanRequest& r) {
  return r.policy == DropPolicy::choice_order && r.sizes.top_k > 1 && r.sizes.tokens > 1;
}

void validate(const PlanRequest& r) {
  const Sizes& s = r.sizes;
  if (r.soc == nullptr) refuse("a SoC is needed");
  if (s.tokens < 0 || s.expert_capacity < 0) refuse("tokens and expert_capacity must not be negative");
  if (s.top_k < 1) refuse("top_k is " + std::to_string(s.top_k) + ", but must be at least 1");
  if (s.num_experts < 1) refuse("num_experts is " + std::to_string(s.num_experts) + ", but must be at least 1");
  constexpr int64_t kEnd = int64_t{1} << 31;
  if (s.tokens >= kEnd || s.assignments() >= kEnd)
    refuse("tokens * top_k is " + std::to_string(s.tokens) + " * " + std::to_string(s.top_k) +
           ", but the plan holds int32: less than 2147483648");
  if (s.expert_rows() >= kEnd)
    refuse("num_experts * expert_capacity is " + std::to_string(s.num_experts) + " * " +
           std::to_string(s.expert_capacity) + ", but the plan holds int32: less than 2147483648");
  if (is_by_choice(r) && (s.top_k - int64_t{1}) * size_of(r.ids) > UINT32_MAX)
    refuse("the ids of a token take " + std::to_string(s.top_k * size_of(r.ids)) +
           " bytes, but in choice_order a copy's stride is 32 bits");
  const bool by_weight = r.policy == DropPolicy::by_weight;
  if (by_weight && r.priority != DType::f32 && r.priority != DType::bf16 && r.priority != DType::f16)
    refuse(std::string("a priority of ") + name_of(r.priority) + " is not taken; there are: f32, bf16, f16");
}

void add_radix_passes(PlanTiling& plan) {
  const PlanRequest& r = plan.request;
  const int64_t weight = size_of(r.priority);
  plan.digit_passes = to_int(weight * 8 / binmoe_ascend::kDigitBits);
  PlanTile& tile = plan.records;
  tile = {};
  tile.positions = tile.choice_positions = r.sizes.assignments();
  tile.stride = 1;
  tile.num_experts = r.sizes.num_experts;
  const int64_t even = divide_up(tile.positions, plan.num_programs);
  const int64_t fitting = r.soc->ub_limit_bytes / 40;  // 2 * (8 + 4) + 12 bytes a position, and lines begun
  const int64_t rounds = std::max<int64_t>(divide_up(even, std::max<int64_t>(std::min(kStage, fitting), 1)), 1);
  const int64_t stage = std::max(round_up(divide_up(even, rounds), kLineWords), kLineWords);
  tile.block_positions = tile.stage_positions = to_int(stage);
  tile.blocks = divide_up(tile.positions, stage);
  tile.weight_type = r.priority == DType::f32    ? ScalarType::f32
                     : r.priority == DType::bf16 ? ScalarType::bf16
                                                 : ScalarType::f16;
  tile.stage_bytes = to_int(round_up(stage * size_of(r.ids), kUbLine));
  tile.weight_bytes = to_int(round_up(stage * weight, kUbLine));
  tile.record_bytes = to_int(stage * kRecordWords * kWord);
  plan.launches.push_back(launch_of(
      "plan_records", 1,
      {{"ids and weights of a block", tile.stage_bytes + tile.weight_bytes, 2}, {"records", tile.record_bytes, 1}}));
  const Pass pass(r, Source::records_by_digit);
  plan.digits = pass.tile;
  for (const PlanLaunch& launch : {pass.count(plan.digit_passes), pass.bases(plan.digit_passes),
                                   pass.scan(plan.digit_passes), pass.place(plan.digit_passes)})
    plan.launches.push_back(launch);
  // The digits' scan writes bins and counts too; nobody reads them.
  plan.workspace_bytes += plan_tables(plan.digits).all() + 3 * kDigits * kWord;
  plan.workspace_bytes += 2 * tile.positions * kRecordWords * kWord;
}

}  // namespace

PlanTables plan_tables(const PlanTile& tile) {
  return {tile.blocks * tile.row_experts * kWord, (tile.blocks + 1) * tile.row_experts * kWord,
          tile.num_experts * kWord, tile.chunks * kWord};
}

PlanTiling plan_tiling(const PlanRequest& request) {
  validate(request);
  PlanTiling plan;
  plan.request = request;
  plan.num_programs = request.soc->vector_cores;
  plan.ub_limit_bytes = request.soc->ub_limit_bytes;
  const bool by_weight = request.policy == DropPolicy::by_weight;
  if (by_weight) add_radix_passes(plan);
  const Pass pass(plan.request, by_weight               ? Source::records_by_expert
                                : is_by_choice(request) ? Source::ids_by_choice
                                                        : Source::ids);
  plan.experts = pass.tile;
  for (const PlanLaunch& launch : {pass.count(1), pass.bases(1), pass.scan(1), pass.place(1)})
    plan.launches.push_back(launch);
  plan.workspace_bytes += plan_tables(plan.experts).all();
  for (const PlanLaunch& launch : plan.launches) plan.ub_bytes = std::max(plan.ub_bytes, launch.ub_bytes);
  return plan;
}

}  // namespace binmoe::ascend
