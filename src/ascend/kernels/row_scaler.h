// w * row, in f32 with one rounding, from rows of a slot in UB to rows in GM: several at a time, with one barrier
// between the products and their rounding for all of them.
#pragma once

#include "common.h"

namespace binmoe_ascend {

template <class T>
class RowScaler {
 public:
  __aicore__ inline void Init(TPipe* pipe, const MoverTile& tile) {
    tile_ = tile;
    pipe->InitBuffer(scaled_, static_cast<uint8_t>(tile.out_slots),
                     static_cast<uint32_t>(tile.row_pitch * tile.slot_rows));
    if constexpr (!kSingle) {
      pipe->InitBuffer(floats_, static_cast<uint32_t>(tile.float_bytes));
      pipe->InitBuffer(products_, static_cast<uint32_t>(tile.float_bytes));
    }
  }

  /// Take the `count` rows of a slot.
  __aicore__ inline void Take(const LocalTensor<T>& rows, int32_t count, int32_t columns) {
    rows_ = rows;
    pitch_ = padded<T>(columns);
    columns_ = columns;
    if constexpr (!kSingle) {
      if (count > 0)
        Cast(floats_.template Get<float>(), rows, RoundMode::CAST_NONE, static_cast<uint32_t>(count * pitch_));
      PipeBarrier<PIPE_V>();
    }
  }

  /// weight * row number `index` of the slot goes to `to`, now or at the next Flush.
  __aicore__ inline void Push(const GlobalTensor<T>& to, int32_t index, float weight) {
    if (pending_ == 0) out_ = scaled_.template AllocTensor<T>();
    const auto from = static_cast<uint32_t>(index * pitch_), place = static_cast<uint32_t>(pending_ * pitch_);
    if constexpr (kSingle)
      Muls(out_[place], rows_[from], weight, pitch_);
    else
      Muls(products_.template Get<float>()[place], floats_.template Get<float>()[from], weight, pitch_);
    to_[pending_++] = to;
    if (pending_ == tile_.slot_rows) Flush();
  }

  /// Store what was pushed; before the slot is freed.
  __aicore__ inline void Flush() {
    if (pending_ == 0) return;
    if constexpr (!kSingle) {
      PipeBarrier<PIPE_V>();
      Cast(out_, products_.template Get<float>(), RoundMode::CAST_RINT, static_cast<uint32_t>(pending_ * pitch_));
      PipeBarrier<PIPE_V>();  // the products are written again
    }
    scaled_.EnQue(out_);
    LocalTensor<T> done = scaled_.template DeQue<T>();
    for (int32_t i = 0; i < pending_; ++i) copy_out(to_[i], done[static_cast<uint32_t>(i * pitch_)], columns_);
    scaled_.FreeTensor(done);
    pending_ = 0;
  }

 private:
  static constexpr bool kSingle = sizeof(T) == sizeof(float);

  MoverTile tile_;
  TQue<TPosition::VECOUT, kMaxSlots> scaled_;
  TBuf<TPosition::VECCALC> floats_, products_;
  LocalTensor<T> rows_, out_;
  GlobalTensor<T> to_[kMaxSlotRows];
  int32_t pitch_ = 0, columns_ = 0, pending_ = 0;
};

}  // namespace binmoe_ascend
