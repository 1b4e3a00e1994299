// by_weight: a stable radix sort by the weight, the first digit first; then comes the pass by expert.
//   records [T*K, 3]: key, assignment, expert (-1: masked)
// Equal weights keep the order of the assignments, because every pass is stable.
#pragma once

#include "plan_positions.h"
#include "plan_runs.h"

namespace binmoe_ascend {

/// Larger weights get smaller keys; -0 that of +0, NaN the largest. `sign` is the format's sign bit, `infinity` its
/// infinity: bits of floats order like the numbers they are, so keys of 16-bit weights need 16 bits.
__aicore__ inline uint32_t key_of(uint32_t bits, uint32_t sign, uint32_t infinity) {
  const uint32_t magnitude = bits & (sign - 1);
  if (magnitude > infinity) return sign | (sign - 1);
  if (magnitude == 0) return sign - 1;
  return (bits & sign) != 0 ? bits : bits ^ (sign - 1);
}

template <class Id>
class PlanRecords {
 public:
  __aicore__ inline void Init(const PlanTile& tile, GM_ADDR ids, GM_ADDR weights, GM_ADDR records) {
    tile_ = tile;
    words_ = words_of(tile.weight_type);
    ids_.SetGlobalBuffer(reinterpret_cast<__gm__ Id*>(ids), static_cast<uint64_t>(tile.positions));
    weights_.SetGlobalBuffer(reinterpret_cast<__gm__ uint16_t*>(weights),
                             static_cast<uint64_t>(tile.positions * words_));
    records_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(records),
                             static_cast<uint64_t>(tile.positions * kRecordWords));
    staged_.Init(&pipe_, static_cast<uint32_t>(tile.stage_bytes + tile.weight_bytes));
    pipe_.InitBuffer(made_, static_cast<uint32_t>(tile.record_bytes));
    filled_ = pipe_.AllocEventID<HardEvent::S_MTE3>();
    drained_ = pipe_.AllocEventID<HardEvent::MTE3_S>();
    blocks_ = (tile.blocks - GetBlockIdx() + GetBlockNum() - 1) / GetBlockNum();
  }

  __aicore__ inline void Process() {
    if (blocks_ > 0) Load(0);
    for (int64_t turn = 0; turn < blocks_; ++turn) {
      if (turn + 1 < blocks_) Load(turn + 1);
      staged_.Wait(turn);
      if (turn > 0) WaitFlag<HardEvent::MTE3_S>(drained_);
      Make(turn);
      staged_.Release(turn);
    }
    if (blocks_ > 0) WaitFlag<HardEvent::MTE3_S>(drained_);  // nothing follows: it balances the flag
    staged_.End();
    pipe_.ReleaseEventID<HardEvent::S_MTE3>(filled_);
    pipe_.ReleaseEventID<HardEvent::MTE3_S>(drained_);
  }

 private:
  __aicore__ inline int64_t Block(int64_t turn) const { return turn * GetBlockNum() + GetBlockIdx(); }

  __aicore__ inline LocalTensor<uint16_t> Weights(const LocalTensor<Id>& ids) const {
    return ids[static_cast<uint32_t>(tile_.stage_bytes) / sizeof(Id)].template ReinterpretCast<uint16_t>();
  }

  __aicore__ inline void Load(int64_t turn) {
    const int64_t first = first_position(tile_, Block(turn));
    const int32_t count = block_count(tile_, Block(turn));
    const LocalTensor<Id> ids = staged_.template Claim<Id>(turn);
    copy_in(ids, ids_[static_cast<uint64_t>(first)], count);
    copy_in(Weights(ids), weights_[static_cast<uint64_t>(first * words_)], int64_t{count} * words_);
    staged_.Filled(turn);
  }

  __aicore__ inline uint32_t Key(const LocalTensor<uint16_t>& weights, uint32_t i) const {
    BINMOE_SCALAR(6);
    if (tile_.weight_type == ScalarType::f32)
      return key_of(weights.template ReinterpretCast<uint32_t>().GetValue(i), 0x80000000u, 0x7f800000u);
    return key_of(weights.GetValue(i), 0x8000u, tile_.weight_type == ScalarType::bf16 ? 0x7f80u : 0x7c00u);
  }

  __aicore__ inline void Make(int64_t turn) {
    const int64_t first = first_position(tile_, Block(turn));
    const int32_t count = block_count(tile_, Block(turn));
    const LocalTensor<Id> ids = staged_.template Read<Id>(turn);
    const LocalTensor<uint16_t> weights = Weights(ids);
    const LocalTensor<int32_t> made = made_.template Get<int32_t>();
    for (int32_t i = 0; i < count; ++i) {
      BINMOE_SCALAR(6);
      const auto from = static_cast<uint32_t>(i), to = from * kRecordWords;
      const auto expert = static_cast<int64_t>(ids.GetValue(from));  // its own width: 2^32 is not 0
      const bool is_masked = BINMOE_BOUND(expert < 0 || expert >= tile_.num_experts, false);
      made.SetValue(to, static_cast<int32_t>(Key(weights, from)));
      made.SetValue(to + 1, static_cast<int32_t>(first + i));
      made.SetValue(to + 2, is_masked ? -1 : static_cast<int32_t>(expert));
    }
    SetFlag<HardEvent::S_MTE3>(filled_);
    WaitFlag<HardEvent::S_MTE3>(filled_);
    copy_out(records_[static_cast<uint64_t>(first * kRecordWords)], made, count * kRecordWords);
    SetFlag<HardEvent::MTE3_S>(drained_);
  }

  PlanTile tile_;
  TPipe pipe_;
  Staged<2> staged_;
  TBuf<TPosition::VECCALC> made_;
  GlobalTensor<Id> ids_;
  GlobalTensor<uint16_t> weights_;
  GlobalTensor<int32_t> records_;
  TEventID filled_ = 0, drained_ = 0;
  int64_t blocks_ = 0;
  int32_t words_ = 1;
};

/// Launch 4 of a pass by digit: records to where their digit puts them.
class PlanPlaceRecords {
 public:
  __aicore__ inline void Init(const PlanTile& tile, GM_ADDR records, GM_ADDR counts, GM_ADDR bases, GM_ADDR starts,
                              GM_ADDR sorted) {
    tile_ = tile;
    positions_.Init(&pipe_, tile, records);
    runs_.Init(&pipe_, tile, counts, bases, starts);
    sorted_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(sorted),
                            static_cast<uint64_t>(tile.positions * kRecordWords));
  }

  __aicore__ inline void Process() {
    for (int64_t block = GetBlockIdx(); block < tile_.blocks; block += GetBlockNum()) PlaceBlock(block);
    runs_.End();
    positions_.End();
  }

 private:
  __aicore__ inline void PlaceBlock(int64_t block) {
    positions_.Begin(block);
    runs_.Begin(block, 0, tile_.num_experts);
    for (int32_t at = 0; at < positions_.count(); at += tile_.stage_positions) {
      const LocalTensor<int32_t> stage = positions_.Enter(at);
      const int32_t count = positions_.StageCount(at);
      for (int32_t i = 0; i < count; ++i, positions_.reader.Advance()) {
        BINMOE_SCALAR(1);
        const int32_t key = positions_.reader.Word(stage, i, 0);
        const auto slot = static_cast<uint32_t>(runs_.Take(static_cast<uint32_t>(positions_.reader.Digit(key))));
        runs_.slots.SetValue(slot, key);
        runs_.slots.SetValue(slot + 1, positions_.reader.Word(stage, i, 1));
        runs_.slots.SetValue(slot + 2, positions_.reader.Word(stage, i, 2));
      }
      positions_.Leave();
    }
    runs_.Fill();
    int32_t slot = 0;
    for (int32_t i = 0; i < runs_.count(); ++i) {
      const auto run = runs_.At(i, slot);
      copy_out(sorted_[static_cast<uint64_t>(run.position * kRecordWords)],
               runs_.slots[static_cast<uint32_t>(run.slot)], run.entries * kRecordWords);
    }
    runs_.Leave();
  }

  PlanTile tile_;
  TPipe pipe_;
  Positions<RecordReader<true>> positions_;
  Runs<kRecordWords> runs_;
  GlobalTensor<int32_t> sorted_;
};

}  // namespace binmoe_ascend
