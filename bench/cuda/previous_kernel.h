// A kernel to stand before an operation: what the layer before it would be.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace binmoe::bench {

/// Copy `bytes` (a multiple of 16; 16-byte aligned) on one wave of blocks, and let a dependent launch begin at once.
void launch_previous(void* to, const void* from, size_t bytes, cudaStream_t stream);

}  // namespace binmoe::bench
