// The chip as the model sees it. Sources and what is an assumption: docs/ascend.md, sections 1 and 5.
#pragma once

#include <cstdint>

namespace binmoe::vector_core {

struct Profile {
  const char* soc = "910B3";
  int32_t vector_cores = 40;
  int64_t ub_bytes = 192 * 1024 - 256 - 8192;  // usable by a kernel: less the reserve
  double gm_bytes_per_s = 1.8e12;              // vendor's figure
  double core_bytes_per_s = 45e9;              // its share of one core
  double copy_issue_ns = 11.2;                 // of one block of a copy: a vendor sample
  double latency_ns = 250;                     // from a copy's end to its flag: a cold access
  double vector_cycles_per_ns = 1.79;          // assumed from here on
  double vector_fill_cycles = 20;
  double scalar_call_ns = 6;         // a call that issues, sets, waits or takes a buffer
  double scalar_read_ns = 3;         // GetValue
  double scalar_operation_ns = 1.5;  // SetValue, and each operation counted by BINMOE_SCALAR
};

}  // namespace binmoe::vector_core
