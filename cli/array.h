// Arrays of .npy files in memory, and what the operations may read them as.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "binmoe/binmoe.h"
#include "npy.h"

namespace binmoe::cli {

struct FreeBytes {
  void operator()(void* bytes) const { std::free(bytes); }
};
using Bytes = std::unique_ptr<char, FreeBytes>;

/// Memory that is not set. Errors: Failure, with `what` and the bytes wanted; more than the machine has is refused.
Bytes allocate(const std::string& what, uint64_t bytes);

struct Array {
  std::string name;  ///< the file's, for messages
  int version = 1;
  npy::ItemType type;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
  Bytes data;

  int64_t extent(size_t axis) const { return shape[axis]; }
};

/// Read a whole file. The header is compared with the file's size before anything is allocated.
/// Errors: Failure naming the file.
Array read_array(const std::filesystem::path& file);

/// Memory for an output; its items are written in little-endian order. Errors: as allocate.
Array make_array(const std::filesystem::path& file, const npy::ItemType& type, std::vector<int64_t> shape);
Array make_array(const std::filesystem::path& file, DType type, std::vector<int64_t> shape);

/// "[4, 8, 16]"
std::string text_of(const std::vector<int64_t>& shape);

/// Errors: Failure unless the array has this shape; `words` name it, e.g. "[tokens, hidden_size]".
void require_shape(const Array& array, const std::vector<int64_t>& shape, std::string_view words);
void require_dimensions(const Array& array, size_t dimensions, std::string_view words);

/// Numbers in the machine's byte order; big-endian items are swapped in place, once.
void make_native(Array& array);

/// [T, K] expert ids of one of six types.
Ids ids_of(Array& array);

/// int32 entries.
const int32_t* int32_of(Array& array);

/// How uint16 is read: as bf16 with --dtype bf16, else it is refused.
DType float_type_of(const Array& array, bool uint16_is_bf16);

/// [T, K] or flat [T*K] weights.
Weights weights_of(Array& array, const Sizes& sizes, bool uint16_is_bf16);

/// Rows of the last axis, all other axes run together. view() of rows of floats; raw_rows_of keeps any type's bytes.
ConstRows rows_of(Array& array, bool uint16_is_bf16);
ConstRows raw_rows_of(const Array& array);
Rows output_rows_of(Array& array, const ConstRows& like);

}  // namespace binmoe::cli
