// The counting sort of one block inside UB: entries of one expert form a run that begins at a multiple of 32 bytes, so
// that each run leaves as one burst of exact bytes. Only the experts that the block meets cost scalar work.
#pragma once

#include "common.h"
#include "plan_tile.h"

namespace binmoe_ascend {

template <int32_t kWords>
class Runs {
 public:
  struct Run {
    int64_t position;  // where it goes
    int32_t local;     // expert, from the tile's first
    int32_t slot;      // where it stands, in words
    int32_t entries;
  };

  __aicore__ inline void Init(TPipe* pipe, const PlanTile& tile, GM_ADDR counts, GM_ADDR bases, GM_ADDR starts) {
    pipe_ = pipe;
    tile_ = tile;
    counts_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(counts),
                            static_cast<uint64_t>(tile.blocks * tile.row_experts));
    bases_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(bases),
                           static_cast<uint64_t>((tile.blocks + 1) * tile.row_experts));
    starts_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(starts), static_cast<uint64_t>(tile.num_experts));
    table_.Init(pipe, 3 * static_cast<uint32_t>(tile.tile_experts) * sizeof(int32_t));
    pipe->InitBuffer(touched_buffer_, static_cast<uint32_t>(tile.touched_bytes));
    pipe->InitBuffer(slots_buffer_, static_cast<uint32_t>(tile.slot_bytes));
    filled_ = pipe->template AllocEventID<HardEvent::S_MTE3>();
    drained_ = pipe->template AllocEventID<HardEvent::MTE3_S>();
  }

  /// Begin a block's experts [begin, begin + experts).
  __aicore__ inline void Begin(int64_t block, int64_t begin, int32_t experts) {
    const LocalTensor<int32_t> table = table_.template Claim<int32_t>(turn_);
    next_ = table;
    base_ = table[static_cast<uint32_t>(tile_.tile_experts)];
    start_ = table[static_cast<uint32_t>(2 * tile_.tile_experts)];
    const auto row = static_cast<uint64_t>(block * tile_.row_experts + begin);
    copy_in(next_, counts_[row], experts);
    copy_in(base_, bases_[row], experts);
    copy_in(start_, starts_[static_cast<uint64_t>(begin)], experts);
    table_.Filled(turn_);
    table_.Wait(turn_);
    if (is_filled_) WaitFlag<HardEvent::MTE3_S>(drained_);
    touched_ = touched_buffer_.template Get<int32_t>();
    slots = Slots();
    used_ = runs_ = 0;
  }

  /// Words of the next slot of an expert. The first makes room for all that the block has. `next_` holds the count
  /// before that, then the complement of the slot.
  __aicore__ inline int32_t Take(uint32_t local) {
    BINMOE_SCALAR(3);
    const int32_t value = next_.GetValue(local);
    int32_t slot = ~value;
    if (value > 0) {
      BINMOE_SCALAR(6);
      slot = used_;
      used_ += round_words(value * kWords);
      base_.SetValue(local, base_.GetValue(local) - slot);  // so that Rank is one sum
      touched_.SetValue(static_cast<uint32_t>(runs_++), static_cast<int32_t>(local));
    }
    next_.SetValue(local, ~(slot + kWords));
    return slot;
  }

  /// Offset in the expert of the entry in `slot`; for entries of one word.
  __aicore__ inline int32_t Rank(uint32_t local, int32_t slot) const {
    static_assert(kWords == 1, "slots and entries are counted alike");
    BINMOE_SCALAR(1);
    return base_.GetValue(local) + slot;
  }

  /// All entries are in place: MTE3 may read them.
  __aicore__ inline void Fill() {
    SetFlag<HardEvent::S_MTE3>(filled_);
    WaitFlag<HardEvent::S_MTE3>(filled_);
  }

  __aicore__ inline int32_t count() const { return runs_; }

  /// Run number `index`; they come in the order of their slots, and `slot` goes from one to the next_.
  __aicore__ inline Run At(int32_t index, int32_t& slot) const {
    BINMOE_SCALAR(6);
    const int32_t local = touched_.GetValue(static_cast<uint32_t>(index)), begin = slot;
    const auto expert = static_cast<uint32_t>(local);
    const int32_t words = ~next_.GetValue(expert) - begin;
    slot += round_words(words);
    return {int64_t{start_.GetValue(expert)} + base_.GetValue(expert) + begin, local, begin, words / kWords};
  }

  /// The last burst is under way.
  __aicore__ inline void Leave() {
    table_.Release(turn_++);
    SetFlag<HardEvent::MTE3_S>(drained_);
    is_filled_ = true;
  }

  __aicore__ inline void End() {
    if (is_filled_) WaitFlag<HardEvent::MTE3_S>(drained_);  // nothing follows: it balances the flag
    table_.End();
    pipe_->template ReleaseEventID<HardEvent::S_MTE3>(filled_);
    pipe_->template ReleaseEventID<HardEvent::MTE3_S>(drained_);
  }

  /// The whole buffer, between blocks.
  __aicore__ inline LocalTensor<int32_t> Slots() { return slots_buffer_.template Get<int32_t>(); }

  LocalTensor<int32_t> slots;

 private:
  __aicore__ static inline int32_t round_words(int32_t words) {
    constexpr int32_t kLineWords = kLine / 4;
    return (words + kLineWords - 1) / kLineWords * kLineWords;
  }

  TPipe* pipe_ = nullptr;
  PlanTile tile_;
  Staged<1> table_;
  TBuf<TPosition::VECCALC> touched_buffer_, slots_buffer_;
  LocalTensor<int32_t> next_, base_, start_, touched_;
  GlobalTensor<int32_t> counts_, bases_, starts_;
  TEventID filled_ = 0, drained_ = 0;
  int64_t turn_ = 0;
  int32_t used_ = 0, runs_ = 0;
  bool is_filled_ = false;
};

}  // namespace binmoe_ascend
