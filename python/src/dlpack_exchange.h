// What torch says of a tensor through DLPack's exchange table: a call of C instead of eight of Python. The layout is
// that of DLPack 1.3 (https://dmlc.github.io/dlpack/latest/c_api.html: DLTensor, DLPackExchangeAPI); only its first
// parts.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace binmoe::python::dlpack {

enum DeviceType : int32_t { kCpu = 1, kCuda = 2 };
enum DataType : uint8_t { kInt = 0, kUnsigned = 1, kFloat = 2, kBfloat = 4 };

struct Tensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t rank;
  uint8_t type;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;  // in elements
  uint64_t byte_offset;
};

struct Exchange {
  uint32_t major, minor;
  Exchange* older;
  void* allocate;
  void* managed_from_object;
  void* managed_to_object;
  int (*tensor_from_object)(void* object, Tensor* out);  // borrows: valid while the object is; null: not offered
  int (*current_stream)(int32_t device_type, int32_t device_id, void** out);
};

/// The table of a type of tensors; null where it has none of this version.
inline const Exchange* exchange_of(nanobind::handle type) {
  const nanobind::object capsule = nanobind::getattr(type, "__dlpack_c_exchange_api__", nanobind::none());
  if (!PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return nullptr;
  auto* table = static_cast<const Exchange*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (table != nullptr && table->major > 1) table = table->older;
  return table != nullptr && table->major == 1 && table->tensor_from_object != nullptr ? table : nullptr;
}

}  // namespace binmoe::python::dlpack
