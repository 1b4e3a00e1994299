// Hostile .npy headers: parse_header refuses with npy::Error or gives a header whose numbers agree with each other and
// with the file's size; what make_header writes is read back as it was.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "npy.h"

namespace {

[[noreturn]] void fail(const char* message) {
  std::fprintf(stderr, "%s\n", message);
  std::abort();
}

void require_consistent(const npy::Header& header, uint64_t file_size) {
  if (header.version < 1 || header.version > 3) fail("a version that does not exist was accepted");
  if (header.type.bytes < 1) fail("an item of no bytes was accepted");
  bool empty = false;
  for (const int64_t extent : header.shape) {
    if (extent < 0) fail("a negative extent was accepted");
    empty = empty || extent == 0;
  }
  int64_t count = empty ? 0 : 1;  // a zero anywhere: no product of the others matters
  for (const int64_t extent : header.shape)
    if (!empty && __builtin_mul_overflow(count, extent, &count)) fail("an overflowing shape was accepted");
  if (count != header.count) fail("count is not the product of the shape");
  uint64_t data_bytes = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(count), static_cast<uint64_t>(header.type.bytes), &data_bytes) ||
      data_bytes != header.data_bytes)
    fail("data_bytes is not count * bytes of an item");
  if (header.data_offset > file_size || header.data_bytes != file_size - header.data_offset)
    fail("the data does not end where the file ends");
}

void require_round_trip(const npy::Header& header) {
  const std::string made = npy::make_header(header.type.descr, header.shape, header.version);
  if (made.size() % 64 != 0) fail("a header is not padded to a multiple of 64");
  const auto* begin = reinterpret_cast<const uint8_t*>(made.data());
  const npy::Header again = npy::parse_header({begin, made.size()}, made.size() + header.data_bytes);
  if (again.shape != header.shape || again.type.descr != header.type.descr || again.type.bytes != header.type.bytes ||
      again.type.kind != header.type.kind || again.type.swapped != header.type.swapped)
    fail("a header was not read back as it was written");
}

/// `bytes` as the start of a file of `file_size`.
void parse(std::span<const uint8_t> bytes, uint64_t file_size) {
  try {
    const npy::Header header = npy::parse_header(bytes, file_size);
    require_consistent(header, file_size);
    require_round_trip(header);
  } catch (const npy::Error& error) {
    if (std::strlen(error.what()) == 0) fail("an error without a text");
  }
}

}  // namespace

/// Eight bytes say how much longer than the given bytes the file is; then comes the file's start.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 8) return 0;
  uint64_t more = 0;
  std::memcpy(&more, data, 8);
  const std::vector<uint8_t> bytes(data + 8, data + size);  // exact, so that a read past the end is seen
  parse(bytes, bytes.size());
  if (bytes.size() >= npy::kMaxPrefixBytes) parse(bytes, bytes.size() + more % (uint64_t{1} << 62));
  // A header with any claim: the file is as long as it takes when the claim can be met at all.
  if (bytes.size() < npy::kMaxPrefixBytes && more < (uint64_t{1} << 40)) {
    std::vector<uint8_t> padded = bytes;
    padded.resize(npy::kMaxPrefixBytes);
    parse(padded, padded.size() + more);
  }
  return 0;
}
