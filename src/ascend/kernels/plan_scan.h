// Launches 2 and 3 of a counting pass: from counts per block to where each block's runs begin.
//   bases [blocks + 1, row_experts]: entries of the expert in earlier blocks; the last row holds the totals
//   sums  [chunks]: entries of a chunk of experts
//   starts, bins, tokens_per_expert, kept_per_expert [num_experts]
#pragma once

#include "common.h"
#include "plan_tile.h"

namespace binmoe_ascend {

__aicore__ inline int32_t chunk_size(const PlanTile& tile, int64_t chunk) {
  const int64_t left = tile.num_experts - chunk * tile.chunk_experts;
  return static_cast<int32_t>(BINMOE_BOUND(smaller<int64_t>(left, tile.chunk_experts), tile.chunk_experts));
}

/// Add up over the blocks, a chunk of experts at a time; the vector unit's work.
class PlanBases {
 public:
  __aicore__ inline void Init(const PlanTile& tile, GM_ADDR counts, GM_ADDR bases, GM_ADDR sums) {
    tile_ = tile;
    counts_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(counts),
                            static_cast<uint64_t>(tile.blocks * tile.row_experts));
    bases_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(bases),
                           static_cast<uint64_t>((tile.blocks + 1) * tile.row_experts));
    sums_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(sums), static_cast<uint64_t>(tile.chunks));
    const uint32_t group_bytes = static_cast<uint32_t>(tile.group_rows * tile.chunk_experts) * sizeof(int32_t);
    pipe_.InitBuffer(groups_[0], group_bytes);
    pipe_.InitBuffer(groups_[1], group_bytes);
    pipe_.InitBuffer(sum_, kLine);
    loaded_ = pipe_.AllocEventID<HardEvent::MTE2_V>();
    added_ = pipe_.AllocEventID<HardEvent::V_MTE3>();
    summed_ = pipe_.AllocEventID<HardEvent::S_MTE3>();
  }

  __aicore__ inline void Process() {
    for (int64_t chunk = GetBlockIdx(); chunk < tile_.chunks; chunk += GetBlockNum()) AddUp(chunk);
    pipe_.ReleaseEventID<HardEvent::MTE2_V>(loaded_);
    pipe_.ReleaseEventID<HardEvent::V_MTE3>(added_);
    pipe_.ReleaseEventID<HardEvent::S_MTE3>(summed_);
  }

 private:
  __aicore__ inline void AddUp(int64_t chunk) {
    const int32_t experts = chunk_size(tile_, chunk);
    // No group came before the first: its last row is zero, and is the first row of bases.
    LocalTensor<int32_t> last = groups_[1].template Get<int32_t>();
    Duplicate(last, int32_t{0}, experts);
    Store(chunk, 0, 1, last, experts);
    int32_t turn = 0;
    for (int64_t block = 0; block < tile_.blocks; block += tile_.group_rows, turn ^= 1) {
      const auto rows = static_cast<int32_t>(
          BINMOE_BOUND(smaller<int64_t>(tile_.group_rows, tile_.blocks - block), tile_.group_rows));
      const LocalTensor<int32_t> group = groups_[turn].template Get<int32_t>();
      Load(chunk, block, rows, group, experts);
      for (int32_t i = 0; i < rows; ++i) {
        const LocalTensor<int32_t> row = group[static_cast<uint32_t>(i * tile_.chunk_experts)];
        PipeBarrier<PIPE_V>();
        Add(row, row, last, experts);
        last = row;
      }
      Store(chunk, block + 1, rows, group, experts);
    }
    Sum(chunk, last, experts);
    PipeBarrier<PIPE_ALL>();  // the next chunk clears the buffer that may hold these totals
  }

  __aicore__ inline void Load(int64_t chunk, int64_t row, int32_t rows, const LocalTensor<int32_t>& group,
                              int32_t experts) {
    constexpr uint32_t kWord = sizeof(int32_t);
    const uint32_t bytes = static_cast<uint32_t>(experts) * kWord;
    const auto gap = static_cast<uint32_t>((tile_.row_experts - experts) * int64_t{kWord});
    const uint32_t ub_gap = (static_cast<uint32_t>(tile_.chunk_experts) * kWord - round_to_line(bytes)) / kLine;
    DataCopyPad(group, counts_[static_cast<uint64_t>(row * tile_.row_experts + chunk * tile_.chunk_experts)],
                DataCopyExtParams{static_cast<uint16_t>(rows), bytes, gap, ub_gap, 0},
                DataCopyPadExtParams<int32_t>{false, 0, 0, 0});
    SetFlag<HardEvent::MTE2_V>(loaded_);
    WaitFlag<HardEvent::MTE2_V>(loaded_);
  }

  /// Write rows of bases. The buffers are used again at once: everything waits.
  __aicore__ inline void Store(int64_t chunk, int64_t row, int32_t rows, const LocalTensor<int32_t>& group,
                               int32_t experts) {
    SetFlag<HardEvent::V_MTE3>(added_);
    WaitFlag<HardEvent::V_MTE3>(added_);
    copy_out(bases_[static_cast<uint64_t>(row * tile_.row_experts + chunk * tile_.chunk_experts)], group, experts, rows,
             tile_.chunk_experts * static_cast<int32_t>(sizeof(int32_t)), tile_.row_experts);
    PipeBarrier<PIPE_ALL>();
  }

  /// Store has waited for the vector unit.
  __aicore__ inline void Sum(int64_t chunk, const LocalTensor<int32_t>& totals, int32_t experts) {
    int32_t sum = 0;
    for (int32_t i = 0; i < experts; ++i) {
      BINMOE_SCALAR(2);
      sum += totals.GetValue(static_cast<uint32_t>(i));
    }
    const LocalTensor<int32_t> line = sum_.template Get<int32_t>();
    line.SetValue(0, sum);
    SetFlag<HardEvent::S_MTE3>(summed_);
    WaitFlag<HardEvent::S_MTE3>(summed_);
    copy_out(sums_[static_cast<uint64_t>(chunk)], line, 1);
  }

  PlanTile tile_;
  TPipe pipe_;
  TBuf<TPosition::VECCALC> groups_[2], sum_;
  GlobalTensor<int32_t> counts_, bases_, sums_;
  TEventID loaded_ = 0, added_ = 0, summed_ = 0;
};

/// Add up over the experts, a chunk each; the scalar unit's work.
class PlanScan {
 public:
  __aicore__ inline void Init(const PlanTile& tile, GM_ADDR bases, GM_ADDR sums, GM_ADDR starts, GM_ADDR bins,
                              GM_ADDR tokens_per_expert, GM_ADDR kept_per_expert) {
    tile_ = tile;
    const auto experts = static_cast<uint64_t>(tile.num_experts);
    bases_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(bases),
                           static_cast<uint64_t>((tile.blocks + 1) * tile.row_experts));
    sums_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(sums), static_cast<uint64_t>(tile.chunks));
    starts_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(starts), experts);
    bins_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(bins), experts);
    tokens_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(tokens_per_expert), experts);
    kept_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(kept_per_expert), experts);
    const uint32_t bytes = static_cast<uint32_t>(tile.chunk_experts) * sizeof(int32_t);
    staged_sums_.Init(&pipe_, static_cast<uint32_t>(tile.stage_sums) * sizeof(int32_t));
    pipe_.InitBuffer(chunk_totals_, bytes);
    pipe_.InitBuffer(chunk_starts_, bytes);
    pipe_.InitBuffer(chunk_bins_, bytes);
    pipe_.InitBuffer(chunk_kept_, bytes);
    loaded_ = pipe_.AllocEventID<HardEvent::MTE2_S>();
    scanned_ = pipe_.AllocEventID<HardEvent::S_MTE3>();
  }

  __aicore__ inline void Process() {
    for (int64_t chunk = GetBlockIdx(); chunk < tile_.chunks; chunk += GetBlockNum()) Scan(chunk);
    staged_sums_.End();
    pipe_.ReleaseEventID<HardEvent::MTE2_S>(loaded_);
    pipe_.ReleaseEventID<HardEvent::S_MTE3>(scanned_);
  }

 private:
  /// Entries of the chunks before `chunk` that were not added yet.
  __aicore__ inline void AddSumsBefore(int64_t chunk) {
    while (summed_chunks_ < chunk) {
      const int64_t count = BINMOE_BOUND(smaller<int64_t>(chunk - summed_chunks_, tile_.stage_sums), tile_.stage_sums);
      copy_in(staged_sums_.template Claim<int32_t>(turn_), sums_[static_cast<uint64_t>(summed_chunks_)], count);
      staged_sums_.Filled(turn_);
      staged_sums_.Wait(turn_);
      const LocalTensor<int32_t> sums = staged_sums_.template Read<int32_t>(turn_);
      for (int32_t i = 0; i < count; ++i) {
        BINMOE_SCALAR(2);
        before_ += sums.GetValue(static_cast<uint32_t>(i));
      }
      staged_sums_.Release(turn_++);
      summed_chunks_ += count;
    }
  }

  __aicore__ inline void Scan(int64_t chunk) {
    const int32_t experts = chunk_size(tile_, chunk);
    const auto first = static_cast<uint64_t>(chunk * tile_.chunk_experts);
    const LocalTensor<int32_t> totals = chunk_totals_.template Get<int32_t>();
    const LocalTensor<int32_t> starts = chunk_starts_.template Get<int32_t>();
    const LocalTensor<int32_t> bins = chunk_bins_.template Get<int32_t>();
    const LocalTensor<int32_t> kept = chunk_kept_.template Get<int32_t>();
    copy_in(totals, bases_[static_cast<uint64_t>(tile_.blocks * tile_.row_experts) + first], experts);
    SetFlag<HardEvent::MTE2_S>(loaded_);
    AddSumsBefore(chunk);
    WaitFlag<HardEvent::MTE2_S>(loaded_);
    int32_t end = before_;
    for (int32_t i = 0; i < experts; ++i) {
      BINMOE_SCALAR(4);
      const auto e = static_cast<uint32_t>(i);
      const int32_t total = totals.GetValue(e);
      starts.SetValue(e, end);
      end += total;
      bins.SetValue(e, end);
      kept.SetValue(e, smaller(total, tile_.expert_capacity));
    }
    SetFlag<HardEvent::S_MTE3>(scanned_);
    WaitFlag<HardEvent::S_MTE3>(scanned_);
    copy_out(starts_[first], starts, experts);
    copy_out(bins_[first], bins, experts);
    copy_out(tokens_[first], totals, experts);
    copy_out(kept_[first], kept, experts);
    PipeBarrier<PIPE_ALL>();
  }

  PlanTile tile_;
  TPipe pipe_;
  Staged<1> staged_sums_;
  TBuf<TPosition::VECCALC> chunk_totals_, chunk_starts_, chunk_bins_, chunk_kept_;
  GlobalTensor<int32_t> bases_, sums_, starts_, bins_, tokens_, kept_;
  TEventID loaded_ = 0, scanned_ = 0;
  int64_t summed_chunks_ = 0, turn_ = 0;
  int32_t before_ = 0;
};

}  // namespace binmoe_ascend
