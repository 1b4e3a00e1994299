// The yardstick: a copy with streaming stores on the threads of an executor.
#pragma once

#include <cstddef>

#include "binmoe/context.h"

namespace binmoe::bench {

/// Copy bytes (a multiple of 64; both pointers 64-byte aligned). Moves 2 * bytes.
void stream_copy(void* to, const void* from, size_t bytes, Executor& executor);

}  // namespace binmoe::bench
