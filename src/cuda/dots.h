// What wgrad and scatter_backward share: one pass over the tokens that makes dots, and writes dy where it is wanted.
#pragma once

#include "backend.h"
#include "cuda/launch.h"

namespace binmoe::cuda {

/// scatter_backward with y and dw; without dy (null data) it is wgrad.
void make_dots(const ScatterBackwardJob& job, const Launcher& launcher);

}  // namespace binmoe::cuda
