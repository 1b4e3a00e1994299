// Bounds in kernels go through BINMOE_BOUND(bounded, unbounded), which is `bounded`. The vector-core model replaces the
// macro, so that a mutant can drop one bound; on a device it is the plain value. BINMOE_SCALAR(n) lets the model count
// n scalar operations that no call shows.
#pragma once

#include "kernel_operator.h"

#ifndef BINMOE_BOUND
#define BINMOE_BOUND(bounded, unbounded) (bounded)
#endif
#ifndef BINMOE_SCALAR
#define BINMOE_SCALAR(n) ((void)0)
#endif
