// The plain types, enumerators and parameter structs that kernels see, under the public names of Ascend C.
#pragma once

#include <cstdint>

#define __aicore__
#define __gm__
#define __global__

using GM_ADDR = uint8_t*;  // an address in the model's global memory; only copies may follow it

/// Storage only: the model has no arithmetic on 16-bit floats.
struct half {
  uint16_t bits;
};
struct bfloat16_t {
  uint16_t bits;
};

enum pipe_t { PIPE_S, PIPE_V, PIPE_MTE2, PIPE_MTE3, PIPE_ALL };

namespace AscendC {

using ::PIPE_ALL;
using ::PIPE_MTE2;
using ::PIPE_MTE3;
using ::PIPE_S;
using ::pipe_t;
using ::PIPE_V;

using TEventID = int8_t;

enum class TPosition { GM, VECIN, VECOUT, VECCALC };

enum class HardEvent { MTE2_V, V_MTE2, MTE3_V, V_MTE3, MTE2_MTE3, MTE3_MTE2, MTE2_S, S_MTE2, V_S, S_V, MTE3_S, S_MTE3 };

enum class RoundMode { CAST_NONE, CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_ROUND, CAST_TRUNC };

/// Lengths and global strides in bytes, local strides in 32-byte blocks; strides are gaps between blocks.
struct DataCopyExtParams {
  uint16_t blockCount = 0;
  uint32_t blockLen = 0;
  uint32_t srcStride = 0;
  uint32_t dstStride = 0;
  uint32_t rsv = 0;
};

/// Paddings in elements.
template <class T>
struct DataCopyPadExtParams {
  bool isPad = false;
  uint8_t leftPadding = 0;
  uint8_t rightPadding = 0;
  T paddingValue = {};
};

/// Lengths and strides in 32-byte blocks.
struct DataCopyParams {
  uint16_t blockCount = 0;
  uint16_t blockLen = 0;
  uint16_t srcStride = 0;
  uint16_t dstStride = 0;
};

}  // namespace AscendC
