#include "bench/cuda/host.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "bench/cuda/device.h"
#include "bench/routing.h"

namespace binmoe::bench {
namespace {

constexpr int64_t kPartBytes = int64_t{8} << 20;

Context best_host_context() {
  Context out;
  out.backend = &find_backend("reference");
  for (const Backend& backend : backends())
    if (std::strcmp(backend.name, "cpu") == 0 && backend.unsupported == nullptr) out.backend = &backend;
  out.executor = &default_executor();
  return out;
}

}  // namespace

std::vector<char> make_pattern(DType dtype, uint64_t stream) {
  const auto size = static_cast<size_t>(size_of(dtype));
  std::vector<char> out(static_cast<size_t>(kPatternPeriod) * size);
  for (size_t i = 0; i < static_cast<size_t>(kPatternPeriod); ++i) {
    const auto value = static_cast<float>(0.5 + noise(stream, i));
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (dtype == DType::bf16) bits >>= 16;
    if (dtype == DType::f16) bits = (bits - 0x38000000u) >> 13;  // the exponent's bias; the fraction is cut
    std::memcpy(out.data() + i * size, &bits, size);
  }
  return out;
}

HostBuffer::~HostBuffer() {
  release();
}

void HostBuffer::release() {
  if (pinned_)
    cudaFreeHost(data_);
  else
    ::operator delete(data_);
  data_ = nullptr;
}

char* HostBuffer::at_least(size_t bytes) {
  if (bytes <= bytes_) return data_;
  release();
  if (pinned_)
    check_cuda(cudaMallocHost(reinterpret_cast<void**>(&data_), bytes));
  else
    data_ = static_cast<char*>(::operator new(bytes));
  bytes_ = bytes;
  return data_;
}

Host::Host() : context_(best_host_context()) {}

const char* Host::rows(int stream, int64_t count, DType dtype) {
  Rows& rows = rows_[stream - 1];
  const size_t bytes = static_cast<size_t>(count * size_of(dtype));
  char* data = rows.buffer.at_least(bytes);
  if (rows.dtype == dtype && rows.count >= count) return data;
  const std::vector<char> pattern = make_pattern(dtype, static_cast<uint64_t>(stream));
  in_parts(static_cast<int64_t>(bytes), kPartBytes, [&](int64_t begin, int64_t end) {
    for (auto at = static_cast<size_t>(begin); at < static_cast<size_t>(end);) {
      const size_t from = at % pattern.size(), part = std::min(pattern.size() - from, static_cast<size_t>(end) - at);
      std::memcpy(data + at, pattern.data() + from, part);
      at += part;
    }
  });
  rows.dtype = dtype;
  rows.count = count;
  return data;
}

bool Host::same(const char* a, const char* b, size_t bytes) const {
  std::atomic<bool> equal = true;
  in_parts(static_cast<int64_t>(bytes), kPartBytes, [&](int64_t begin, int64_t end) {
    if (std::memcmp(a + begin, b + begin, static_cast<size_t>(end - begin)) != 0) equal = false;
  });
  return equal;
}

void Host::in_parts(int64_t count, int64_t part, const std::function<void(int64_t, int64_t)>& body) const {
  struct Work {
    int64_t count, part;
    const std::function<void(int64_t, int64_t)>& body;
  } work{count, part, body};
  context_.executor->parallel_for((count + part - 1) / part,
                                  [](void* argument, int64_t index) {
                                    const auto& w = *static_cast<const Work*>(argument);
                                    w.body(index * w.part, std::min((index + 1) * w.part, w.count));
                                  },
                                  &work);
}

}  // namespace binmoe::bench
