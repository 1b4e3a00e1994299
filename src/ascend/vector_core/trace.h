// What a program did, step by step, in its own order: the input of the estimate.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "types.h"

namespace binmoe::vector_core {

enum class StepKind : uint8_t {
  scalar,       // amount: GetValue calls; extent: SetValue calls and counted operations
  call,         // a call that only costs the scalar unit its time
  copy,         // amount: blocks; extent: bytes
  vector,       // amount: repeats; extent: times that the pipeline is filled
  set_flag,     // flag: its number
  wait_flag,    // flag: its number
  barrier,      // of one pipe
  barrier_all,  // of all
};

struct Step {
  StepKind kind;
  Pipe pipe;  // set_flag: the pipe that sets; wait_flag: the pipe that waits
  SiteId site;
  uint32_t amount;
  uint32_t extent;
  uint32_t flag;
};

struct PipeStats {
  int64_t operations = 0;
  int64_t bytes = 0;   // V: bytes of the largest operand
  int64_t bursts = 0;  // blocks of copies
  int64_t waits = 0;
};

struct CoreStats {
  std::array<PipeStats, kPipes> pipes;
  int64_t scalar_reads = 0;       // GetValue
  int64_t scalar_writes = 0;      // SetValue
  int64_t scalar_operations = 0;  // BINMOE_SCALAR
  int64_t bank_conflicts = 0;     // vector instructions whose two sources begin in one bank group; costs no time here

  const PipeStats& of(Pipe pipe) const { return pipes[index_of(pipe)]; }
};

/// One launch: its figures, and the traces of its programs.
struct Launch {
  std::string kernel;
  int32_t num_programs = 0;
  int64_t ub_high_water = 0;  // bytes
  int64_t gm_read_bytes = 0;  // bytes read twice count twice
  int64_t gm_written_bytes = 0;
  int64_t shared_lines = 0;      // 32-byte lines of global memory with bursts of several cores, without a common byte
  std::vector<CoreStats> cores;  // by program
  std::vector<std::vector<Step>> traces;  // by program
};

}  // namespace binmoe::vector_core
