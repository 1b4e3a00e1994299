// w * row, in f32 with one rounding, from a row in UB to a row in GM.
#pragma once

#include "common.h"

namespace binmoe_ascend {

template <class T>
class RowScaler {
 public:
  __aicore__ inline void Init(TPipe* pipe, const MoverTile& tile) {
    const auto pitch = static_cast<uint32_t>(tile.row_pitch);
    pipe->InitBuffer(scaled_, 2, pitch);
    if constexpr (!kSingle) {
      pipe->InitBuffer(floats_, static_cast<uint32_t>(tile.float_bytes));
      pipe->InitBuffer(product_, static_cast<uint32_t>(tile.float_bytes));
    }
  }

  /// Take a row; Store may then be called for it several times.
  __aicore__ inline void Widen(const LocalTensor<T>& x, int32_t columns) {
    if constexpr (!kSingle) {
      Cast(floats_.template Get<float>(), x, RoundMode::CAST_NONE, static_cast<uint32_t>(columns));
      PipeBarrier<PIPE_V>();
    }
  }

  __aicore__ inline void Store(const GlobalTensor<T>& to, const LocalTensor<T>& x, float weight, int32_t columns) {
    LocalTensor<T> out = scaled_.template AllocTensor<T>();
    if constexpr (kSingle) {
      Muls(out, x, weight, columns);
    } else {
      const LocalTensor<float> product = product_.template Get<float>();
      Muls(product, floats_.template Get<float>(), weight, columns);
      PipeBarrier<PIPE_V>();
      Cast(out, product, RoundMode::CAST_RINT, static_cast<uint32_t>(columns));
      PipeBarrier<PIPE_V>();  // a second Store of the row writes the product again
    }
    scaled_.EnQue(out);
    LocalTensor<T> done = scaled_.template DeQue<T>();
    copy_out(to, done, columns);
    scaled_.FreeTensor(done);
  }

 private:
  static constexpr bool kSingle = sizeof(T) == sizeof(float);

  TQue<TPosition::VECOUT, 2> scaled_;
  TBuf<TPosition::VECCALC> floats_, product_;
};

}  // namespace binmoe_ascend
