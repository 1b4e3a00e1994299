// Who touched which bytes of a UB buffer last: sorted segments, equal neighbours merged. And which bytes hold a value.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "types.h"

namespace binmoe::vector_core {

using Clock = std::array<uint32_t, kPipes>;  // counters of the pipes; an access at counter e is ordered if e <= clock

/// An older access that is not ordered before a new one.
struct Conflict {
  Pipe pipe;
  SiteId site;
  bool write;
  ByteRange bytes;
};

/// Addresses are bytes of UB. The segments always cover the whole range.
class Segments {
 public:
  void reset(uint32_t begin, uint32_t end);

  /// True, and the older access in *found, if an access of [begin, end) under `clock` would race.
  bool conflicts(uint32_t begin, uint32_t end, bool write, const Clock& clock, Conflict* found);
  void read(uint32_t begin, uint32_t end, Pipe pipe, uint32_t counter, SiteId site);
  /// A write ends all history: what conflicts with an older access conflicts with the write too, or is ordered after
  /// it.
  void write(uint32_t begin, uint32_t end, Pipe pipe, uint32_t counter, SiteId site);

  size_t num_segments() const { return segments_.size() - 1; }

 private:
  struct Segment {  // up to the next one's begin
    uint32_t begin = 0;
    uint32_t write_counter = 0;  // 0: never
    std::array<uint32_t, kPipes> read_counter = {};
    std::array<SiteId, kPipes> read_site = {};
    SiteId write_site = 0;
    Pipe write_pipe = Pipe::scalar;

    bool same_history(const Segment& other) const {
      return write_counter == other.write_counter && read_counter == other.read_counter &&
             read_site == other.read_site && write_site == other.write_site && write_pipe == other.write_pipe;
    }
  };

  size_t find(uint32_t byte);
  size_t split(size_t index, uint32_t byte);
  void merge(size_t first, size_t last);

  std::vector<Segment> segments_;  // the last one is a sentinel at the buffer's end
  size_t hint_ = 0;
};

/// The segments of a buffer, page by page: a kernel that scatters single values cuts many, and each cut moves the rest.
class Shadow {
 public:
  static constexpr uint32_t kPageBytes = 4096;

  void reset(uint32_t begin, uint32_t end);
  bool conflicts(uint32_t begin, uint32_t end, bool write, const Clock& clock, Conflict* found);
  void read(uint32_t begin, uint32_t end, Pipe pipe, uint32_t counter, SiteId site);
  void write(uint32_t begin, uint32_t end, Pipe pipe, uint32_t counter, SiteId site);

 private:
  /// Call visit(page, begin, end) for the parts of [begin, end) until one returns true.
  template <class Visit>
  bool any_page(uint32_t begin, uint32_t end, const Visit& visit) {
    for (uint32_t page = (begin - begin_) / kPageBytes; begin < end; ++page) {
      const uint32_t stop = std::min(end, begin_ + (page + 1) * kPageBytes);
      if (visit(pages_[page], begin, stop)) return true;
      begin = stop;
    }
    return false;
  }

  uint32_t begin_ = 0;
  uint32_t num_pages_ = 0;
  std::vector<Segments> pages_;  // as many as any buffer in this place had
};

/// One bit for each byte of UB.
class DefinedBytes {
 public:
  explicit DefinedBytes(int64_t bytes) : words_(static_cast<size_t>((bytes + 63) / 64), 0) {}
  void set(int64_t begin, int64_t end) { fill(begin, end, true); }
  void clear(int64_t begin, int64_t end) { fill(begin, end, false); }
  /// The first byte of [begin, end) without a value, or -1.
  int64_t first_undefined(int64_t begin, int64_t end) const;

 private:
  void fill(int64_t begin, int64_t end, bool value);

  std::vector<uint64_t> words_;
};

}  // namespace binmoe::vector_core
