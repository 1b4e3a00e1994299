// What the host tells the plan kernels: one counting pass, by expert or (for by_weight) by a digit of the key.
#pragma once

#include "tile.h"

namespace binmoe_ascend {

/// A record of the radix sort: key, assignment, expert.
constexpr int32_t kRecordWords = 3;
constexpr int32_t kDigitBits = 8;
constexpr int32_t kDigits = 1 << kDigitBits;

/// Positions number the assignments in the order of the policy. A block of positions has one row in the table of
/// counts, and one in that of bases (how many of the expert stand in earlier blocks). Where a pass sorts by digit, read
/// "digit" for "expert". Bytes are what InitBuffer gets.
struct PlanTile {
  int64_t positions;         // T*K
  int64_t choice_positions;  // positions of one choice: T in choice_order, else T*K
  int64_t stride;            // assignments from one position to the next inside a choice: K in choice_order, else 1
  int64_t blocks;            // at least 1
  int64_t row_experts;       // experts of a row of the tables, rounded to 32 bytes
  int64_t chunks;            // of experts, in the kernels that add up
  int32_t num_experts, expert_capacity;
  int32_t key_shift;  // of the digit
  ScalarType weight_type;

  int32_t block_positions;
  int32_t stage_positions;  // read at a time
  int32_t count_experts;    // counted at a time
  int32_t tile_experts;     // placed at a time
  int32_t chunk_experts;    // added up at a time
  int32_t group_rows;       // rows of counts added up at a time
  int32_t stage_sums;       // sums of chunks read at a time

  int32_t stage_bytes;    // of the positions of a stage
  int32_t weight_bytes;   // of their weights
  int32_t record_bytes;   // of their records
  int32_t touched_bytes;  // the experts of a block
  int32_t slot_bytes;     // the block's entries in runs of one expert, each run at a multiple of 32 bytes
  int32_t map_bytes;      // row_of_assignment of a block by position
  int32_t map_step;       // words from one to the next: 8 (32 bytes) where neighbours do not stand side by side in GM
};

}  // namespace binmoe_ascend
