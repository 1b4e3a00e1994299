// Pieces that the kernels share: staging of scalars, blocks of tokens dealt round robin, rows in and out of UB.
// Device code: no standard library, no exceptions. Words and rules: docs/ascend.md, section 2.
#pragma once

#include "bound.h"
#include "tile.h"

namespace binmoe_ascend {

using namespace AscendC;

constexpr int32_t kLine = 32;  // UB alignment in bytes

template <class T>
__aicore__ inline T smaller(T a, T b) {
  return a < b ? a : b;
}

__aicore__ inline uint32_t round_to_line(uint32_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

template <class To, class From>
__aicore__ inline To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  union {
    From from;
    To to;
  } both = {value};
  return both.to;
}

__aicore__ inline float widen_bf16(uint32_t bits) {
  return bits_as<float>(bits << 16);
}

__aicore__ inline float widen_f16(uint32_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return bits_as<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude >= 0x0400u) return bits_as<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float subnormal = static_cast<float>(magnitude) * 5.9604644775390625e-8f;  // 2^-24
  return bits_as<float>(sign | bits_as<uint32_t>(subnormal));
}

__aicore__ inline uint32_t narrow_bf16(uint32_t bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

__aicore__ inline uint32_t narrow_f16(uint32_t bits) {
  const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x47800000u) return sign | 0x7c00u;
  if (magnitude < 0x38800000u) return sign | (bits_as<uint32_t>(bits_as<float>(magnitude) + 0.5f) - 0x3f000000u);
  return sign | ((magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13);
}

/// 16-bit words of one scalar: weights and dw are moved as words, whatever their dtype.
__aicore__ inline int32_t words_of(ScalarType type) {
  return type == ScalarType::f32 ? 2 : 1;
}

/// Scalar number `index` as the float that holds it exactly.
__aicore__ inline float read_scalar(const LocalTensor<uint16_t>& words, ScalarType type, int32_t index) {
  const auto i = static_cast<uint32_t>(index);
  if (type == ScalarType::f32) return words.template ReinterpretCast<float>().GetValue(i);
  BINMOE_SCALAR(4);
  return type == ScalarType::bf16 ? widen_bf16(words.GetValue(i)) : widen_f16(words.GetValue(i));
}

/// Round to nearest even and store.
__aicore__ inline void write_scalar(const LocalTensor<uint16_t>& words, ScalarType type, int32_t index, float value) {
  const auto i = static_cast<uint32_t>(index);
  if (type == ScalarType::f32) return words.template ReinterpretCast<float>().SetValue(i, value);
  BINMOE_SCALAR(8);
  const uint32_t bits = bits_as<uint32_t>(value);
  words.SetValue(i, static_cast<uint16_t>(type == ScalarType::bf16 ? narrow_bf16(bits) : narrow_f16(bits)));
}

/// UB that the scalar unit reads after MTE2 filled it, in kBuffers turns. Load waits until the scalar unit released
/// the buffer's last contents; the caller issues the copies between Claim and Filled.
template <uint32_t kBuffers>
class Staged {
 public:
  __aicore__ inline void Init(TPipe* pipe, uint32_t bytes) {
    pipe_ = pipe;
    for (uint32_t i = 0; i < kBuffers; ++i) {
      pipe->InitBuffer(buffers_[i], bytes);
      filled_[i] = pipe->AllocEventID<HardEvent::MTE2_S>();
      released_[i] = pipe->AllocEventID<HardEvent::S_MTE2>();
      used_[i] = false;
    }
  }

  /// The buffer of turn `turn`, for MTE2 to fill.
  template <class T>
  __aicore__ inline LocalTensor<T> Claim(int64_t turn) {
    const auto i = static_cast<uint32_t>(turn % kBuffers);
    if (used_[i]) WaitFlag<HardEvent::S_MTE2>(released_[i]);
    used_[i] = false;
    return buffers_[i].template Get<T>();
  }

  __aicore__ inline void Filled(int64_t turn) { SetFlag<HardEvent::MTE2_S>(filled_[turn % kBuffers]); }

  /// Wait until turn `turn` can be read.
  __aicore__ inline void Wait(int64_t turn) { WaitFlag<HardEvent::MTE2_S>(filled_[turn % kBuffers]); }

  template <class T>
  __aicore__ inline LocalTensor<T> Read(int64_t turn) {
    return buffers_[turn % kBuffers].template Get<T>();
  }

  __aicore__ inline void Release(int64_t turn) {
    const auto i = static_cast<uint32_t>(turn % kBuffers);
    SetFlag<HardEvent::S_MTE2>(released_[i]);
    used_[i] = true;
  }

  /// The waits only balance the flags: nothing follows.
  __aicore__ inline void End() {
    for (uint32_t i = 0; i < kBuffers; ++i) {
      if (used_[i]) WaitFlag<HardEvent::S_MTE2>(released_[i]);
      pipe_->ReleaseEventID<HardEvent::MTE2_S>(filled_[i]);
      pipe_->ReleaseEventID<HardEvent::S_MTE2>(released_[i]);
    }
  }

 private:
  TPipe* pipe_ = nullptr;
  TBuf<TPosition::VECCALC> buffers_[kBuffers];
  TEventID filled_[kBuffers], released_[kBuffers];
  bool used_[kBuffers];
};

/// Copy `count` elements from GM to UB.
template <class T>
__aicore__ inline void copy_in(const LocalTensor<T>& to, const GlobalTensor<T>& from, int64_t count) {
  const DataCopyExtParams one{1, static_cast<uint32_t>(count * static_cast<int64_t>(sizeof(T))), 0, 0, 0};
  DataCopyPad(to, from, one, DataCopyPadExtParams<T>{false, 0, 0, T()});
}

/// The same, with zeros up to the next 32 bytes.
template <class T>
__aicore__ inline void copy_in_padded(const LocalTensor<T>& to, const GlobalTensor<T>& from, int32_t count) {
  const uint32_t bytes = static_cast<uint32_t>(count) * sizeof(T);
  const auto padding = static_cast<uint8_t>((round_to_line(bytes) - bytes) / sizeof(T));
  DataCopyPad(to, from, DataCopyExtParams{1, bytes, 0, 0, 0}, DataCopyPadExtParams<T>{padding > 0, 0, padding, T()});
}

/// An int32 table in GM that the scalar unit reads, a window of it staged at a time.
class StagedTable {
 public:
  __aicore__ inline void Init(TPipe* pipe, GM_ADDR table, int32_t entries, int32_t window) {
    table_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(table), static_cast<uint64_t>(entries));
    entries_ = entries;
    window_ = window;
    staged_.Init(pipe, static_cast<uint32_t>(window) * sizeof(int32_t));
  }

  __aicore__ inline int32_t Get(int64_t index) {
    if (index < begin_ || index >= end_) {
      if (end_ > 0) staged_.Release(turn_++);
      begin_ = index / window_ * window_;
      end_ = smaller<int64_t>(begin_ + window_, entries_);
      copy_in(staged_.template Claim<int32_t>(turn_), table_[static_cast<uint64_t>(begin_)], end_ - begin_);
      staged_.Filled(turn_);
      staged_.Wait(turn_);
    }
    return staged_.template Read<int32_t>(turn_).GetValue(static_cast<uint32_t>(index - begin_));
  }

  __aicore__ inline void End() {
    if (end_ > 0) staged_.Release(turn_);
    staged_.End();
  }

 private:
  Staged<1> staged_;
  GlobalTensor<int32_t> table_;
  int32_t entries_ = 0, window_ = 1;
  int64_t begin_ = 0, end_ = 0, turn_ = 0;
};

/// Copy `rows` rows of `count` elements from UB, `row_pitch` bytes apart, to GM, `stride` elements apart: less than
/// 4 GiB between them.
template <class T>
__aicore__ inline void copy_out(const GlobalTensor<T>& to, const LocalTensor<T>& from, int32_t count, int32_t rows = 1,
                                int32_t row_pitch = 0, int64_t stride = 0) {
  const uint32_t bytes = static_cast<uint32_t>(count) * sizeof(T);
  const uint32_t ub_gap = rows > 1 ? (static_cast<uint32_t>(row_pitch) - round_to_line(bytes)) / kLine : 0;
  const uint32_t gm_gap = rows > 1 ? static_cast<uint32_t>((stride - count) * static_cast<int64_t>(sizeof(T))) : 0;
  DataCopyPad(to, from, DataCopyExtParams{static_cast<uint16_t>(rows), bytes, ub_gap, gm_gap, 0});
}

/// Blocks of tokens, dealt round robin to the programs (contiguous shares suffer when late tokens are dropped). Each
/// block's row_of_assignment and weights are staged, the next block's while this one is worked on.
class TokenBlocks {
 public:
  static constexpr int32_t kStaged = kMaxSlots + 1;  // each slot in flight may be of another block; and one ahead

  __aicore__ inline void Init(TPipe* pipe, const MoverTile& tile, GM_ADDR map, GM_ADDR weights) {
    tile_ = tile;
    staged_.Init(pipe, static_cast<uint32_t>(tile.map_bytes + tile.weight_bytes));
    const int64_t assignments = tile.tokens * tile.top_k;
    map_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(map), static_cast<uint64_t>(assignments));
    if (tile.weight_bytes > 0)
      weights_.SetGlobalBuffer(reinterpret_cast<__gm__ uint16_t*>(weights),
                               static_cast<uint64_t>(assignments * words_of(tile.weight_type)));
    const int64_t blocks = (tile.tokens + tile.block_tokens - 1) / tile.block_tokens;
    count_ = (blocks - GetBlockIdx() + GetBlockNum() - 1) / GetBlockNum();
    if (count_ > 0) Load(0);
  }

  /// Blocks of this program.
  __aicore__ inline int64_t count() const { return count_; }
  __aicore__ inline int64_t first_token(int64_t block) const {
    return (block * GetBlockNum() + GetBlockIdx()) * tile_.block_tokens;
  }
  __aicore__ inline int32_t tokens(int64_t block) const {
    const int64_t left = tile_.tokens - first_token(block);
    return static_cast<int32_t>(BINMOE_BOUND(smaller<int64_t>(left, tile_.block_tokens), tile_.block_tokens));
  }

  /// Begin to read a block: wait for it, and fetch the one after it.
  __aicore__ inline void Enter(int64_t block) {
    if (block + 1 < count_) Load(block + 1);
    staged_.Wait(block);
  }
  __aicore__ inline void Leave(int64_t block) { staged_.Release(block); }
  __aicore__ inline void End() { staged_.End(); }

  /// Expert row of assignment `a` of the block, or -1.
  __aicore__ inline int32_t row(int64_t block, int32_t a) {
    return staged_.template Read<int32_t>(block).GetValue(static_cast<uint32_t>(a));
  }
  __aicore__ inline float weight(int64_t block, int32_t a) {
    return read_scalar(Weights(staged_.template Read<int32_t>(block)), tile_.weight_type, a);
  }

 private:
  __aicore__ inline LocalTensor<uint16_t> Weights(const LocalTensor<int32_t>& staged) const {
    return staged[static_cast<uint32_t>(tile_.map_bytes) / 4].template ReinterpretCast<uint16_t>();
  }

  __aicore__ inline void Load(int64_t block) {
    const LocalTensor<int32_t> to = staged_.template Claim<int32_t>(block);
    const int64_t first = first_token(block) * tile_.top_k, entries = int64_t{tokens(block)} * tile_.top_k;
    copy_in(to, map_[static_cast<uint64_t>(first)], entries);
    if (tile_.weight_bytes > 0) {
      const int32_t words = words_of(tile_.weight_type);
      copy_in(Weights(to), weights_[static_cast<uint64_t>(first * words)], entries * words);
    }
    staged_.Filled(block);
  }

  MoverTile tile_;
  Staged<kStaged> staged_;
  GlobalTensor<int32_t> map_;
  GlobalTensor<uint16_t> weights_;
  int64_t count_ = 0;
};

/// Bytes that `count` elements take in UB, in elements: rows of a slot stand so far apart.
template <class T>
__aicore__ inline int32_t padded(int32_t count) {
  return static_cast<int32_t>(round_to_line(static_cast<uint32_t>(count) * sizeof(T)) / sizeof(T));
}

/// Elements between the first and the end of the last row.
__aicore__ inline uint64_t extent(int64_t rows, int64_t stride, int64_t columns) {
  return rows > 0 ? static_cast<uint64_t>((rows - 1) * stride + columns) : 0;
}

__aicore__ inline int64_t expert_rows(const MoverTile& tile) {
  return int64_t{tile.num_experts} * tile.expert_capacity;
}

/// Columns of one tile of a row.
__aicore__ inline int32_t tile_columns(const MoverTile& tile, int32_t index) {
  const int64_t left = tile.hidden_size - int64_t{index} * tile.block_x;
  return static_cast<int32_t>(BINMOE_BOUND(smaller<int64_t>(left, tile.block_x), tile.block_x));
}

template <bool kByVector>
struct RowQueueOf {
  using Type = TQue<TPosition::VECIN, kMaxSlots>;
};
template <>
struct RowQueueOf<false> {
  using Type = TQueBind<TPosition::VECIN, TPosition::VECOUT, kMaxSlots>;
};
/// Rows that the vector unit works on, or that go from MTE2 to MTE3 as they are.
template <bool kByVector>
using RowQueue = typename RowQueueOf<kByVector>::Type;

/// A piece of work between the loads and the rest of a token-order kernel: up to slot_rows kept rows of one token.
struct Slot {
  int64_t block;
  int32_t tile, token;  // token: inside the block
  int32_t rows;
  bool first, last;  // of the token
  bool ends_tile, ends_block;
  int32_t assignments[kMaxSlotRows];  // inside the block, of each row
  int32_t expert_rows[kMaxSlotRows];
};

/// Walks blocks, tiles, tokens and choices in that order.
class Cursor {
 public:
  int64_t block = 0;
  int32_t tile = 0, token = 0, k = 0;

  /// Fill `slot` with the next kept rows of the token, and go on after them. At most slot_rows rows.
  __aicore__ inline void Next(const MoverTile& tile_plan, TokenBlocks& blocks, Slot& slot) {
    if (tile == 0 && token == 0 && k == 0) blocks.Enter(block);
    slot.block = block;
    slot.tile = tile;
    slot.token = token;
    slot.first = k == 0;
    slot.rows = 0;
    for (; k < tile_plan.top_k; ++k) {
      const int32_t a = token * tile_plan.top_k + k, row = blocks.row(block, a);
      if (row < 0) continue;
      if (slot.rows == tile_plan.slot_rows) break;
      BINMOE_SCALAR(2);
      slot.assignments[slot.rows] = a;
      slot.expert_rows[slot.rows++] = row;
    }
    Advance(tile_plan, blocks.tokens(block), slot);
  }

 private:
  __aicore__ inline void Advance(const MoverTile& tile_plan, int32_t tokens, Slot& slot) {
    BINMOE_SCALAR(4);
    slot.last = k == tile_plan.top_k;
    slot.ends_tile = slot.last && token + 1 == tokens;
    slot.ends_block = slot.ends_tile && tile + 1 == tile_plan.num_tiles;
    if (!slot.last) return;
    k = 0;
    if (!slot.ends_tile) {
      ++token;
      return;
    }
    token = 0;
    if (!slot.ends_block) {
      ++tile;
      return;
    }
    tile = 0;
    ++block;
  }
};

/// Slots between the loads and the arithmetic. The loads of a later slot are issued a row at a time between the vector
/// instructions of the slot that is worked on, so that neither pipe's queue fills up while the other runs dry.
/// Owner: CanBegin(), Begin(slot) (what comes before the rows), LoadRow(slot, i), Finish(slot), Consume(slot).
class SlotPipeline {
 public:
  /// Work through all slots of `owner`, `depth` of them in flight.
  template <class Owner>
  __aicore__ inline void Run(Owner& owner, int32_t depth) {
    depth_ = depth;
    while (true) {
      while (produced_ - consumed_ < depth - 1 && Feed(owner)) continue;
      if (produced_ == consumed_ && !FeedSlot(owner)) return;
      owner.Consume(slots_[consumed_ % kMaxSlots]);
      ++consumed_;
    }
  }

  /// Issue one row's load, if there is one to issue. False when nothing could be done.
  template <class Owner>
  __aicore__ inline bool Feed(Owner& owner) {
    Slot& slot = slots_[produced_ % kMaxSlots];
    if (!open_) {
      if (produced_ - consumed_ >= depth_ || !owner.CanBegin()) return false;
      owner.Begin(slot);
      open_ = true;
      row_ = 0;
    }
    if (row_ < slot.rows) owner.LoadRow(slot, row_++);
    if (row_ < slot.rows) return true;
    owner.Finish(slot);
    open_ = false;
    ++produced_;
    return true;
  }

 private:
  template <class Owner>
  __aicore__ inline bool FeedSlot(Owner& owner) {
    const int64_t before = produced_;
    while (produced_ == before)
      if (!Feed(owner)) return false;
    return true;
  }

  int64_t produced_ = 0, consumed_ = 0;
  int32_t depth_ = 0, row_ = 0;
  bool open_ = false;  // a slot is being loaded
  Slot slots_[kMaxSlots];
};

}  // namespace binmoe_ascend
