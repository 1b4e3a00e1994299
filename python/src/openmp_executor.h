// The executor of the Python package.
#pragma once

#include "binmoe/context.h"

namespace binmoe::python {

/// Threads of OpenMP, as many as torch.set_num_threads or OMP_NUM_THREADS say. torch's workers spin on their cores
/// after an operation, so a second pool beside them waits for a core; the same pool does not (docs/cpu.md). In a child
/// after fork, where libgomp's pool does not work, it is default_executor().
Executor& openmp_executor();

}  // namespace binmoe::python
