// What a call runs with: the kernels of an instruction set, and the size from which outputs are stored around the
// cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "binmoe/context.h"
#include "cpu/row_kernels.h"

namespace binmoe::cpu {

struct Settings {
  const RowKernels* kernels;  // null: this processor has none of the instruction sets
  int64_t stream_bytes;
};

/// Context::options over the environment (BINMOE_CPU_TARGET, BINMOE_STREAM_BYTES) over what the machine suggests.
/// Valid options only.
Settings settings_of(const char* options);

std::string check_options(const char* options);
std::vector<BackendOption> options();

}  // namespace binmoe::cpu
