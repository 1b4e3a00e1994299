// What the model throws: the first broken rule, with the kernel's line.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace binmoe::vector_core {

namespace rule {
inline constexpr const char* kRace = "race";                 // two pipes, the same bytes of UB, no order
inline constexpr const char* kBarrier = "pipe barrier";      // the same inside one pipe
inline constexpr const char* kUndefined = "undefined read";  // bytes that nobody wrote
inline constexpr const char* kBuffer = "outside buffer";     // past the ends of a UB buffer
inline constexpr const char* kGlobal = "outside tensor";     // past the ends of a tensor in global memory
inline constexpr const char* kScalarGlobal = "scalar access to global memory";
inline constexpr const char* kInput = "write to input";
inline constexpr const char* kCoreRace = "race between cores";  // two cores write the same bytes
inline constexpr const char* kLine = "shared line";             // the same, one of them by a DataCopy of whole lines
inline constexpr const char* kWrittenTwice = "written twice";   // one core writes the same bytes again
inline constexpr const char* kReadBack = "read of written";     // a launch reads bytes that it writes
inline constexpr const char* kNotWritten = "not written once";  // asked for by the host after the launches
inline constexpr const char* kWait = "wait without set";
inline constexpr const char* kSetTwice = "flag set twice";
inline constexpr const char* kFlagLeft = "flag left over";
inline constexpr const char* kEventId = "event id";  // out of range, not allocated, released twice
inline constexpr const char* kEvents = "too many events";
inline constexpr const char* kEventLeft = "event left over";
inline constexpr const char* kQueue = "queue state";  // a call or an access that the state forbids
inline constexpr const char* kHang = "hang";          // no buffer free, nothing queued
inline constexpr const char* kBufferLeft = "buffer left over";
inline constexpr const char* kOverflow = "UB overflow";
inline constexpr const char* kBuffers = "too many buffers";
inline constexpr const char* kAlignment = "alignment";
inline constexpr const char* kBurst = "burst limit";
inline constexpr const char* kRepeat = "repeat limit";
inline constexpr const char* kOverlap = "operands overlap";
inline constexpr const char* kRound = "round mode";
inline constexpr const char* kScalarBarrier = "barrier on S";
inline constexpr const char* kLaunch = "launch";
}  // namespace rule

/// what() holds all of it as a sentence.
class ModelFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;

  std::string rule;
  std::string kernel;
  int32_t core = -1;
  std::string file;  // the call that broke the rule; empty for faults of the host
  int line = 0;
  std::string other_file;  // the other call of a race, where there is one
  int other_line = 0;
  std::string buffer;  // the UB buffer or the tensor
  int64_t begin = 0;   // bytes of it
  int64_t end = 0;
};

}  // namespace binmoe::vector_core
