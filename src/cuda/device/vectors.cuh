// Loads and stores of 1 to 16 bytes. Kernels take an `Access`: how a thread touches a row, sizeof(Vector) bytes at a
// time. Loads are volatile assembly and not read-only ones (.nc, __ldg): ptxas was seen to move those above
// wait_for_previous().
#pragma once

#include <cstdint>

namespace binmoe::cuda::device {

__device__ __forceinline__ uint4 load(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

__device__ __forceinline__ uint2 load(const uint2* p) {
  uint2 v;
  asm volatile("ld.global.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}

__device__ __forceinline__ uint64_t load(const uint64_t* p) {
  uint64_t v;
  asm volatile("ld.global.u64 %0, [%1];" : "=l"(v) : "l"(p));
  return v;
}

__device__ __forceinline__ uint32_t load(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}

__device__ __forceinline__ int32_t load(const int32_t* p) {
  return static_cast<int32_t>(load(reinterpret_cast<const uint32_t*>(p)));
}

__device__ __forceinline__ uint16_t load(const uint16_t* p) {
  uint32_t v;
  asm volatile("ld.global.u16 %0, [%1];" : "=r"(v) : "l"(p));
  return static_cast<uint16_t>(v);
}

__device__ __forceinline__ uint8_t load(const uint8_t* p) {
  uint32_t v;
  asm volatile("ld.global.u8 %0, [%1];" : "=r"(v) : "l"(p));
  return static_cast<uint8_t>(v);
}

/// Zero, and no access, unless `wanted`. Without a branch, so that several stay in flight together.
__device__ __forceinline__ uint4 load_if(bool wanted, const uint4* p) {
  uint4 v;
  asm volatile(
      "{\n .reg .pred q;\n setp.ne.u32 q, %5, 0;\n"
      " mov.u32 %0, 0;\n mov.u32 %1, 0;\n mov.u32 %2, 0;\n mov.u32 %3, 0;\n"
      " @q ld.global.v4.u32 {%0,%1,%2,%3}, [%4];\n}"
      : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
      : "l"(p), "r"(static_cast<uint32_t>(wanted)));
  return v;
}

template <class V>
__device__ __forceinline__ V load_if(bool wanted, const V* p) {
  V v{};
  if (wanted) v = load(p);
  return v;
}

/// Streaming store (.cs): the line is not wanted again soon.
template <class V>
__device__ __forceinline__ void store_streaming(V* p, V v) {
  __stcs(p, v);
}

__device__ __forceinline__ void store_streaming(uint64_t* p, uint64_t v) {
  __stcs(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(v));
}

/// Bits at any address, byte by byte when it is not a multiple of their size.
template <class Bits>
__device__ __forceinline__ Bits load_anywhere(const void* p) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(Bits) == 0) return load(static_cast<const Bits*>(p));
  Bits bits = 0;
  for (unsigned i = 0; i < sizeof(Bits); ++i)
    bits = static_cast<Bits>(bits | static_cast<Bits>(load(static_cast<const uint8_t*>(p) + i)) << (8 * i));
  return bits;
}

template <class Bits>
__device__ __forceinline__ void store_anywhere(void* p, Bits bits) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(Bits) == 0) {
    *static_cast<Bits*>(p) = bits;
    return;
  }
  for (unsigned i = 0; i < sizeof(Bits); ++i) static_cast<uint8_t*>(p)[i] = static_cast<uint8_t>(bits >> (8 * i));
}

/// Rows whose every start is a multiple of sizeof(V).
template <class V>
struct Whole {
  using Vector = V;
  static __device__ __forceinline__ V load(const void* p) { return device::load(static_cast<const V*>(p)); }
  static __device__ __forceinline__ V load_if(bool wanted, const void* p) {
    return device::load_if(wanted, static_cast<const V*>(p));
  }
  static __device__ __forceinline__ void store(void* p, V v) { *static_cast<V*>(p) = v; }
  static __device__ __forceinline__ void store_streaming(void* p, V v) {
    device::store_streaming(static_cast<V*>(p), v);
  }
};

/// Elements at any address; slow.
template <class Bits>
struct Anywhere {
  using Vector = Bits;
  static __device__ __forceinline__ Bits load(const void* p) { return load_anywhere<Bits>(p); }
  static __device__ __forceinline__ Bits load_if(bool wanted, const void* p) {
    return wanted ? load_anywhere<Bits>(p) : Bits{0};
  }
  static __device__ __forceinline__ void store(void* p, Bits v) { store_anywhere(p, v); }
  static __device__ __forceinline__ void store_streaming(void* p, Bits v) { store_anywhere(p, v); }
};

}  // namespace binmoe::cuda::device
