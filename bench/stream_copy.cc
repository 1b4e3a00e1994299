#include "bench/stream_copy.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace binmoe::bench {
namespace {

struct Copy {
  char* to;
  const char* from;
  size_t bytes;
  size_t chunks;
};

#if defined(__x86_64__)
__attribute__((target("avx512f"))) void copy_lines_512(char* to, const char* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
}

void copy_lines_128(char* to, const char* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) {
    __m128i line[4];
    for (size_t j = 0; j < 4; ++j) line[j] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i + 16 * j));
    for (size_t j = 0; j < 4; ++j) _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + 16 * j), line[j]);
  }
}

void copy_part(char* to, const char* from, size_t bytes) {
  if (__builtin_cpu_supports("avx512f"))
    copy_lines_512(to, from, bytes);
  else
    copy_lines_128(to, from, bytes);
  _mm_sfence();
}
#else
void copy_part(char* to, const char* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}
#endif

}  // namespace

void stream_copy(void* to, const void* from, size_t bytes, Executor& executor) {
  Copy copy{static_cast<char*>(to), static_cast<const char*>(from), bytes, 16};
  executor.parallel_for(
      static_cast<int64_t>(copy.chunks),
      [](void* argument, int64_t i) {
        const auto& c = *static_cast<const Copy*>(argument);
        const size_t lines = c.bytes / 64, index = static_cast<size_t>(i);
        const size_t begin = lines * index / c.chunks * 64, end = lines * (index + 1) / c.chunks * 64;
        copy_part(c.to + begin, c.from + begin, end - begin);
      },
      &copy);
}

}  // namespace binmoe::bench
