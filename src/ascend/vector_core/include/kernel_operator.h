// What answers to a kernel's #include "kernel_operator.h" on a host: the model, in place of the vendor's header.
#pragma once

#include "../ascendc_types.h"
#include "../instructions.h"
#include "../kernel_macros.h"
#include "../queues.h"
#include "../tensors.h"
