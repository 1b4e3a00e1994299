// Fuzzing by disagreement: the same call on every backend, option and thread count must give the same outcome.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "binmoe/binmoe.h"

namespace fuzz {

/// End the program with a message: libFuzzer keeps the input.
[[noreturn]] inline void fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::abort();
}

/// The input, taken from the front. Zeros when it has run out.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  uint8_t byte() {
    uint8_t out = 0;
    fill(&out, 1);
    return out;
  }
  void fill(void* out, size_t size) {
    std::memset(out, 0, size);
    const size_t taken = size < left_ ? size : left_;
    if (taken > 0) std::memcpy(out, data_, taken);
    data_ += taken;
    left_ -= taken;
  }
  /// Mostly in [0, limit); now and then -1, or any number at all.
  int32_t size(int32_t limit) {
    const uint8_t first = byte();
    if (first < 250) return first % limit;
    if (first < 253) return -1;
    int32_t any = 0;
    fill(&any, sizeof any);
    return any;
  }
  std::vector<uint8_t> take(size_t size) {
    std::vector<uint8_t> out(size);
    if (size > 0) fill(out.data(), size);
    return out;
  }
  /// int32 numbers from one signed byte each, so that small ones are common; 127 is followed by four bytes.
  std::vector<int32_t> numbers(size_t count) {
    std::vector<int32_t> out(count);
    for (int32_t& number : out) {
      number = static_cast<int8_t>(byte());
      if (number == 127) fill(&number, sizeof number);
    }
    return out;
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

/// Three threads on paper; runs the chunks on the caller's, the last one first.
class Backwards final : public binmoe::Executor {
 public:
  int concurrency() const override { return 3; }
  void parallel_for(int64_t chunks, void (*body)(void*, int64_t), void* argument) override {
    while (chunks-- > 0) body(argument, chunks);
  }
};

struct Variant {
  const binmoe::Backend* backend;
  std::string options;
  binmoe::Context context() const {
    static Backwards executor;
    binmoe::Context out;
    out.backend = backend;
    out.executor = &executor;
    out.options = options.c_str();
    return out;
  }
};

/// The reference first, then cpu on each of its targets, with and without streaming stores, then the Ascend model.
inline const std::vector<Variant>& variants() {
  static const std::vector<Variant> made = [] {
    std::vector<Variant> out = {{&binmoe::find_backend("reference"), ""}};
    for (const binmoe::Backend& backend : binmoe::backends()) {
      if (backend.unsupported != nullptr) continue;
      for (const binmoe::BackendOption& option : binmoe::backend_options(backend))
        if (option.key == "target")
          for (const std::string& value : option.values)
            for (const char* stream : {"", ",stream_bytes=0"}) out.push_back({&backend, "target=" + value + stream});
    }
    out.push_back({&binmoe::find_backend("ascend-model"), ""});
    out.push_back({&binmoe::find_backend("ascend-model"), "order=expert"});
    return out;
  }();
  return made;
}

/// What a call left behind: the text of its error, or the bytes of its output.
struct Outcome {
  std::string error;
  std::vector<uint8_t> output;
};

template <class Call>
Outcome outcome_of(const Call& call) {
  Outcome out;
  try {
    out.output = call();
  } catch (const binmoe::Error& error) {
    out.error = error.what();
  }
  return out;
}

/// A NaN equals a NaN; all else bit for bit.
inline bool same_elements(std::vector<uint8_t> a, std::vector<uint8_t> b, binmoe::DType type) {
  if (a.size() != b.size()) return false;
  const auto canonical = [type](std::vector<uint8_t>& bytes) {
    const auto size = static_cast<size_t>(binmoe::size_of(type));
    const uint64_t infinity = type == binmoe::DType::f32    ? 0x7f800000u
                              : type == binmoe::DType::f64  ? 0x7ff0000000000000u
                              : type == binmoe::DType::bf16 ? 0x7f80u
                                                            : 0x7c00u;
    const uint64_t magnitude_mask = (uint64_t{1} << (8 * size - 1)) - 1;
    for (size_t i = 0; i + size <= bytes.size(); i += size) {
      uint64_t bits = 0;
      std::memcpy(&bits, bytes.data() + i, size);
      if ((bits & magnitude_mask) > infinity) std::memset(bytes.data() + i, 0xff, size);
    }
  };
  canonical(a);
  canonical(b);
  return a == b;
}

}  // namespace fuzz
