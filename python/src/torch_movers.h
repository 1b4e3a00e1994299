#pragma once

#include <nanobind/nanobind.h>

namespace binmoe::python {

void bind_torch_movers(nanobind::module_& module);

}  // namespace binmoe::python
