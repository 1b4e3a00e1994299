#include "npy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace npy {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxDimensions = 64;  // numpy's own limit
constexpr int kMaxDepth = 16;          // of fields inside fields

std::string quoted(std::string_view text) {
  std::string out = "'";
  for (char c : text.substr(0, 40)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > 40 ? "...'" : "'");
}

int64_t multiply(int64_t a, int64_t b, const char* what) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) throw Error(std::string("the header claims ") + what + " beyond 2^63");
  return product;
}

/// Python's literals, as far as headers use them.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool take(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(std::string("'") + c + "'");
  }
  bool next_is(char c) {
    skip_space();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool at_end() {
    skip_space();
    return at_ == text_.size();
  }
  size_t position() {
    skip_space();
    return at_;
  }
  std::string_view since(size_t begin) const { return text_.substr(begin, at_ - begin); }

  /// What stands between the quotes; escapes stay as they are.
  std::string_view string() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail("a string");
    const size_t begin = ++at_;
    for (; at_ < text_.size() && text_[at_] != quote; ++at_)
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
    if (at_ == text_.size()) fail("the end of a string");
    return text_.substr(begin, at_++ - begin);
  }

  int64_t integer() {
    skip_space();
    const size_t begin = at_;
    int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
          __builtin_add_overflow(value, int64_t{text_[at_] - '0'}, &value))
        throw Error("the header claims a number beyond 2^63");
    }
    if (at_ == begin) fail("a number that is not negative");
    return value;
  }

  bool boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return word == "True";
    }
    fail("True or False");
  }

  /// (), (3,) or (2, 3, ...)
  std::vector<int64_t> tuple() {
    std::vector<int64_t> out;
    expect('(');
    while (!take(')')) {
      if (out.size() == kMaxDimensions) throw Error("the header claims more than 64 dimensions");
      out.push_back(integer());
      if (next_is(')') && out.size() > 1) continue;
      expect(',');
    }
    return out;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr && text_[at_] != '\0') ++at_;
  }
  [[noreturn]] void fail(const std::string& wanted) const {
    throw Error("its header is malformed: " + wanted + " should stand at character " + std::to_string(at_));
  }

  std::string_view text_;
  size_t at_ = 0;
};

/// Sizes that numpy has for a kind of number; empty for the kinds of any size.
bool is_size_of_kind(char kind, int64_t bytes) {
  switch (kind) {
    case 'b':
      return bytes == 1;
    case 'i':
    case 'u':
      return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
    case 'f':
      return bytes == 2 || bytes == 4 || bytes == 8 || bytes == 12 || bytes == 16;
    case 'c':
      return bytes == 8 || bytes == 16 || bytes == 24 || bytes == 32;
    case 'm':
    case 'M':
      return bytes == 8;
    default:
      return bytes >= 1 && bytes <= std::numeric_limits<int32_t>::max();
  }
}

[[noreturn]] void refuse_type(std::string_view text) {
  if (text.find('O') != std::string_view::npos && text.find('[') == std::string_view::npos)
    throw Error("it holds Python objects (" + quoted(text) + "), which have no fixed size");
  throw Error("its dtype " + quoted(text) + " is unknown");
}

/// '<f4', '|V7', '<M8[ns]' and so on.
ItemType parse_simple_type(std::string_view text) {
  if (text.size() < 3 || std::strchr("<>|", text[0]) == nullptr || std::strchr("biufcmMSUV", text[1]) == nullptr)
    refuse_type(text);
  ItemType type;
  type.kind = text[1];
  size_t at = 2;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    type.bytes = type.bytes * 10 + (text[at] - '0');
    if (type.bytes > std::numeric_limits<int32_t>::max()) refuse_type(text);
  }
  if (type.kind == 'U') type.bytes *= 4;
  const std::string_view unit = text.substr(at);  // [ns] of dates
  const bool dated = type.kind == 'm' || type.kind == 'M';
  if (!unit.empty() && !(dated && unit.size() > 2 && unit.front() == '[' && unit.back() == ']')) refuse_type(text);
  if (at > 2 && type.bytes == 0) throw Error("its dtype " + quoted(text) + " has items of no bytes");
  if (!is_size_of_kind(type.kind, type.bytes)) refuse_type(text);
  if (text[0] == '|' && type.bytes > 1 && std::strchr("iufcmMU", type.kind) != nullptr)
    throw Error("its dtype " + quoted(text) + " has no byte order");
  type.swapped = text[0] == '>' && type.bytes > 1;
  return type;
}

/// Bytes of one item of [('name', 'format'), ('name', 'format', (2, 3)), ...]; a format may be such a list again.
int64_t parse_fields(Scanner& scanner, int depth) {
  if (depth > kMaxDepth) throw Error("its dtype has fields more than 16 deep");
  int64_t bytes = 0;
  scanner.expect('[');
  while (!scanner.take(']')) {
    scanner.expect('(');
    if (scanner.take('(')) {  // (title, name)
      scanner.string();
      scanner.expect(',');
      scanner.string();
      scanner.expect(')');
    } else {
      scanner.string();
    }
    scanner.expect(',');
    int64_t field = scanner.next_is('[') ? parse_fields(scanner, depth + 1) : parse_simple_type(scanner.string()).bytes;
    if (scanner.take(',') && !scanner.next_is(')'))
      for (const int64_t extent : scanner.tuple()) field = multiply(field, extent, "an item");
    scanner.expect(')');
    if (__builtin_add_overflow(bytes, field, &bytes) || bytes > std::numeric_limits<int32_t>::max())
      throw Error("its dtype has items of 2^31 bytes or more");
    if (!scanner.next_is(']')) scanner.expect(',');
  }
  return bytes;
}

ItemType parse_type(Scanner& scanner) {
  const size_t begin = scanner.position();
  ItemType type;
  if (scanner.next_is('[')) {
    type.simple = false;
    type.bytes = parse_fields(scanner, 1);
    if (type.bytes == 0) throw Error("its dtype has items of no bytes");
  } else {
    type = parse_simple_type(scanner.string());
  }
  type.descr = scanner.since(begin);
  return type;
}

/// The dictionary: descr, fortran_order and shape, once each. Returns fortran_order.
bool parse_dictionary(std::string_view text, Header& header) {
  constexpr std::array<std::string_view, 3> kKeys = {"descr", "fortran_order", "shape"};
  std::array<bool, 3> seen{};
  bool fortran = false;
  Scanner scanner(text);
  scanner.expect('{');
  while (!scanner.take('}')) {
    const std::string_view key = scanner.string();
    const auto index = static_cast<size_t>(std::find(kKeys.begin(), kKeys.end(), key) - kKeys.begin());
    if (index == kKeys.size()) throw Error("its header has an unknown key " + quoted(key));
    if (seen[index]) throw Error("its header has the key " + quoted(key) + " twice");
    seen[index] = true;
    scanner.expect(':');
    if (index == 0) header.type = parse_type(scanner);
    if (index == 1) fortran = scanner.boolean();
    if (index == 2) header.shape = scanner.tuple();
    if (!scanner.next_is('}')) scanner.expect(',');
  }
  if (!scanner.at_end()) throw Error("its header goes on after the dictionary");
  for (size_t i = 0; i < kKeys.size(); ++i)
    if (!seen[i]) throw Error("its header lacks the key " + quoted(kKeys[i]));
  return fortran;
}

void check_order(const Header& header, bool fortran) {
  const auto extents = std::count_if(header.shape.begin(), header.shape.end(), [](int64_t n) { return n != 1; });
  if (fortran && extents > 1 && header.count > 0)
    throw Error("it is in Fortran order; save numpy.ascontiguousarray(a) instead");
}

void check_magic(std::span<const uint8_t> bytes, uint64_t file_size) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 6));
  if (start.starts_with("PK")) throw Error("it is a .npz or .zip archive; save each array as .npy");
  if (file_size == 0) throw Error("it is empty");
  if (!kMagic.starts_with(start)) throw Error("it is not a .npy file");
  if (bytes.size() < 10) throw Error("it is truncated: it ends inside the header");
}

}  // namespace

Header parse_header(std::span<const uint8_t> bytes, uint64_t file_size) {
  if (bytes.size() > file_size) bytes = bytes.first(static_cast<size_t>(file_size));
  check_magic(bytes, file_size);
  Header header;
  header.version = bytes[6];
  if (header.version < 1 || header.version > 3 || bytes[7] != 0)
    throw Error("its format version " + std::to_string(bytes[6]) + "." + std::to_string(bytes[7]) + " is unknown");
  const size_t length_bytes = header.version == 1 ? 2 : 4;
  const size_t text_begin = 8 + length_bytes;
  if (bytes.size() < text_begin) throw Error("it is truncated: it ends inside the header");
  uint64_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) length |= uint64_t{bytes[8 + i]} << (8 * i);
  if (text_begin + length > file_size)
    throw Error("it is truncated: the header claims " + std::to_string(length) + " bytes, but the file has " +
                std::to_string(file_size));
  if (length > kMaxHeaderBytes)
    throw Error("its header claims " + std::to_string(length) + " bytes; at most 65535 are read");
  if (text_begin + length > bytes.size()) throw Error("it is truncated: it ends inside the header");
  const auto* text = reinterpret_cast<const char*>(bytes.data() + text_begin);
  const bool fortran = parse_dictionary({text, static_cast<size_t>(length)}, header);

  const bool empty = std::find(header.shape.begin(), header.shape.end(), 0) != header.shape.end();
  header.count = empty ? 0 : 1;
  for (const int64_t extent : header.shape)
    if (!empty) header.count = multiply(header.count, extent, "items");
  check_order(header, fortran);
  header.data_offset = text_begin + length;
  header.data_bytes = static_cast<uint64_t>(multiply(header.count, header.type.bytes, "bytes"));
  const uint64_t there = file_size - header.data_offset;
  if (header.data_bytes != there)
    throw Error((header.data_bytes > there ? "it is truncated: the header claims "
                                           : "it has trailing bytes: the header claims ") +
                std::to_string(header.data_bytes) + " bytes of data, but " + std::to_string(there) + " follow");
  return header;
}

std::string make_header(std::string_view descr, std::span<const int64_t> shape, int version) {
  std::string text = "{'descr': " + std::string(descr) + ", 'fortran_order': False, 'shape': (";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i > 0 ? " " : "") + std::to_string(shape[i]) + (i + 1 < shape.size() || shape.size() == 1 ? "," : "");
  text += "), }";
  if (std::all_of(descr.begin(), descr.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; })) version = 1;
  if (version == 1 && text.size() + 75 > kMaxHeaderBytes) version = 2;
  const size_t before = version == 1 ? 10 : 12;
  text.append(63 - (before + text.size()) % 64, ' ');
  text += '\n';
  std::string out(kMagic);
  out += {static_cast<char>(version), '\0'};
  for (size_t i = 0; i < before - 8; ++i) out += static_cast<char>((text.size() >> (8 * i)) & 0xff);
  return out + text;
}

}  // namespace npy
