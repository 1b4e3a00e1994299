#include "global_memory.h"

#include <algorithm>

#include "fault.h"

namespace binmoe::vector_core {

std::vector<ByteRange> merged(std::vector<ByteRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  std::vector<ByteRange> out;
  for (const ByteRange& range : ranges) {
    if (range.begin == range.end) continue;
    if (!out.empty() && range.begin <= out.back().end)
      out.back().end = std::max(out.back().end, range.end);
    else
      out.push_back(range);
  }
  return out;
}

uint64_t GlobalMemory::bind(Tensor tensor) {
  tensors_.push_back(std::make_unique<Tensor>(std::move(tensor)));
  return address_of(tensors_.size() - 1);
}

Tensor* GlobalMemory::near(uint64_t address) {
  const uint64_t index = address >> kShift;
  return index >= 1 && index <= tensors_.size() ? tensors_[index - 1].get() : nullptr;
}

Tensor* GlobalMemory::find(const std::string& name) {
  for (const auto& tensor : tensors_)
    if (tensor->name == name) return tensor.get();
  return nullptr;
}

int64_t GlobalMemory::first_undefined(const Tensor& tensor, int64_t begin, int64_t end) {
  if (tensor.all_defined || begin == end) return -1;
  const auto after = std::upper_bound(tensor.defined.begin(), tensor.defined.end(), begin,
                                      [](int64_t value, const ByteRange& range) { return value < range.begin; });
  if (after == tensor.defined.begin()) return begin;
  const ByteRange& range = *(after - 1);
  return range.end >= end ? -1 : std::max(range.end, begin);
}

void GlobalMemory::begin_launch() {
  reads_.clear();
  writes_.clear();
  shared_lines_ = 0;
}

void GlobalMemory::note(std::vector<Burst>& bursts, const Burst& burst) {
  if (!bursts.empty()) {
    Burst& last = bursts.back();
    if (last.end == burst.begin && last.core == burst.core && last.site == burst.site &&
        last.whole_lines == burst.whole_lines) {
      last.end = burst.end;
      return;
    }
  }
  bursts.push_back(burst);
}

std::optional<Clash> GlobalMemory::end_launch() {
  const auto by_address = [](const Burst& a, const Burst& b) { return a.begin < b.begin; };
  std::sort(writes_.begin(), writes_.end(), by_address);
  if (auto clash = compare_writes()) return clash;
  if (!writes_.empty()) {
    std::sort(reads_.begin(), reads_.end(), by_address);
    if (auto clash = compare_reads()) return clash;
  }
  define_writes();
  return std::nullopt;
}

std::optional<Clash> GlobalMemory::compare_writes() {
  uint64_t counted = 0;
  // Sorted by begin and so far disjoint: only the previous burst can reach into this one.
  for (size_t i = 1; i < writes_.size(); ++i) {
    const Burst &a = writes_[i - 1], &b = writes_[i];
    if (b.begin < a.end) {
      const char* broken = rule::kCoreRace;
      if (a.core == b.core)
        broken = rule::kWrittenTwice;
      else if (a.whole_lines || b.whole_lines)
        broken = rule::kLine;
      return Clash{broken, a, b, false};
    }
    const uint64_t line = b.begin / kBlockBytes;
    if (a.core == b.core || (a.end - 1) / kBlockBytes != line || line == counted) continue;
    ++shared_lines_;
    counted = line;
  }
  return std::nullopt;
}

std::optional<Clash> GlobalMemory::compare_reads() {
  // The reads overlap each other, the writes do not: for each read, the first write that ends behind its begin.
  size_t w = 0;
  for (const Burst& read : reads_) {
    while (w < writes_.size() && writes_[w].end <= read.begin) ++w;
    if (w < writes_.size() && writes_[w].begin < read.end) return Clash{rule::kReadBack, writes_[w], read, true};
  }
  return std::nullopt;
}

void GlobalMemory::define_writes() {
  for (size_t i = 0; i < writes_.size();) {
    Tensor& tensor = *near(writes_[i].begin);
    std::vector<ByteRange> ranges;
    for (; i < writes_.size() && near(writes_[i].begin) == &tensor; ++i)
      ranges.push_back({offset_of(writes_[i].begin), offset_of(writes_[i].end)});
    ranges = merged(std::move(ranges));
    tensor.written.insert(tensor.written.end(), ranges.begin(), ranges.end());
    tensor.defined.insert(tensor.defined.end(), ranges.begin(), ranges.end());
    tensor.defined = merged(std::move(tensor.defined));
  }
}

}  // namespace binmoe::vector_core
