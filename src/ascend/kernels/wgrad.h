// dw[t,k] = dot(y[row_of_assignment[t,k]], grad[t]) in f32; +0 where there is no row.
#pragma once

#include "dots.h"

namespace binmoe_ascend {

template <class T>
using Wgrad = Dots<T, Dy::none>;

}  // namespace binmoe_ascend
