// Tensors as kernels see them: handles into UB and global memory.
#pragma once

#include <type_traits>

#include "core.h"

namespace AscendC {

template <class T>
class LocalTensor {
 public:
  static_assert(std::is_trivially_copyable_v<T>);
  LocalTensor() = default;
  explicit LocalTensor(const binmoe::vector_core::Local& local) : local_(local) {}

  LocalTensor operator[](uint32_t offset) const {
    const int64_t bytes = int64_t{offset} * static_cast<int64_t>(sizeof(T));
    return LocalTensor({local_.begin + bytes, local_.bytes - bytes, local_.buffer});
  }
  template <class U>
  LocalTensor<U> ReinterpretCast() const {
    return LocalTensor<U>(local_);
  }
  T GetValue(uint32_t index, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    T value;
    binmoe::vector_core::current_core().get_value(local_, int64_t{index} * int64_t{sizeof(T)}, &value, sizeof(T),
                                                  {file, line});
    return value;
  }
  void SetValue(uint32_t index, T value, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    binmoe::vector_core::current_core().set_value(local_, int64_t{index} * int64_t{sizeof(T)}, &value, sizeof(T),
                                                  {file, line});
  }
  uint32_t GetSize() const { return static_cast<uint32_t>(local_.bytes / static_cast<int64_t>(sizeof(T))); }

  const binmoe::vector_core::Local& local() const { return local_; }  // the model's

 private:
  binmoe::vector_core::Local local_;
};

template <class T>
class GlobalTensor {
 public:
  void SetGlobalBuffer(__gm__ T* address, uint64_t size) {
    address_ = reinterpret_cast<uint64_t>(address);
    size_ = size;
  }
  GlobalTensor operator[](uint64_t offset) const {
    GlobalTensor out = *this;
    out.address_ += offset * sizeof(T);
    out.size_ -= offset;
    return out;
  }
  T GetValue(uint64_t index, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    refuse(binmoe::vector_core::Call::get_value, index, {file, line});
  }
  void SetValue(uint64_t index, T, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    refuse(binmoe::vector_core::Call::set_value, index, {file, line});
  }
  uint64_t GetSize() const { return size_; }

  uint64_t address() const { return address_; }  // the model's

 private:
  [[noreturn]] void refuse(binmoe::vector_core::Call call, uint64_t index, binmoe::vector_core::Place place) const {
    binmoe::vector_core::current_core().scalar_global(call, address_ + index * sizeof(T), sizeof(T), place);
  }

  uint64_t address_ = 0;
  uint64_t size_ = 0;
};

}  // namespace AscendC
