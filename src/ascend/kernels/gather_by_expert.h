// Gather in expert order, the algorithm of MegaBlocks' port to Ascend: a program walks sub-blocks of the sorted
// positions, finds expert and offset from bins, keeps offsets below the capacity, collects rows of one expert in a slot
// and flushes it, as one burst (weighted: scaled together, a burst a row), when the expert changes, when the slot is
// full, and at the end of the sub-block.
#pragma once

#include "common.h"
#include "row_scaler.h"
#include "zero_rows.h"

namespace binmoe_ascend {

template <class T, bool kWeighted>
class GatherByExpert {
 public:
  __aicore__ inline void Init(const MoverTile& tile, GM_ADDR indices, GM_ADDR bins, GM_ADDR kept_per_expert, GM_ADDR x,
                              GM_ADDR weights, GM_ADDR y) {
    tile_ = tile;
    indices_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(indices), static_cast<uint64_t>(tile.count));
    if constexpr (kWeighted)
      weights_.SetGlobalBuffer(reinterpret_cast<__gm__ uint16_t*>(weights),
                               static_cast<uint64_t>(tile.tokens * tile.top_k * words_of(tile.weight_type)));
    x_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(x), extent(tile.tokens, tile.token_stride, tile.hidden_size));
    y_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(y),
                       extent(expert_rows(tile), tile.expert_row_stride, tile.hidden_size));
    pipe_.InitBuffer(rows_, static_cast<uint8_t>(tile.slots),
                     static_cast<uint32_t>(tile.row_pitch) * static_cast<uint32_t>(tile.slot_rows));
    if constexpr (kWeighted) {
      scaler_.Init(&pipe_, tile);
      staged_weights_.Init(&pipe_, static_cast<uint32_t>(tile.slot_rows * kLine));
    }
    bins_.Init(&pipe_, bins, tile.num_experts, tile.bin_experts);
    staged_.Init(&pipe_, static_cast<uint32_t>(tile.map_bytes));
    zeros_.Init(&pipe_, tile, kept_per_expert, y, tile.expert_row_stride);
    const int64_t blocks = (int64_t{tile.count} + tile.block_tokens - 1) / tile.block_tokens;
    count_ = (blocks - GetBlockIdx() + GetBlockNum() - 1) / GetBlockNum();
  }

  __aicore__ inline void Process() {
    if (count_ > 0) Load(0);
    int64_t produced = 0, consumed = 0;
    while (true) {
      while (produced - consumed < tile_.slots && block_ < count_) Produce(produced), ++produced;
      if (produced == consumed) break;
      Consume(consumed++);
    }
    bins_.End();
    staged_.End();
    if constexpr (kWeighted) staged_weights_.End();
    zeros_.Process();
  }

 private:
  /// Rows of one expert that stand next to each other in y.
  struct Run {
    int32_t tile;
    int64_t first_row;
    int32_t rows;
  };

  __aicore__ inline int64_t first_position(int64_t block) const {
    return (block * GetBlockNum() + GetBlockIdx()) * tile_.block_tokens;
  }
  __aicore__ inline int32_t positions(int64_t block) const {
    const int64_t left = tile_.count - first_position(block);
    return static_cast<int32_t>(BINMOE_BOUND(smaller<int64_t>(left, tile_.block_tokens), tile_.block_tokens));
  }

  __aicore__ inline void Load(int64_t block) {
    copy_in(staged_.template Claim<int32_t>(block), indices_[static_cast<uint64_t>(first_position(block))],
            positions(block));
    staged_.Filled(block);
  }

  __aicore__ inline int32_t bin(int32_t expert) { return bins_.Get(expert); }

  /// The first expert whose bin ends behind `position`.
  __aicore__ inline int32_t ExpertOf(int64_t position) {
    int32_t low = 0, high = tile_.num_experts - 1;
    while (low < high) {
      BINMOE_SCALAR(3);
      const int32_t middle = low + (high - low) / 2;
      if (bin(middle) <= position)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }

  __aicore__ inline void EnterSubBlock() {
    if (tile_index_ == 0) {
      if (block_ + 1 < count_) Load(block_ + 1);
      staged_.Wait(block_);
    }
    expert_ = ExpertOf(first_position(block_));
    expert_begin_ = expert_ > 0 ? bin(expert_ - 1) : 0;
  }

  /// Collect rows until the slot must be flushed.
  __aicore__ inline void Produce(int64_t turn) {
    Run& run = runs_[turn % kMaxSlots];
    if (position_ == 0) EnterSubBlock();
    run = {tile_index_, 0, 0};
    LocalTensor<T> rows = rows_.template AllocTensor<T>();
    LocalTensor<uint16_t> weights;
    if constexpr (kWeighted) weights = staged_weights_.template Claim<uint16_t>(turn);
    const int64_t first = first_position(block_);
    const int32_t count = positions(block_);
    const LocalTensor<int32_t> indices = staged_.template Read<int32_t>(block_);
    for (; position_ < count; ++position_) {
      BINMOE_SCALAR(4);
      const int64_t sorted = first + position_;
      if (bin(expert_) <= sorted) {
        if (run.rows > 0) break;  // the expert changes: flush first
        while (bin(expert_) <= sorted) expert_begin_ = bin(expert_++);
      }
      const int64_t offset = sorted - expert_begin_;
      if (BINMOE_BOUND(offset >= tile_.expert_capacity, false)) continue;
      if (run.rows == tile_.slot_rows) break;  // the slot is full
      if (run.rows == 0) run.first_row = int64_t{expert_} * tile_.expert_capacity + offset;
      Fetch(indices.GetValue(static_cast<uint32_t>(position_)), run.rows++, rows, weights);
    }
    rows_.EnQue(rows);
    if constexpr (kWeighted) staged_weights_.Filled(turn);
    if (position_ < count) return;
    position_ = 0;
    if (++tile_index_ < tile_.num_tiles) return;
    tile_index_ = 0;
    staged_.Release(block_++);
  }

  __aicore__ inline int64_t column(int32_t tile) const { return int64_t{tile} * tile_.block_x; }

  __aicore__ inline void Fetch(int32_t assignment, int32_t place, const LocalTensor<T>& rows,
                               const LocalTensor<uint16_t>& weights) {
    BINMOE_SCALAR(3);
    const int32_t columns = tile_columns(tile_, tile_index_);
    const int64_t token = assignment / tile_.top_k;
    copy_in_padded(rows[static_cast<uint32_t>(place * padded<T>(columns))],
                   x_[static_cast<uint64_t>(token * tile_.token_stride + column(tile_index_))], columns);
    if constexpr (kWeighted)
      copy_in(weights[static_cast<uint32_t>(place * kLine / 2)],
              weights_[static_cast<uint64_t>(int64_t{assignment} * words_of(tile_.weight_type))],
              words_of(tile_.weight_type));
  }

  /// Flush one slot.
  __aicore__ inline void Consume(int64_t turn) {
    const Run& run = runs_[turn % kMaxSlots];
    const int32_t columns = tile_columns(tile_, run.tile), pitch = padded<T>(columns);
    const int64_t to = run.first_row * tile_.expert_row_stride + column(run.tile);
    LocalTensor<T> rows = rows_.template DeQue<T>();
    if constexpr (kWeighted) {
      staged_weights_.Wait(turn);
      const LocalTensor<uint16_t> weights = staged_weights_.template Read<uint16_t>(turn);
      scaler_.Take(rows, run.rows, columns);
      for (int32_t i = 0; i < run.rows; ++i)
        scaler_.Push(y_[static_cast<uint64_t>(to + i * tile_.expert_row_stride)], i,
                     read_scalar(weights[static_cast<uint32_t>(i * kLine / 2)], tile_.weight_type, 0));
      scaler_.Flush();
      staged_weights_.Release(turn);
    } else if ((tile_.expert_row_stride - columns) * static_cast<int64_t>(sizeof(T)) <= UINT32_MAX) {
      if (run.rows > 0)
        copy_out(y_[static_cast<uint64_t>(to)], rows, columns, run.rows, pitch * static_cast<int32_t>(sizeof(T)),
                 tile_.expert_row_stride);
    } else {  // a burst cannot stride so far
      for (int32_t i = 0; i < run.rows; ++i)
        copy_out(y_[static_cast<uint64_t>(to + i * tile_.expert_row_stride)], rows[static_cast<uint32_t>(i * pitch)],
                 columns);
    }
    rows_.FreeTensor(rows);
  }

  MoverTile tile_;
  TPipe pipe_;
  RowQueue<kWeighted> rows_;
  RowScaler<T> scaler_;
  StagedTable bins_;
  Staged<2> staged_;
  Staged<kMaxSlots> staged_weights_;
  ZeroRows<T> zeros_;
  GlobalTensor<int32_t> indices_;
  GlobalTensor<uint16_t> weights_;
  GlobalTensor<T> x_, y_;
  Run runs_[kMaxSlots];
  int64_t count_ = 0, block_ = 0;
  int32_t tile_index_ = 0, position_ = 0, expert_ = 0;
  int64_t expert_begin_ = 0;
};

}  // namespace binmoe_ascend
