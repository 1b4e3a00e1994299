// The positions of a block, read stage by stage: expert_ids in token or choice order, or records of the radix sort.
#pragma once

#include "common.h"
#include "plan_tile.h"

namespace binmoe_ascend {

__aicore__ inline int64_t first_position(const PlanTile& tile, int64_t block) {
  return block * tile.block_positions;
}

__aicore__ inline int32_t block_count(const PlanTile& tile, int64_t block) {
  const int64_t left = tile.positions - first_position(tile, block);
  return static_cast<int32_t>(BINMOE_BOUND(smaller<int64_t>(left, tile.block_positions), tile.block_positions));
}

/// Positions from `position` to `end` that belong to one choice.
__aicore__ inline int64_t same_choice(const PlanTile& tile, int64_t position, int64_t end) {
  return smaller(end, (position / tile.choice_positions + 1) * tile.choice_positions) - position;
}

__aicore__ inline int64_t assignment_at(const PlanTile& tile, int64_t position) {
  return position % tile.choice_positions * tile.stride + position / tile.choice_positions;
}

/// expert_ids. In choice order neighbours stand K apart in GM: each comes as a block of its own, 32 bytes apart in UB.
template <class Id>
class IdReader {
 public:
  using Element = Id;
  static constexpr bool kInRange = false;           // an expert may be none of the plan's
  static constexpr bool kAssignmentStored = false;  // assignments follow from positions

  __aicore__ inline void Init(const PlanTile& tile, GM_ADDR ids) {
    tile_ = tile;
    step_ = tile.stride == 1 ? 1 : kLine / static_cast<int32_t>(sizeof(Id));
    ids_.SetGlobalBuffer(reinterpret_cast<__gm__ Id*>(ids), static_cast<uint64_t>(tile.positions));
  }

  __aicore__ inline void Copy(const LocalTensor<Id>& to, int64_t first, int32_t count) const {
    if (tile_.stride == 1) return copy_in(to, ids_[static_cast<uint64_t>(first)], count);
    const auto gap = static_cast<uint32_t>((tile_.stride - 1) * static_cast<int64_t>(sizeof(Id)));
    for (int64_t at = first; at < first + count;) {
      const int64_t run = same_choice(tile_, at, first + count);
      DataCopyPad(to[static_cast<uint32_t>((at - first) * step_)],
                  ids_[static_cast<uint64_t>(assignment_at(tile_, at))],
                  DataCopyExtParams{static_cast<uint16_t>(run), sizeof(Id), gap, 0, 0},
                  DataCopyPadExtParams<Id>{false, 0, 0, Id()});
      at += run;
    }
  }

  __aicore__ inline void Start(int64_t position) {
    left_ = tile_.choice_positions - position % tile_.choice_positions;
    choice_ = position / tile_.choice_positions;
    assignment_ = assignment_at(tile_, position);
  }
  __aicore__ inline void Advance() {
    BINMOE_SCALAR(2);
    assignment_ += tile_.stride;
    if (--left_ > 0) return;
    left_ = tile_.choice_positions;
    assignment_ = ++choice_;
  }

  /// The id in its own width, as a number.
  __aicore__ inline int64_t Expert(const LocalTensor<Id>& stage, int32_t i) const {
    return static_cast<int64_t>(stage.GetValue(static_cast<uint32_t>(i * step_)));
  }
  __aicore__ inline int32_t Assignment(const LocalTensor<Id>&, int32_t) const {
    return static_cast<int32_t>(assignment_);
  }

 private:
  PlanTile tile_;
  GlobalTensor<Id> ids_;
  int32_t step_ = 1;
  int64_t left_ = 0, choice_ = 0, assignment_ = 0;
};

/// Records, sorted by expert or by a digit of their key.
template <bool kByKey>
class RecordReader {
 public:
  using Element = int32_t;
  static constexpr bool kInRange = kByKey;
  static constexpr bool kAssignmentStored = true;

  __aicore__ inline void Init(const PlanTile& tile, GM_ADDR records) {
    shift_ = tile.key_shift;
    records_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(records),
                             static_cast<uint64_t>(tile.positions * kRecordWords));
  }

  __aicore__ inline void Copy(const LocalTensor<int32_t>& to, int64_t first, int32_t count) const {
    copy_in(to, records_[static_cast<uint64_t>(first * kRecordWords)], int64_t{count} * kRecordWords);
  }

  __aicore__ inline void Start(int64_t) {}
  __aicore__ inline void Advance() { BINMOE_SCALAR(1); }

  __aicore__ inline int64_t Expert(const LocalTensor<int32_t>& stage, int32_t i) const {
    if constexpr (kByKey)
      return Digit(Word(stage, i, 0));
    else
      return Word(stage, i, 2);
  }
  __aicore__ inline int32_t Assignment(const LocalTensor<int32_t>& stage, int32_t i) const { return Word(stage, i, 1); }

  __aicore__ inline int32_t Word(const LocalTensor<int32_t>& stage, int32_t i, int32_t word) const {
    return stage.GetValue(static_cast<uint32_t>(i * kRecordWords + word));
  }
  __aicore__ inline int32_t Digit(int32_t key) const {
    BINMOE_SCALAR(2);
    return static_cast<int32_t>((static_cast<uint32_t>(key) >> shift_) & (kDigits - 1));
  }

 private:
  GlobalTensor<int32_t> records_;
  int32_t shift_ = 0;
};

/// A block's positions, the next stage loaded while one is read.
template <class Reader>
class Positions {
 public:
  using Element = typename Reader::Element;

  __aicore__ inline void Init(TPipe* pipe, const PlanTile& tile, GM_ADDR input) {
    tile_ = tile;
    reader.Init(tile, input);
    staged_.Init(pipe, static_cast<uint32_t>(tile.stage_bytes));
  }

  __aicore__ inline void Begin(int64_t block) {
    first_ = first_position(tile_, block);
    count_ = block_count(tile_, block);
    reader.Start(first_);
    if (count_ > 0) Load(0);
  }

  __aicore__ inline int32_t count() const { return count_; }

  /// Positions of the stage that begins `at` positions behind the block's first.
  __aicore__ inline int32_t StageCount(int32_t at) const {
    return BINMOE_BOUND(smaller(count_ - at, tile_.stage_positions), tile_.stage_positions);
  }

  /// Stages are entered in order; `at` as above.
  __aicore__ inline LocalTensor<Element> Enter(int32_t at) {
    if (at + tile_.stage_positions < count_) Load(at + tile_.stage_positions);
    staged_.Wait(turn_);
    return staged_.template Read<Element>(turn_);
  }
  __aicore__ inline void Leave() { staged_.Release(turn_++); }
  __aicore__ inline void End() { staged_.End(); }

  Reader reader;

 private:
  __aicore__ inline void Load(int32_t at) {
    reader.Copy(staged_.template Claim<Element>(loaded_), first_ + at, StageCount(at));
    staged_.Filled(loaded_++);
  }

  PlanTile tile_;
  Staged<2> staged_;
  int64_t first_ = 0, turn_ = 0, loaded_ = 0;
  int32_t count_ = 0;
};

}  // namespace binmoe_ascend
