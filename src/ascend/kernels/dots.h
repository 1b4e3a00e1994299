// What wgrad and scatter backward share. For every kept assignment of a token: dw = dot(y row, grad row), and in the
// backward dy row = w * grad row (or a copy), in one pass. The sum of a dot: tiles of block_x columns from left to
// right; inside a tile as ReduceSum adds.
#pragma once

#include "common.h"

namespace binmoe_ascend {

enum class Dy { none, copied, weighted };

template <class T, Dy kDy>
class Dots {
 public:
  __aicore__ inline void Init(const MoverTile& tile, GM_ADDR row_of_assignment, GM_ADDR y, GM_ADDR grad,
                              GM_ADDR weights, GM_ADDR dy, GM_ADDR dw) {
    tile_ = tile;
    y_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(y),
                       extent(expert_rows(tile), tile.expert_row_stride, tile.hidden_size));
    if constexpr (kDy != Dy::none)
      dy_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(dy), extent(expert_rows(tile), tile.dy_stride, tile.hidden_size));
    grad_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(grad), extent(tile.tokens, tile.token_stride, tile.hidden_size));
    dw_.SetGlobalBuffer(reinterpret_cast<__gm__ uint16_t*>(dw),
                        static_cast<uint64_t>(tile.tokens * tile.top_k * words_of(tile.dw_type)));
    const auto pitch = static_cast<uint32_t>(tile.row_pitch);
    pipe_.InitBuffer(rows_, static_cast<uint8_t>(tile.slots), pitch * static_cast<uint32_t>(tile.slot_rows));
    pipe_.InitBuffer(grads_, static_cast<uint8_t>(tile.out_slots), pitch);
    if constexpr (kDy != Dy::none)
      pipe_.InitBuffer(dy_rows_, static_cast<uint8_t>(tile.out_slots), pitch * static_cast<uint32_t>(tile.slot_rows));
    if constexpr (kDy == Dy::copied) pipe_.InitBuffer(zero_, pitch);
    if constexpr (!kSingle) {
      pipe_.InitBuffer(floats_, static_cast<uint32_t>(tile.float_bytes));
      pipe_.InitBuffer(grad_floats_, pitch * 2);
    }
    pipe_.InitBuffer(scratch_, static_cast<uint32_t>(tile.reduce_bytes * tile.slot_rows));
    if (tile.num_tiles > 1) pipe_.InitBuffer(parts_, static_cast<uint32_t>(kLine * tile.slot_rows));
    for (int32_t i = 0; i < 2; ++i) {
      pipe_.InitBuffer(results_[i], static_cast<uint32_t>(tile.result_bytes));
      pipe_.InitBuffer(packed_[i], static_cast<uint32_t>(tile.dw_bytes));
      summed_[i] = pipe_.AllocEventID<HardEvent::V_S>();
      read_[i] = pipe_.AllocEventID<HardEvent::S_V>();
      packed_event_[i] = pipe_.AllocEventID<HardEvent::S_MTE3>();
      stored_[i] = pipe_.AllocEventID<HardEvent::MTE3_S>();
    }
    blocks_.Init(&pipe_, tile, row_of_assignment, weights);
  }

  __aicore__ inline void Process() {
    // The barriers of Dot stand before the zeros are read.
    if constexpr (kDy == Dy::copied) Duplicate(zero_.template Get<int32_t>(), int32_t{0}, tile_.row_pitch / 4);
    pipeline_.Run(*this, tile_.slots);
    if (blocks_.count() > 0) Pack(blocks_.count() - 1);
    End();
  }

  __aicore__ inline TPipe& pipe() { return pipe_; }

 private:
  friend class SlotPipeline;
  static constexpr bool kSingle = sizeof(T) == sizeof(float);
  static constexpr int32_t kLineFloats = kLine / static_cast<int32_t>(sizeof(float));

  __aicore__ inline int64_t column(int32_t tile) const { return int64_t{tile} * tile_.block_x; }

  /// A new token needs a buffer for its grad row.
  __aicore__ inline bool CanBegin() const {
    return cursor_.block < blocks_.count() && (cursor_.k > 0 || grads_held_ < tile_.out_slots);
  }

  __aicore__ inline void Begin(Slot& slot) {
    do cursor_.Next(tile_, blocks_, slot);
    while (slot.rows == 0 && !slot.ends_block);  // tokens without a row have nothing to do
    if (slot.first && slot.rows > 0) LoadGrad(slot, tile_columns(tile_, slot.tile));
    loading_ = rows_.template AllocTensor<T>();
  }

  __aicore__ inline void LoadRow(const Slot& slot, int32_t i) {
    BINMOE_SCALAR(3);
    const int32_t columns = tile_columns(tile_, slot.tile);
    copy_in_padded(loading_[static_cast<uint32_t>(i * padded<T>(columns))],
                   y_[static_cast<uint64_t>(slot.expert_rows[i] * tile_.expert_row_stride + column(slot.tile))],
                   columns);
  }

  __aicore__ inline void Finish(const Slot&) { rows_.EnQue(loading_); }

  __aicore__ inline void LoadGrad(const Slot& slot, int32_t columns) {
    LocalTensor<T> grad = grads_.template AllocTensor<T>();
    const int64_t token = blocks_.first_token(slot.block) + slot.token;
    copy_in_padded(grad, grad_[static_cast<uint64_t>(token * tile_.token_stride + column(slot.tile))], columns);
    grads_.EnQue(grad);  // the rows of y are queued after it: their queue orders it too
    ++grads_held_;
  }

  __aicore__ inline void Consume(const Slot& slot) {
    const int32_t columns = tile_columns(tile_, slot.tile);
    if (slot.block == begun_) BeginResults(begun_++);
    LocalTensor<T> rows = rows_.template DeQue<T>();
    if (slot.rows > 0) {
      if (slot.first) {
        grad_tensor_ = grads_.template DeQue<T>();
        grad_ready_ = Widened(grad_tensor_, grad_floats_, columns);
      }
      const LocalTensor<float> y = Widened(rows, floats_, slot.rows * padded<T>(columns));
      if constexpr (!kSingle) PipeBarrier<PIPE_V>();
      Dot(slot, y, columns);
      if constexpr (kDy != Dy::none) StoreDy(slot, y, columns);
    }
    rows_.FreeTensor(rows);
    if (slot.last && slot.rows > 0) {
      grads_.FreeTensor(grad_tensor_);
      --grads_held_;
    }
    if (!slot.ends_block) return;
    blocks_.Leave(slot.block);
    SetFlag<HardEvent::V_S>(summed_[slot.block % 2]);
    if (slot.block > 0) Pack(slot.block - 1);
  }

  __aicore__ inline LocalTensor<float> Widened(const LocalTensor<T>& rows, TBuf<TPosition::VECCALC>& buffer,
                                               int32_t count) {
    if constexpr (kSingle) {
      return rows;
    } else {
      const LocalTensor<float> floats = buffer.template Get<float>();
      Cast(floats, rows, RoundMode::CAST_NONE, static_cast<uint32_t>(count));
      return floats;
    }
  }

  /// dw of dropped assignments is +0. Dot's barrier before ReduceSum orders the zeros before the sums.
  __aicore__ inline void BeginResults(int64_t block) {
    if (block >= 2) WaitFlag<HardEvent::S_V>(read_[block % 2]);
    Duplicate(results_[block % 2].template Get<float>(), 0.0f, blocks_.tokens(block) * tile_.top_k * kLineFloats);
  }

  /// The dots of a slot's rows, each to the first float of its assignment's own 32 bytes. Leaves the products in y.
  __aicore__ inline void Dot(const Slot& slot, const LocalTensor<float>& y, int32_t columns) {
    const LocalTensor<float> results = results_[slot.block % 2].template Get<float>();
    const LocalTensor<float> scratch = scratch_.template Get<float>();
    const int32_t scratch_floats = tile_.reduce_bytes / static_cast<int32_t>(sizeof(float));
    const bool whole = tile_.num_tiles == 1;
    LocalTensor<float> parts;
    if (!whole) parts = parts_.template Get<float>();
    for (int32_t i = 0; i < slot.rows; ++i) {
      const LocalTensor<float> row = y[static_cast<uint32_t>(i * padded<T>(columns))];
      Mul(row, row, grad_ready_, columns);
      pipeline_.Feed(*this);
    }
    PipeBarrier<PIPE_V>();
    for (int32_t i = 0; i < slot.rows; ++i)
      ReduceSum(whole ? results[static_cast<uint32_t>(slot.assignments[i] * kLineFloats)]
                      : parts[static_cast<uint32_t>(i * kLineFloats)],
                y[static_cast<uint32_t>(i * padded<T>(columns))], scratch[static_cast<uint32_t>(i * scratch_floats)],
                columns);
    PipeBarrier<PIPE_V>();
    if (whole) return;
    for (int32_t i = 0; i < slot.rows; ++i) {
      const LocalTensor<float> result = results[static_cast<uint32_t>(slot.assignments[i] * kLineFloats)];
      Add(result, result, parts[static_cast<uint32_t>(i * kLineFloats)], 1);
    }  // ordered by the next slot's barrier before ReduceSum, or by the flag to S
  }

  /// w * grad, or grad, to the rows of a slot. y: the products, no longer needed.
  __aicore__ inline void StoreDy(const Slot& slot, const LocalTensor<float>& y, int32_t columns) {
    const int32_t pitch = padded<T>(columns);
    LocalTensor<T> out = dy_rows_.template AllocTensor<T>();
    for (int32_t i = 0; i < slot.rows; ++i) {
      const LocalTensor<T> row = out[static_cast<uint32_t>(i * pitch)];
      if constexpr (kDy == Dy::copied)
        Add(row.template ReinterpretCast<int32_t>(), grad_tensor_.template ReinterpretCast<int32_t>(),
            zero_.template Get<int32_t>(), pitch * static_cast<int32_t>(sizeof(T)) / 4);
      else if constexpr (kSingle)
        Muls(row, grad_ready_, blocks_.weight(slot.block, slot.assignments[i]), columns);
      else
        Muls(y[static_cast<uint32_t>(i * pitch)], grad_ready_, blocks_.weight(slot.block, slot.assignments[i]),
             columns);
    }
    PipeBarrier<PIPE_V>();
    if constexpr (kDy == Dy::weighted && !kSingle) {
      Cast(out, y, RoundMode::CAST_RINT, static_cast<uint32_t>(slot.rows * pitch));
      PipeBarrier<PIPE_V>();
    }
    dy_rows_.EnQue(out);
    LocalTensor<T> done = dy_rows_.template DeQue<T>();
    for (int32_t i = 0; i < slot.rows; ++i)
      copy_out(dy_[static_cast<uint64_t>(slot.expert_rows[i] * tile_.dy_stride + column(slot.tile))],
               done[static_cast<uint32_t>(i * pitch)], columns);
    dy_rows_.FreeTensor(done);
  }

  /// Pack a block's results and store them in one burst; called when the next block is under way.
  __aicore__ inline void Pack(int64_t block) {
    const int64_t turn = block % 2;
    const int32_t count = blocks_.tokens(block) * tile_.top_k;
    const LocalTensor<float> results = results_[turn].template Get<float>();
    const LocalTensor<uint16_t> packed = packed_[turn].template Get<uint16_t>();
    WaitFlag<HardEvent::V_S>(summed_[turn]);
    if (block >= 2) WaitFlag<HardEvent::MTE3_S>(stored_[turn]);
    for (int32_t a = 0; a < count; ++a)
      write_scalar(packed, tile_.dw_type, a, results.GetValue(static_cast<uint32_t>(a * kLineFloats)));
    if (block + 2 < blocks_.count()) SetFlag<HardEvent::S_V>(read_[turn]);
    SetFlag<HardEvent::S_MTE3>(packed_event_[turn]);
    WaitFlag<HardEvent::S_MTE3>(packed_event_[turn]);
    const int32_t words = words_of(tile_.dw_type);
    copy_out(dw_[static_cast<uint64_t>(blocks_.first_token(block) * tile_.top_k * words)], packed, count * words);
    if (block + 2 < blocks_.count()) SetFlag<HardEvent::MTE3_S>(stored_[turn]);
  }

  __aicore__ inline void End() {
    blocks_.End();
    for (int32_t i = 0; i < 2; ++i) {
      pipe_.ReleaseEventID<HardEvent::V_S>(summed_[i]);
      pipe_.ReleaseEventID<HardEvent::S_V>(read_[i]);
      pipe_.ReleaseEventID<HardEvent::S_MTE3>(packed_event_[i]);
      pipe_.ReleaseEventID<HardEvent::MTE3_S>(stored_[i]);
    }
  }

  MoverTile tile_;
  TPipe pipe_;
  TQue<TPosition::VECIN, kMaxSlots> rows_;
  TQue<TPosition::VECIN, kMaxSlots> grads_;
  TQue<TPosition::VECOUT, kMaxSlots> dy_rows_;
  TBuf<TPosition::VECCALC> floats_, grad_floats_, zero_, scratch_, parts_, results_[2], packed_[2];
  TEventID summed_[2], read_[2], packed_event_[2], stored_[2];
  TokenBlocks blocks_;
  GlobalTensor<T> y_, grad_, dy_;
  GlobalTensor<uint16_t> dw_;
  LocalTensor<T> loading_, grad_tensor_;
  LocalTensor<float> grad_ready_;
  int32_t grads_held_ = 0;
  int64_t begun_ = 0;  // blocks whose results are under way
  Cursor cursor_;
  SlotPipeline pipeline_;
};

}  // namespace binmoe_ascend
