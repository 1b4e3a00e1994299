#include "shadow.h"

#include <algorithm>
#include <bit>

namespace binmoe::vector_core {

void Shadow::reset(uint32_t begin, uint32_t end) {
  begin_ = begin;
  num_pages_ = (end - begin + kPageBytes - 1) / kPageBytes;
  if (pages_.size() < num_pages_) pages_.resize(num_pages_);
  for (uint32_t page = 0; page < num_pages_; ++page)
    pages_[page].reset(begin + page * kPageBytes, std::min(end, begin + (page + 1) * kPageBytes));
}

bool Shadow::conflicts(uint32_t begin, uint32_t end, bool write, const Clock& clock, Conflict* found) {
  return any_page(begin, end, [&](Segments& page, uint32_t from, uint32_t to) {
    return page.conflicts(from, to, write, clock, found);
  });
}

void Shadow::read(uint32_t begin, uint32_t end, Pipe pipe, uint32_t counter, SiteId site) {
  any_page(begin, end, [&](Segments& page, uint32_t from, uint32_t to) {
    page.read(from, to, pipe, counter, site);
    return false;
  });
}

void Shadow::write(uint32_t begin, uint32_t end, Pipe pipe, uint32_t counter, SiteId site) {
  any_page(begin, end, [&](Segments& page, uint32_t from, uint32_t to) {
    page.write(from, to, pipe, counter, site);
    return false;
  });
}

void Segments::reset(uint32_t begin, uint32_t end) {
  segments_.clear();
  Segment segment;
  segment.begin = begin;
  segments_.push_back(segment);
  segment.begin = end;
  segments_.push_back(segment);
  hint_ = 0;
}

/// The segment that holds `byte`. Accesses tend to come back to where the last one was, or to follow it.
size_t Segments::find(uint32_t byte) {
  for (size_t i = hint_; i < hint_ + 2 && i + 1 < segments_.size(); ++i)
    if (segments_[i].begin <= byte && byte < segments_[i + 1].begin) return hint_ = i;
  const auto after = std::upper_bound(segments_.begin(), segments_.end() - 1, byte,
                                      [](uint32_t value, const Segment& segment) { return value < segment.begin; });
  return hint_ = static_cast<size_t>(after - segments_.begin()) - 1;
}

bool Segments::conflicts(uint32_t begin, uint32_t end, bool write, const Clock& clock, Conflict* found) {
  for (size_t i = find(begin); segments_[i].begin < end; ++i) {
    const Segment& s = segments_[i];
    const auto report = [&](Pipe pipe, SiteId site, bool wrote) {
      *found = {pipe, site, wrote, {std::max(begin, s.begin), std::min(end, segments_[i + 1].begin)}};
      return true;
    };
    if (write)  // the readers first: they came after the writer
      for (size_t p = 0; p < kPipes; ++p)
        if (s.read_counter[p] > clock[p]) return report(static_cast<Pipe>(p), s.read_site[p], false);
    if (s.write_counter > clock[index_of(s.write_pipe)]) return report(s.write_pipe, s.write_site, true);
  }
  return false;
}

/// Cut a segment at `byte`; the index of the part that begins there.
size_t Segments::split(size_t index, uint32_t byte) {
  if (segments_[index].begin == byte) return index;
  const Segment copy = segments_[index];
  segments_.insert(segments_.begin() + static_cast<std::ptrdiff_t>(index) + 1, copy);
  segments_[index + 1].begin = byte;
  return index + 1;
}

/// Join neighbours with equal history among the segments first - 1 .. last.
void Segments::merge(size_t first, size_t last) {
  const size_t begin = first > 0 ? first - 1 : 0;
  const size_t end = std::min(last + 1, segments_.size() - 1);  // the sentinel stays
  size_t kept = begin;
  for (size_t i = begin + 1; i < end; ++i) {
    if (segments_[i].same_history(segments_[kept])) continue;
    ++kept;
    if (kept != i) segments_[kept] = segments_[i];
  }
  segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(kept) + 1,
                  segments_.begin() + static_cast<std::ptrdiff_t>(end));
  hint_ = kept > begin ? kept - 1 : kept;
}

void Segments::read(uint32_t begin, uint32_t end, Pipe pipe, uint32_t counter, SiteId site) {
  const size_t p = index_of(pipe);
  size_t first = find(begin);
  const auto already = [&](const Segment& s) { return s.read_counter[p] == counter && s.read_site[p] == site; };
  if (already(segments_[first]) && segments_[first + 1].begin >= end) return;
  first = split(first, begin);
  size_t i = first;
  for (; segments_[i].begin < end; ++i) {
    if (segments_[i + 1].begin > end) split(i, end);
    segments_[i].read_counter[p] = counter;
    segments_[i].read_site[p] = site;
  }
  merge(first, i);
}

void Segments::write(uint32_t begin, uint32_t end, Pipe pipe, uint32_t counter, SiteId site) {
  const size_t first = split(find(begin), begin);
  size_t last = first;  // the last segment that reaches into the range
  while (segments_[last + 1].begin < end) ++last;
  if (segments_[last + 1].begin > end) split(last, end);
  Segment segment;
  segment.begin = begin;
  segment.write_counter = counter;
  segment.write_pipe = pipe;
  segment.write_site = site;
  segments_[first] = segment;
  if (last > first)
    segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                    segments_.begin() + static_cast<std::ptrdiff_t>(last) + 1);
  merge(first, first + 1);
}

namespace {

/// The bits from `begin` to the end of its word, and those before `end` in its word (all of them at a word's start).
uint64_t from_bit(int64_t begin) {
  return ~uint64_t{0} << (begin % 64);
}
uint64_t to_bit(int64_t end) {
  return ~uint64_t{0} >> ((64 - end % 64) % 64);
}

}  // namespace

void DefinedBytes::fill(int64_t begin, int64_t end, bool value) {
  if (begin >= end) return;
  const auto first = static_cast<size_t>(begin / 64), last = static_cast<size_t>((end - 1) / 64);
  const auto put = [&](size_t word, uint64_t mask) {
    words_[word] = value ? words_[word] | mask : words_[word] & ~mask;
  };
  if (first == last) return put(first, from_bit(begin) & to_bit(end));
  put(first, from_bit(begin));
  std::fill(words_.begin() + static_cast<std::ptrdiff_t>(first) + 1, words_.begin() + static_cast<std::ptrdiff_t>(last),
            value ? ~uint64_t{0} : 0);
  put(last, to_bit(end));
}

int64_t DefinedBytes::first_undefined(int64_t begin, int64_t end) const {
  if (begin >= end) return -1;
  const auto first = static_cast<size_t>(begin / 64), last = static_cast<size_t>((end - 1) / 64);
  for (size_t word = first; word <= last; ++word) {
    uint64_t missing = ~words_[word];
    if (missing == 0) continue;
    if (word == first) missing &= from_bit(begin);
    if (word == last) missing &= to_bit(end);
    if (missing != 0) return static_cast<int64_t>(word) * 64 + std::countr_zero(missing);
  }
  return -1;
}

}  // namespace binmoe::vector_core
