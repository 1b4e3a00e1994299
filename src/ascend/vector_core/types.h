// Words shared by the parts of the model.
#pragma once

#include <array>
#include <cstdint>

#include "ascendc_types.h"

namespace binmoe::vector_core {

enum class Pipe : uint8_t { scalar, vector, mte2, mte3 };
inline constexpr int kPipes = 4;
inline constexpr std::array<const char*, kPipes> kPipeNames = {"S", "V", "MTE2", "MTE3"};
constexpr size_t index_of(Pipe pipe) {
  return static_cast<size_t>(pipe);
}
constexpr const char* name_of(Pipe pipe) {
  return kPipeNames[index_of(pipe)];
}

inline constexpr int64_t kBlockBytes = 32;    // alignment in UB
inline constexpr int64_t kRepeatBytes = 256;  // one repeat of a vector instruction
inline constexpr int64_t kMaxRepeats = 255;
inline constexpr int64_t kBankGroups = 16;        // neighbouring 32-byte blocks lie in neighbouring groups
inline constexpr int64_t kMaxBuffers = 64;        // of a TPipe
inline constexpr int64_t kMaxQueueBuffers = 8;    // of one queue position
inline constexpr int kEventIds = 8;               // of one pair of pipes
inline constexpr int64_t kMaxBlocks = 4095;       // of a copy
inline constexpr int64_t kMaxPadBytes = 2097151;  // of one block of DataCopyPad
inline constexpr int64_t kMaxPadding = 32;        // bytes on either side

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

struct Place {
  const char* file;
  int line;
};

struct Link {
  Pipe from;
  Pipe to;
};
inline constexpr int kLinks = 12;
/// In the order of HardEvent.
inline constexpr std::array<Link, kLinks> kLinkPipes = {{{Pipe::mte2, Pipe::vector},
                                                         {Pipe::vector, Pipe::mte2},
                                                         {Pipe::mte3, Pipe::vector},
                                                         {Pipe::vector, Pipe::mte3},
                                                         {Pipe::mte2, Pipe::mte3},
                                                         {Pipe::mte3, Pipe::mte2},
                                                         {Pipe::mte2, Pipe::scalar},
                                                         {Pipe::scalar, Pipe::mte2},
                                                         {Pipe::vector, Pipe::scalar},
                                                         {Pipe::scalar, Pipe::vector},
                                                         {Pipe::mte3, Pipe::scalar},
                                                         {Pipe::scalar, Pipe::mte3}}};
inline constexpr std::array<const char*, kLinks> kLinkNames = {"MTE2_V",    "V_MTE2",    "MTE3_V", "V_MTE3",
                                                               "MTE2_MTE3", "MTE3_MTE2", "MTE2_S", "S_MTE2",
                                                               "V_S",       "S_V",       "MTE3_S", "S_MTE3"};

/// A part of UB as a LocalTensor carries it; the type of its elements is the tensor's own.
struct Local {
  int64_t begin = 0;  // byte in UB
  int64_t bytes = 0;
  uint32_t buffer = UINT32_MAX;
};

struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const ByteRange&) const = default;
};

using SiteId = uint16_t;  // 0: none

}  // namespace binmoe::vector_core
