// Launch 4 of the pass by expert: put each assignment where it belongs.
//   indices, bin_ids   one burst for each run of a block's entries of one expert; behind the last entry -1 and E
//   row_of_assignment  by the program that reads the position
#pragma once

#include "plan_positions.h"
#include "plan_runs.h"

namespace binmoe_ascend {

template <class Reader>
class PlanPlace {
 public:
  __aicore__ inline void Init(const PlanTile& tile, GM_ADDR input, GM_ADDR counts, GM_ADDR bases, GM_ADDR starts,
                              GM_ADDR bins, GM_ADDR indices, GM_ADDR bin_ids, GM_ADDR row_of_assignment) {
    tile_ = tile;
    positions_.Init(&pipe_, tile, input);
    runs_.Init(&pipe_, tile, counts, bases, starts);
    const auto positions = static_cast<uint64_t>(tile.positions);
    bins_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(bins), static_cast<uint64_t>(tile.num_experts));
    indices_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(indices), positions);
    bin_ids_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(bin_ids), positions);
    rows_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(row_of_assignment), positions);
    pipe_.InitBuffer(map_buffer_, static_cast<uint32_t>(tile.map_bytes));
    pipe_.InitBuffer(end_buffer_, kLine);
    cleared_ = pipe_.AllocEventID<HardEvent::V_S>();
    mapped_ = pipe_.AllocEventID<HardEvent::S_MTE3>();
    stored_ = pipe_.AllocEventID<HardEvent::MTE3_V>();
    named_ = pipe_.AllocEventID<HardEvent::V_MTE3>();
    end_loaded_ = pipe_.AllocEventID<HardEvent::MTE2_S>();
  }

  __aicore__ inline void Process() {
    for (int64_t block = GetBlockIdx(); block < tile_.blocks; block += GetBlockNum()) PlaceBlock(block);
    runs_.End();
    positions_.End();
    FillTails();
    pipe_.ReleaseEventID<HardEvent::V_S>(cleared_);
    pipe_.ReleaseEventID<HardEvent::S_MTE3>(mapped_);
    pipe_.ReleaseEventID<HardEvent::MTE3_V>(stored_);
    pipe_.ReleaseEventID<HardEvent::V_MTE3>(named_);
    pipe_.ReleaseEventID<HardEvent::MTE2_S>(end_loaded_);
  }

 private:
  using Element = typename Reader::Element;

  __aicore__ inline void PlaceBlock(int64_t block) {
    // Whoever gets no row below, masked or dropped, keeps -1. The last block's map has left: StoreRuns waited.
    map_ = map_buffer_.template Get<int32_t>();
    Duplicate(map_, int32_t{-1}, block_count(tile_, block) * tile_.map_step);
    SetFlag<HardEvent::V_S>(cleared_);
    WaitFlag<HardEvent::V_S>(cleared_);
    for (int64_t begin = 0; begin < tile_.num_experts; begin += tile_.tile_experts) {
      const auto experts = static_cast<int32_t>(
          BINMOE_BOUND(smaller<int64_t>(tile_.tile_experts, tile_.num_experts - begin), tile_.tile_experts));
      positions_.Begin(block);
      runs_.Begin(block, begin, experts);
      Sort(block, begin, experts);
      StoreRuns(begin);
    }
  }

  /// Entries into runs, rows into the map; each stage's part of the map is complete with the last experts.
  __aicore__ inline void Sort(int64_t block, int64_t begin, int32_t experts) {
    const bool is_last = begin + experts == tile_.num_experts;
    for (int32_t at = 0; at < positions_.count(); at += tile_.stage_positions) {
      const LocalTensor<Element> stage = positions_.Enter(at);
      const int32_t count = positions_.StageCount(at);
      for (int32_t i = 0; i < count; ++i, positions_.reader.Advance()) {
        BINMOE_SCALAR(3);
        const uint64_t local = static_cast<uint64_t>(positions_.reader.Expert(stage, i)) - static_cast<uint64_t>(begin);
        if (BINMOE_BOUND(local >= static_cast<uint64_t>(experts), false)) continue;
        const auto expert = static_cast<uint32_t>(local);
        const int32_t slot = runs_.Take(expert), rank = runs_.Rank(expert, slot);
        runs_.slots.SetValue(static_cast<uint32_t>(slot), positions_.reader.Assignment(stage, i));
        BINMOE_SCALAR(3);
        if (BINMOE_BOUND(rank >= tile_.expert_capacity, false)) continue;
        const int64_t row = (begin + expert) * tile_.expert_capacity + rank;
        map_.SetValue(static_cast<uint32_t>((at + i) * tile_.map_step), static_cast<int32_t>(row));
      }
      if (is_last) StoreRows(stage, block, at, count);
      positions_.Leave();
    }
  }

  /// The slots hold the assignments; when these have left, their experts.
  __aicore__ inline void StoreRuns(int64_t begin) {
    runs_.Fill();
    int32_t slot = 0;
    for (int32_t i = 0; i < runs_.count(); ++i) {
      const auto run = runs_.At(i, slot);
      copy_out(indices_[static_cast<uint64_t>(run.position)], runs_.slots[static_cast<uint32_t>(run.slot)],
               run.entries);
    }
    SetFlag<HardEvent::MTE3_V>(stored_);
    WaitFlag<HardEvent::MTE3_V>(stored_);
    slot = 0;
    for (int32_t i = 0; i < runs_.count(); ++i) {
      const auto run = runs_.At(i, slot);
      Duplicate(runs_.slots[static_cast<uint32_t>(run.slot)], static_cast<int32_t>(begin + run.local), run.entries);
    }
    SetFlag<HardEvent::V_MTE3>(named_);
    WaitFlag<HardEvent::V_MTE3>(named_);
    slot = 0;
    for (int32_t i = 0; i < runs_.count(); ++i) {
      const auto run = runs_.At(i, slot);
      copy_out(bin_ids_[static_cast<uint64_t>(run.position)], runs_.slots[static_cast<uint32_t>(run.slot)],
               run.entries);
    }
    runs_.Leave();
  }

  /// row_of_assignment of a stage: side by side in token order, K apart in choice order, else anywhere.
  __aicore__ inline void StoreRows(const LocalTensor<Element>& stage, int64_t block, int32_t begin, int32_t count) {
    SetFlag<HardEvent::S_MTE3>(mapped_);
    WaitFlag<HardEvent::S_MTE3>(mapped_);
    if constexpr (Reader::kAssignmentStored) {
      for (int32_t i = 0; i < count; ++i)
        copy_out(rows_[static_cast<uint64_t>(positions_.reader.Assignment(stage, i))], Map(begin + i), 1);
    } else if (tile_.stride == 1) {
      copy_out(rows_[static_cast<uint64_t>(first_position(tile_, block) + begin)], Map(begin), count);
    } else {
      const int64_t first = first_position(tile_, block) + begin;
      for (int64_t at = first; at < first + count;) {
        const int64_t run = same_choice(tile_, at, first + count);
        copy_out(rows_[static_cast<uint64_t>(assignment_at(tile_, at))], Map(begin + static_cast<int32_t>(at - first)),
                 1, static_cast<int32_t>(run), kLine, tile_.stride);
        at += run;
      }
    }
  }

  __aicore__ inline LocalTensor<int32_t> Map(int32_t position) const {
    return map_[static_cast<uint32_t>(position * tile_.map_step)];
  }

  /// Positions from bins[E - 1] on, dealt round robin; from buffers that blocks need no more.
  __aicore__ inline void FillTails() {
    const LocalTensor<int32_t> end = end_buffer_.template Get<int32_t>();
    copy_in(end, bins_[static_cast<uint64_t>(tile_.num_experts - 1)], 1);
    SetFlag<HardEvent::MTE2_S>(end_loaded_);
    WaitFlag<HardEvent::MTE2_S>(end_loaded_);
    int64_t at = end.GetValue(0) + GetBlockIdx() * tile_.block_positions;
    if (at >= tile_.positions) return;
    SetFlag<HardEvent::MTE3_V>(stored_);
    WaitFlag<HardEvent::MTE3_V>(stored_);
    const LocalTensor<int32_t> none = map_buffer_.template Get<int32_t>();
    const LocalTensor<int32_t> past = runs_.Slots();
    Duplicate(none, int32_t{-1}, tile_.block_positions);
    Duplicate(past, tile_.num_experts, tile_.block_positions);
    SetFlag<HardEvent::V_MTE3>(named_);
    WaitFlag<HardEvent::V_MTE3>(named_);
    for (; at < tile_.positions; at += GetBlockNum() * tile_.block_positions) {
      const auto count = static_cast<int32_t>(
          BINMOE_BOUND(smaller<int64_t>(tile_.positions - at, tile_.block_positions), tile_.block_positions));
      copy_out(indices_[static_cast<uint64_t>(at)], none, count);
      copy_out(bin_ids_[static_cast<uint64_t>(at)], past, count);
    }
  }

  PlanTile tile_;
  TPipe pipe_;
  Positions<Reader> positions_;
  Runs<1> runs_;
  TBuf<TPosition::VECCALC> map_buffer_, end_buffer_;
  LocalTensor<int32_t> map_;
  GlobalTensor<int32_t> bins_, indices_, bin_ids_, rows_;
  TEventID cleared_ = 0, mapped_ = 0, stored_ = 0, named_ = 0, end_loaded_ = 0;
};

}  // namespace binmoe_ascend
