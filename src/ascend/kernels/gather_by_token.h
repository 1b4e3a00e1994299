// Gather in token order: a row of x is read once and written to its kept rows through row_of_assignment. A slot holds
// the rows of several tokens.
#pragma once

#include "common.h"
#include "row_scaler.h"
#include "zero_rows.h"

namespace binmoe_ascend {

template <class T, bool kWeighted>
class GatherByToken {
 public:
  __aicore__ inline void Init(const MoverTile& tile, GM_ADDR row_of_assignment, GM_ADDR kept_per_expert, GM_ADDR x,
                              GM_ADDR weights, GM_ADDR y) {
    tile_ = tile;
    x_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(x), extent(tile.tokens, tile.token_stride, tile.hidden_size));
    y_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(y),
                       extent(expert_rows(tile), tile.expert_row_stride, tile.hidden_size));
    const auto pitch = static_cast<uint32_t>(tile.row_pitch);
    pipe_.InitBuffer(rows_, static_cast<uint8_t>(tile.slots), pitch * static_cast<uint32_t>(tile.slot_rows));
    if constexpr (kWeighted) scaler_.Init(&pipe_, tile);
    blocks_.Init(&pipe_, tile, row_of_assignment, weights);
    zeros_.Init(&pipe_, tile, kept_per_expert, y, tile.expert_row_stride);
  }

  __aicore__ inline void Process() {
    int64_t produced = 0, consumed = 0;
    while (true) {
      while (produced - consumed < tile_.slots && cursor_.block < blocks_.count())
        Produce(slots_[produced++ % kMaxSlots]);
      if (produced == consumed) break;
      Consume(slots_[consumed++ % kMaxSlots]);
    }
    blocks_.End();
    zeros_.Process();
  }

 private:
  /// Some tokens of a block, in one tile.
  struct TokenSlot {
    int64_t block;
    int32_t tile, begin, end;
    int32_t rows;  // of tokens with a kept row
    bool ends_block;
  };

  __aicore__ inline bool IsKept(int64_t block, int32_t token) {
    for (int32_t k = 0; k < tile_.top_k; ++k)
      if (blocks_.row(block, token * tile_.top_k + k) >= 0) return true;
    return false;
  }

  /// Load the rows of tokens that have a kept row, as many as a slot holds.
  __aicore__ inline void Produce(TokenSlot& slot) {
    if (cursor_.tile == 0 && cursor_.token == 0) blocks_.Enter(cursor_.block);
    const int32_t tokens = blocks_.tokens(cursor_.block), columns = tile_columns(tile_, cursor_.tile);
    slot = {cursor_.block, cursor_.tile, cursor_.token, cursor_.token, 0, false};
    LocalTensor<T> rows = rows_.template AllocTensor<T>();
    for (; slot.end < tokens; ++slot.end) {
      if (!IsKept(slot.block, slot.end)) continue;
      if (slot.rows == tile_.slot_rows) break;
      BINMOE_SCALAR(3);
      const int64_t from = (blocks_.first_token(slot.block) + slot.end) * tile_.token_stride + column(slot.tile);
      copy_in_padded(rows[static_cast<uint32_t>(slot.rows++ * padded<T>(columns))], x_[static_cast<uint64_t>(from)],
                     columns);
    }
    rows_.EnQue(rows);
    cursor_.token = slot.end;
    if (slot.end < tokens) return;
    cursor_.token = 0;
    slot.ends_block = ++cursor_.tile == tile_.num_tiles;
    if (!slot.ends_block) return;
    cursor_.tile = 0;
    ++cursor_.block;
  }

  __aicore__ inline void Consume(const TokenSlot& slot) {
    const int32_t columns = tile_columns(tile_, slot.tile), pitch = padded<T>(columns);
    LocalTensor<T> rows = rows_.template DeQue<T>();
    if constexpr (kWeighted) scaler_.Take(rows, slot.rows, columns);
    int32_t held = 0;
    for (int32_t token = slot.begin; token < slot.end; ++token) {
      if (!IsKept(slot.block, token)) continue;
      for (int32_t k = 0; k < tile_.top_k; ++k) {
        const int32_t a = token * tile_.top_k + k, row = blocks_.row(slot.block, a);
        if (row < 0) continue;
        BINMOE_SCALAR(2);
        const auto to = y_[static_cast<uint64_t>(int64_t{row} * tile_.expert_row_stride + column(slot.tile))];
        if constexpr (kWeighted)
          scaler_.Push(to, held, blocks_.weight(slot.block, a));
        else
          copy_out(to, rows[static_cast<uint32_t>(held * pitch)], columns);
      }
      ++held;
    }
    if constexpr (kWeighted) scaler_.Flush();
    rows_.FreeTensor(rows);
    if (slot.ends_block) blocks_.Leave(slot.block);
  }

  __aicore__ inline int64_t column(int32_t tile) const { return int64_t{tile} * tile_.block_x; }

  MoverTile tile_;
  TPipe pipe_;
  RowQueue<kWeighted> rows_;
  RowScaler<T> scaler_;
  TokenBlocks blocks_;
  ZeroRows<T> zeros_;
  GlobalTensor<T> x_, y_;
  Cursor cursor_;
  TokenSlot slots_[kMaxSlots];
};

}  // namespace binmoe_ascend
