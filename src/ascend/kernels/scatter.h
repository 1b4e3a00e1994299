// out[t] = sum over k of w[t,k] * y[row_of_assignment[t,k]], in token order: f32, k rising, from +0, one rounding. The
// reference's bits. Rows of a token come in slots of several; the loads of the next slots run ahead of the arithmetic.
#pragma once

#include "common.h"

namespace binmoe_ascend {

template <class T, bool kWeighted>
class Scatter {
 public:
  __aicore__ inline void Init(const MoverTile& tile, GM_ADDR row_of_assignment, GM_ADDR y, GM_ADDR weights,
                              GM_ADDR out) {
    tile_ = tile;
    y_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(y),
                       extent(expert_rows(tile), tile.expert_row_stride, tile.hidden_size));
    out_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(out), extent(tile.tokens, tile.token_stride, tile.hidden_size));
    const auto pitch = static_cast<uint32_t>(tile.row_pitch);
    pipe_.InitBuffer(rows_, static_cast<uint8_t>(tile.slots), pitch * static_cast<uint32_t>(tile.slot_rows));
    pipe_.InitBuffer(result_, static_cast<uint8_t>(tile.out_slots), pitch);
    if constexpr (!kSingle) {
      pipe_.InitBuffer(floats_, static_cast<uint32_t>(tile.float_bytes));
      pipe_.InitBuffer(sum_, pitch * 2);
    }
    pipe_.InitBuffer(zero_, pitch * (kSingle ? 1 : 2));
    blocks_.Init(&pipe_, tile, row_of_assignment, weights);
  }

  __aicore__ inline void Process() {
    Duplicate(zero_.template Get<float>(), 0.0f, padded<T>(tile_.block_x));
    PipeBarrier<PIPE_V>();
    pipeline_.Run(*this, tile_.slots);
    blocks_.End();
  }

 private:
  friend class SlotPipeline;
  static constexpr bool kSingle = sizeof(T) == sizeof(float);

  __aicore__ inline bool CanBegin() const { return cursor_.block < blocks_.count(); }

  __aicore__ inline void Begin(Slot& slot) {
    cursor_.Next(tile_, blocks_, slot);
    loading_ = rows_.template AllocTensor<T>();
  }

  __aicore__ inline void LoadRow(const Slot& slot, int32_t i) {
    BINMOE_SCALAR(3);
    const int32_t columns = tile_columns(tile_, slot.tile);
    const int64_t from = slot.expert_rows[i] * tile_.expert_row_stride + int64_t{slot.tile} * tile_.block_x;
    copy_in_padded(loading_[static_cast<uint32_t>(i * padded<T>(columns))], y_[static_cast<uint64_t>(from)], columns);
  }

  __aicore__ inline void Finish(const Slot&) { rows_.EnQue(loading_); }

  /// Add the rows of one slot to the token's sum; store the sum after the last.
  __aicore__ inline void Consume(const Slot& slot) {
    const int32_t columns = tile_columns(tile_, slot.tile), pitch = padded<T>(columns);
    if (kSingle && slot.first) result_tensor_ = result_.template AllocTensor<T>();
    LocalTensor<T> rows = rows_.template DeQue<T>();
    if (slot.rows > 0) {
      const LocalTensor<float> floats = Widened(rows, slot.rows * pitch);
      if constexpr (kWeighted) {
        for (int32_t i = 0; i < slot.rows; ++i) {
          const LocalTensor<float> row = floats[static_cast<uint32_t>(i * pitch)];
          Muls(row, row, blocks_.weight(slot.block, slot.assignments[i]), columns);
        }
        PipeBarrier<PIPE_V>();
      }
      const LocalTensor<float> sum = SumTensor();
      for (int32_t i = 0; i < slot.rows; ++i) {
        Add(sum, slot.first && i == 0 ? zero_.template Get<float>() : sum, floats[static_cast<uint32_t>(i * pitch)],
            columns);
        PipeBarrier<PIPE_V>();
        pipeline_.Feed(*this);
      }
    }
    rows_.FreeTensor(rows);
    if (slot.last) Store(slot, columns);
    if (slot.ends_block) blocks_.Leave(slot.block);
  }

  /// The sum stands in the output slot itself with f32 rows, in a buffer of its own else.
  __aicore__ inline LocalTensor<float> SumTensor() {
    if constexpr (kSingle)
      return result_tensor_;
    else
      return sum_.template Get<float>();
  }

  __aicore__ inline LocalTensor<float> Widened(const LocalTensor<T>& rows, int32_t count) {
    if constexpr (kSingle) {
      return rows;
    } else {
      const LocalTensor<float> floats = floats_.template Get<float>();
      Cast(floats, rows, RoundMode::CAST_NONE, static_cast<uint32_t>(count));
      PipeBarrier<PIPE_V>();
      return floats;
    }
  }

  __aicore__ inline void Store(const Slot& slot, int32_t columns) {
    const bool empty = slot.first && slot.rows == 0;
    if constexpr (kSingle) {
      if (empty) Duplicate(result_tensor_, 0.0f, columns);
    } else {
      result_tensor_ = result_.template AllocTensor<T>();
      Cast(result_tensor_, empty ? zero_.template Get<float>() : SumTensor(), RoundMode::CAST_RINT,
           static_cast<uint32_t>(columns));
    }
    result_.EnQue(result_tensor_);
    LocalTensor<T> done = result_.template DeQue<T>();
    const int64_t token = blocks_.first_token(slot.block) + slot.token;
    const int64_t to = token * tile_.token_stride + int64_t{slot.tile} * tile_.block_x;
    copy_out(out_[static_cast<uint64_t>(to)], done, columns);
    result_.FreeTensor(done);
  }

  MoverTile tile_;
  TPipe pipe_;
  TQue<TPosition::VECIN, kMaxSlots> rows_;
  TQue<TPosition::VECOUT, kMaxSlots> result_;
  TBuf<TPosition::VECCALC> floats_, sum_, zero_;
  TokenBlocks blocks_;
  GlobalTensor<T> y_, out_;
  LocalTensor<T> loading_, result_tensor_;
  Cursor cursor_;
  SlotPipeline pipeline_;
};

}  // namespace binmoe_ascend
