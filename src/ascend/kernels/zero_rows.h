// Zero the empty expert rows, whole rows, from one UB buffer. Rows are numbered over all experts and dealt round robin
// in units, so that cold experts, whose rows are all empty, spread over the programs; each row has one writer.
#pragma once

#include "common.h"

namespace binmoe_ascend {

template <class T>
class ZeroRows {
 public:
  __aicore__ inline void Init(TPipe* pipe, const MoverTile& tile, GM_ADDR kept_per_expert, GM_ADDR y,
                              int64_t row_stride) {
    pipe_ = pipe;
    tile_ = tile;
    row_stride_ = row_stride;
    y_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(y), extent(expert_rows(tile), row_stride, tile.hidden_size));
    kept_.Init(pipe, kept_per_expert, tile.num_experts, tile.kept_experts);
    pipe->InitBuffer(zero_, static_cast<uint32_t>(tile.zero_bytes));
    ready_ = pipe->template AllocEventID<HardEvent::V_MTE3>();
  }

  __aicore__ inline void Process() {
    Duplicate(zero_.template Get<int32_t>(), int32_t{0}, tile_.zero_bytes / 4);
    SetFlag<HardEvent::V_MTE3>(ready_);
    WaitFlag<HardEvent::V_MTE3>(ready_);
    const int64_t units = (expert_rows(tile_) + tile_.zero_rows - 1) / tile_.zero_rows;
    // The last program first: the programs with one block of tokens more are the first ones. Each round is dealt one
    // further, or a program would meet the same rows of every expert when the capacity is a multiple of a round.
    const int64_t programs = GetBlockNum();
    for (int64_t round = 0; round * programs < units; ++round) {
      BINMOE_SCALAR(3);
      const int64_t unit = round * programs + (programs - 1 - GetBlockIdx() + round) % programs;
      if (unit < units) ZeroUnit(unit);
    }
    kept_.End();
    pipe_->template ReleaseEventID<HardEvent::V_MTE3>(ready_);
  }

 private:
  __aicore__ inline void ZeroUnit(int64_t unit) {
    const int64_t capacity = tile_.expert_capacity, begin = unit * tile_.zero_rows;
    const int64_t end = BINMOE_BOUND(smaller(begin + tile_.zero_rows, expert_rows(tile_)), begin + tile_.zero_rows);
    BINMOE_SCALAR(6);
    for (int64_t expert = begin / capacity; expert * capacity < end; ++expert) {
      BINMOE_SCALAR(4);
      const int64_t first_empty = expert * capacity + kept_.Get(expert), expert_end = (expert + 1) * capacity;
      const int64_t from = begin > first_empty ? begin : first_empty;
      const int64_t to = end < expert_end ? end : expert_end;
      if (from < to) Zero(from, to - from);
    }
  }

  /// Rows without gaps are one run of bytes; others take a burst each.
  __aicore__ inline void Zero(int64_t row, int64_t rows) {
    const LocalTensor<T> zeros = zero_.template Get<T>();
    const auto size = static_cast<int64_t>(sizeof(T));
    const int64_t capacity = tile_.zero_bytes / size;
    if (row_stride_ == tile_.hidden_size) {
      int64_t at = row * tile_.hidden_size;
      const int64_t end = (row + rows) * tile_.hidden_size;
      for (; at < end; at += capacity)
        copy_out(y_[static_cast<uint64_t>(at)], zeros, static_cast<int32_t>(smaller(capacity, end - at)));
      return;
    }
    for (int64_t r = row; r < row + rows; ++r)
      for (int64_t column = 0; column < tile_.hidden_size; column += capacity)
        copy_out(y_[static_cast<uint64_t>(r * row_stride_ + column)], zeros,
                 static_cast<int32_t>(smaller(capacity, tile_.hidden_size - column)));
  }

  TPipe* pipe_ = nullptr;
  MoverTile tile_;
  StagedTable kept_;
  TBuf<TPosition::VECCALC> zero_;
  TEventID ready_ = 0;
  GlobalTensor<T> y_;
  int64_t row_stride_ = 0;
};

}  // namespace binmoe_ascend
