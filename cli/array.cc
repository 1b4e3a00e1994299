#include "array.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "failure.h"

namespace binmoe::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read as they stand in memory");

[[noreturn]] void refuse(const Array& array, const std::string& message) {
  throw Failure(kBadData, array.name + ": " + message);
}

class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& file) : name_(file.string()) {
    handle_ = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe without a writer must not block
    if (handle_ < 0) fail(std::strerror(errno));
  }
  ~OpenFile() {
    if (handle_ >= 0) ::close(handle_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  uint64_t size() const {
    struct stat status;
    if (::fstat(handle_, &status) != 0) fail(std::strerror(errno));
    if (!S_ISREG(status.st_mode)) fail(S_ISDIR(status.st_mode) ? "it is a folder" : "it is not a regular file");
    return static_cast<uint64_t>(status.st_size);
  }

  void read(void* to, uint64_t bytes, uint64_t offset) const {
    auto* out = static_cast<char*>(to);
    while (bytes > 0) {
      const size_t part = static_cast<size_t>(std::min<uint64_t>(bytes, uint64_t{1} << 30));
      const ssize_t got = ::pread(handle_, out, part, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(std::strerror(errno));
      if (got == 0) fail("it became shorter while it was read");
      out += got;
      offset += static_cast<uint64_t>(got);
      bytes -= static_cast<uint64_t>(got);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw Failure(kBadData, name_ + ": cannot be read: " + reason);
  }

  std::string name_;
  int handle_ = -1;
};

void swap_items(char* data, uint64_t bytes, size_t item) {
  for (char* p = data; p < data + bytes; p += item) std::reverse(p, p + item);
}

bool is_type(const Array& array, char kind, int64_t bytes) {
  return array.type.simple && array.type.kind == kind && array.type.bytes == bytes;
}

std::string descr(const Array& array) {
  constexpr size_t kShown = 60;
  return array.type.descr.size() > kShown ? array.type.descr.substr(0, kShown) + "..." : array.type.descr;
}

/// The last axis is a row; the others are run together.
ConstRows view_of(const Array& array) {
  ConstRows view;
  view.data = array.data.get();
  view.cols = array.shape.back();
  view.rows = 1;
  for (size_t i = 0; i + 1 < array.shape.size(); ++i)
    if (__builtin_mul_overflow(view.rows, array.shape[i], &view.rows)) refuse(array, "it has 2^63 rows or more");
  view.stride = view.cols;
  return view;
}

}  // namespace

Bytes allocate(const std::string& what, uint64_t bytes) {
  const auto memory = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  // malloc alone would say yes where memory is overcommitted, and the process would be killed later.
  Bytes out(bytes > memory ? nullptr : static_cast<char*>(std::malloc(std::max<uint64_t>(bytes, 1))));
  if (out == nullptr) throw Failure(kBadData, what + ": cannot allocate " + std::to_string(bytes) + " bytes");
  return out;
}

Array read_array(const std::filesystem::path& file) {
  const OpenFile open(file);
  const uint64_t size = open.size();
  std::vector<uint8_t> prefix(static_cast<size_t>(std::min(size, npy::kMaxPrefixBytes)));
  open.read(prefix.data(), prefix.size(), 0);
  Array array;
  array.name = file.string();
  try {
    npy::Header header = npy::parse_header(prefix, size);
    array.version = header.version;
    array.type = std::move(header.type);
    array.shape = std::move(header.shape);
    array.bytes = header.data_bytes;
    array.data = allocate(array.name, array.bytes);
    open.read(array.data.get(), array.bytes, header.data_offset);
  } catch (const npy::Error& error) {
    throw Failure(kBadData, array.name + ": " + error.what());
  }
  return array;
}

Array make_array(const std::filesystem::path& file, const npy::ItemType& type, std::vector<int64_t> shape) {
  Array array;
  array.name = file.string();
  array.type = type;
  array.shape = std::move(shape);
  const bool empty = std::find(array.shape.begin(), array.shape.end(), 0) != array.shape.end();
  int64_t bytes = empty ? 0 : type.bytes;
  for (const int64_t extent : array.shape)
    if (!empty && __builtin_mul_overflow(bytes, extent, &bytes))
      refuse(array, "cannot allocate " + text_of(array.shape) + ": 2^63 bytes or more");
  array.bytes = static_cast<uint64_t>(bytes);
  array.data = allocate(array.name, array.bytes);
  return array;
}

Array make_array(const std::filesystem::path& file, DType type, std::vector<int64_t> shape) {
  npy::ItemType item;
  item.kind = type == DType::bf16 ? 'V' : 'f';
  item.bytes = size_of(type);
  item.descr = std::string("'<") + item.kind + std::to_string(item.bytes) + "'";
  return make_array(file, item, std::move(shape));
}

std::string text_of(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

void require_dimensions(const Array& array, size_t dimensions, std::string_view words) {
  if (array.shape.size() != dimensions)
    refuse(array, "its shape is " + text_of(array.shape) + ", but must be " + std::string(words));
}

void require_shape(const Array& array, const std::vector<int64_t>& shape, std::string_view words) {
  if (array.shape != shape)
    refuse(array,
           "its shape is " + text_of(array.shape) + ", but must be " + std::string(words) + " = " + text_of(shape));
}

void make_native(Array& array) {
  if (array.type.swapped) swap_items(array.data.get(), array.bytes, static_cast<size_t>(array.type.bytes));
  array.type.swapped = false;
}

Ids ids_of(Array& array) {
  constexpr struct {
    char kind;
    int64_t bytes;
    IdType type;
  } kTypes[] = {{'i', 1, IdType::i8},  {'u', 1, IdType::u8},  {'i', 2, IdType::i16},
                {'u', 2, IdType::u16}, {'i', 4, IdType::i32}, {'i', 8, IdType::i64}};
  require_dimensions(array, 2, "[tokens, top_k]");
  for (const auto& entry : kTypes) {
    if (!is_type(array, entry.kind, entry.bytes)) continue;
    make_native(array);
    return {array.data.get(), array.shape[0] * array.shape[1], entry.type};
  }
  refuse(array, "its dtype is " + descr(array) + ", but expert ids are int8, uint8, int16, uint16, int32 or int64");
}

const int32_t* int32_of(Array& array) {
  if (!is_type(array, 'i', 4)) refuse(array, "its dtype is " + descr(array) + ", but must be int32");
  make_native(array);
  return reinterpret_cast<const int32_t*>(array.data.get());
}

DType float_type_of(const Array& array, bool uint16_is_bf16) {
  if (is_type(array, 'f', 4)) return DType::f32;
  if (is_type(array, 'f', 8)) return DType::f64;
  if (is_type(array, 'f', 2)) return DType::f16;
  if (is_type(array, 'V', 2)) return DType::bf16;
  if (is_type(array, 'u', 2)) {
    if (uint16_is_bf16) return DType::bf16;
    refuse(array, "its dtype is " + descr(array) + ", uint16; with --dtype bf16 it is read as bf16");
  }
  refuse(array, "its dtype is " + descr(array) + ", but must be f32, f64, bf16 or f16");
}

Weights weights_of(Array& array, const Sizes& sizes, bool uint16_is_bf16) {
  const DType type = float_type_of(array, uint16_is_bf16);
  const int64_t count = sizes.assignments();
  if (array.shape != std::vector{sizes.tokens, int64_t{sizes.top_k}} && array.shape != std::vector{count})
    refuse(array, "its shape is " + text_of(array.shape) + ", but weights are [tokens, top_k] = " +
                      text_of({sizes.tokens, sizes.top_k}) + " or flat [" + std::to_string(count) + "]");
  make_native(array);
  return {array.data.get(), count, type};
}

ConstRows rows_of(Array& array, bool uint16_is_bf16) {
  ConstRows view = view_of(array);
  view.type = float_type_of(array, uint16_is_bf16);
  make_native(array);
  return view;
}

ConstRows raw_rows_of(const Array& array) {
  ConstRows view = view_of(array);
  view.type = DType::bytes;
  view.element_bytes = static_cast<int32_t>(array.type.bytes);
  return view;
}

Rows output_rows_of(Array& array, const ConstRows& like) {
  const ConstRows view = view_of(array);
  return {array.data.get(), view.rows, view.cols, view.stride, like.type, like.element_bytes};
}

}  // namespace binmoe::cli
