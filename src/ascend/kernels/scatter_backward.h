// dy = gather(grad, w) and dw = wgrad(y, grad) in one pass over the tokens; then dy's empty rows are zeroed.
#pragma once

#include "dots.h"
#include "zero_rows.h"

namespace binmoe_ascend {

template <class T, bool kWeighted>
class ScatterBackward {
 public:
  __aicore__ inline void Init(const MoverTile& tile, GM_ADDR row_of_assignment, GM_ADDR kept_per_expert, GM_ADDR y,
                              GM_ADDR grad, GM_ADDR weights, GM_ADDR dy, GM_ADDR dw) {
    dots_.Init(tile, row_of_assignment, y, grad, weights, dy, dw);
    zeros_.Init(&dots_.pipe(), tile, kept_per_expert, dy, tile.dy_stride);
  }

  __aicore__ inline void Process() {
    dots_.Process();
    zeros_.Process();
  }

 private:
  Dots<T, kWeighted ? Dy::weighted : Dy::copied> dots_;
  ZeroRows<T> zeros_;
};

}  // namespace binmoe_ascend
