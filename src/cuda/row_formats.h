// From a dtype to the row format that kernels are made for.
#pragma once

#include "binmoe/types.h"
#include "cuda/device/formats.cuh"

namespace binmoe::cuda {

/// body(Format{}) with the format of a float dtype.
template <class Body>
void with_row_format(DType type, const Body& body) {
  switch (type) {
    case DType::f32:
      return body(device::F32{});
    case DType::f64:
      return body(device::F64{});
    case DType::bf16:
      return body(device::BF16{});
    case DType::f16:
      return body(device::F16{});
    case DType::bytes:
      return;
  }
}

}  // namespace binmoe::cuda
