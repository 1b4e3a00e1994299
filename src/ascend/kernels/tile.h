// What the host tells a kernel: plain numbers, computed by src/ascend/tiling. Shared by host and device.
#pragma once

#include <stdint.h>

namespace binmoe_ascend {

/// Most buffers of one queue; a queue is declared with this depth.
constexpr int32_t kMaxSlots = 4;
/// Most rows of one slot.
constexpr int32_t kMaxSlotRows = 8;

/// Dtypes of weights and dw, told at run time: only scalars touch them.
enum class ScalarType : int32_t { f32, bf16, f16 };

/// Sizes, strides (elements) and the shape of the pipeline of one mover launch. Bytes are what InitBuffer gets.
struct MoverTile {
  int64_t tokens, hidden_size;
  int64_t token_stride, expert_row_stride;  // of x, out, grad; of y
  int64_t dy_stride;
  int32_t top_k, num_experts, expert_capacity;
  int32_t count;  // N, for the expert order: entries of indices

  int32_t block_x;       // columns of a tile
  int32_t num_tiles;     // tiles of a row
  int32_t row_pitch;     // bytes of a tile's row in UB: a multiple of 32
  int32_t slot_rows;     // rows of a queue slot
  int32_t slots;         // slots of the queue of rows, 2..kMaxSlots
  int32_t out_slots;     // of the queues of results and of grad rows, 2..kMaxSlots
  int32_t block_tokens;  // tokens (expert order: sorted positions) dealt to a program at a time
  int32_t map_bytes;     // of row_of_assignment (expert order: indices) of a block
  int32_t weight_bytes;  // of the weights of a block; 0: none
  ScalarType weight_type, dw_type;
  int32_t float_bytes;   // of slot_rows rows in f32; 0 with f32 rows
  int32_t zero_bytes;    // of the buffer of zeros
  int32_t zero_rows;     // expert rows of a unit of zeroing
  int32_t kept_experts;  // experts whose kept counts are staged at a time
  int32_t bin_experts;   // experts whose bins are staged at a time, in expert order
  int32_t reduce_bytes;  // scratch of ReduceSum
  int32_t result_bytes;  // dw of a block, 32 bytes each
  int32_t dw_bytes;      // dw of a block, packed
};

}  // namespace binmoe_ascend
