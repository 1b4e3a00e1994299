// The .npy format: headers, read strictly and written plainly. Knows nothing of binmoe and touches no file.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace npy {

/// A header that is refused; what() says why, without the file's name.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A header longer than this is refused. Versions 2 and 3 could claim 4 GB.
inline constexpr uint64_t kMaxHeaderBytes = 65535;
/// So many bytes from the start of a file always hold a header that is accepted.
inline constexpr uint64_t kMaxPrefixBytes = 12 + kMaxHeaderBytes;

/// The type of one item, as its descr gives it.
struct ItemType {
  std::string descr;     ///< the literal as it stands in the header: '<f4' with its quotes, or a list of fields
  char kind = 'V';       ///< numpy's: b i u f c m M S U V; 'V' too for a list of fields
  int64_t bytes = 0;     ///< of one item, at least 1
  bool simple = true;    ///< false: a list of fields
  bool swapped = false;  ///< big-endian
};

struct Header {
  int version = 1;  ///< 1, 2 or 3
  ItemType type;
  std::vector<int64_t> shape;
  int64_t count = 1;  ///< items: the product of the shape
  uint64_t data_offset = 0;
  uint64_t data_bytes = 0;  ///< data_offset + data_bytes is the file's size
};

/// Read the header at the start of a .npy file.
///   bytes      the first min(file_size, kMaxPrefixBytes) bytes, or more
///   file_size  of the whole file; the data that the header claims must end exactly there
/// Errors: Error; no allocation depends on a number that the header claims before it was compared with file_size.
Header parse_header(std::span<const uint8_t> bytes, uint64_t file_size);

/// The bytes before the data, padded to a multiple of 64. Version 1 where that can hold it.
///   descr    a literal, as in ItemType
///   version  in which descr was read: only names of fields outside ASCII need it
std::string make_header(std::string_view descr, std::span<const int64_t> shape, int version = 1);

}  // namespace npy
