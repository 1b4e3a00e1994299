// Launch 1 of a counting pass: count each block's positions by expert.
//   counts [blocks, row_experts]; an id outside [0, num_experts) is counted nowhere
#pragma once

#include "plan_positions.h"

namespace binmoe_ascend {

template <class Reader>
class PlanCount {
 public:
  __aicore__ inline void Init(const PlanTile& tile, GM_ADDR input, GM_ADDR counts) {
    tile_ = tile;
    positions_.Init(&pipe_, tile, input);
    counts_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(counts),
                            static_cast<uint64_t>(tile.blocks * tile.row_experts));
    pipe_.InitBuffer(row_, static_cast<uint32_t>(tile.count_experts) * sizeof(int32_t));
    cleared_ = pipe_.AllocEventID<HardEvent::V_S>();
    counted_ = pipe_.AllocEventID<HardEvent::S_MTE3>();
    stored_ = pipe_.AllocEventID<HardEvent::MTE3_V>();
  }

  __aicore__ inline void Process() {
    for (int64_t block = GetBlockIdx(); block < tile_.blocks; block += GetBlockNum())
      for (int64_t begin = 0; begin < tile_.num_experts; begin += tile_.count_experts) Count(block, begin);
    if (is_stored_) WaitFlag<HardEvent::MTE3_V>(stored_);  // nothing follows: it balances the flag
    positions_.End();
    pipe_.ReleaseEventID<HardEvent::V_S>(cleared_);
    pipe_.ReleaseEventID<HardEvent::S_MTE3>(counted_);
    pipe_.ReleaseEventID<HardEvent::MTE3_V>(stored_);
  }

 private:
  /// One block, experts [begin, begin + count_experts).
  __aicore__ inline void Count(int64_t block, int64_t begin) {
    const auto experts = static_cast<int32_t>(
        BINMOE_BOUND(smaller<int64_t>(tile_.count_experts, tile_.num_experts - begin), tile_.count_experts));
    const LocalTensor<int32_t> row = row_.template Get<int32_t>();
    if (is_stored_) WaitFlag<HardEvent::MTE3_V>(stored_);
    Duplicate(row, int32_t{0}, experts);
    SetFlag<HardEvent::V_S>(cleared_);
    positions_.Begin(block);
    WaitFlag<HardEvent::V_S>(cleared_);
    for (int32_t at = 0; at < positions_.count(); at += tile_.stage_positions) {
      const LocalTensor<typename Reader::Element> stage = positions_.Enter(at);
      const int32_t count = positions_.StageCount(at);
      for (int32_t i = 0; i < count; ++i) {
        BINMOE_SCALAR(2);
        const uint64_t local = static_cast<uint64_t>(positions_.reader.Expert(stage, i)) - static_cast<uint64_t>(begin);
        if constexpr (!Reader::kInRange) {
          BINMOE_SCALAR(2);
          if (BINMOE_BOUND(local >= static_cast<uint64_t>(experts), false)) continue;
        }
        const auto expert = static_cast<uint32_t>(local);
        row.SetValue(expert, row.GetValue(expert) + 1);
      }
      positions_.Leave();
    }
    SetFlag<HardEvent::S_MTE3>(counted_);
    WaitFlag<HardEvent::S_MTE3>(counted_);
    copy_out(counts_[static_cast<uint64_t>(block * tile_.row_experts + begin)], row, experts);
    SetFlag<HardEvent::MTE3_V>(stored_);
    is_stored_ = true;
  }

  PlanTile tile_;
  TPipe pipe_;
  Positions<Reader> positions_;
  TBuf<TPosition::VECCALC> row_;
  GlobalTensor<int32_t> counts_;
  TEventID cleared_ = 0, counted_ = 0, stored_ = 0;
  bool is_stored_ = false;
};

}  // namespace binmoe_ascend
