// Everything: the types, the context, the operations and the owning plan.
#pragma once

#include "binmoe/context.h"
#include "binmoe/operations.h"
#include "binmoe/plan.h"
#include "binmoe/types.h"
