// The model's side of two macros of ours; on a device they are what src/ascend/kernels/bound.h makes of them.
//   BINMOE_BOUND(bounded, unbounded)  yields `bounded`; a mutation makes one site yield `unbounded`
//   BINMOE_SCALAR(n)                  says that n operations of plain arithmetic stand here
#pragma once

#include "core.h"

#define BINMOE_BOUND(bounded, unbounded) \
  (::binmoe::vector_core::current_core().keeps_bound({__FILE__, __LINE__}) ? (bounded) : (unbounded))
#define BINMOE_SCALAR(n) ::binmoe::vector_core::current_core().count_scalar(n)
