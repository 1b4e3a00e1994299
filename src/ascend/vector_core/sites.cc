#include "sites.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <tuple>

namespace binmoe::vector_core {

const char* name_of(Call call) {
  static constexpr std::array<const char*, 24> kNames = {
      "SetFlag",    "WaitFlag", "EnQue",   "DeQue",       "FreeTensor",   "PipeBarrier",    "BINMOE_BOUND",
      "InitBuffer", "TPipe",    "Get",     "AllocTensor", "AllocEventID", "ReleaseEventID", "DataCopyPad",
      "DataCopy",   "Cast",     "Muls",    "Mul",         "Add",          "Adds",           "Duplicate",
      "ReduceSum",  "GetValue", "SetValue"};
  return kNames[static_cast<size_t>(call)];
}

Sites::Sites() : slots_(512, 0), entries_(1) {}

void Sites::apply(Entry& entry) const {
  entry.mode.reset();
  if (mutation_ && static_cast<int>(entry.call) == static_cast<int>(mutation_->kind) &&
      entry.place.line == mutation_->site.line && mutation_->site.file == entry.place.file)
    entry.mode = mutation_->mode;
}

void Sites::mutate(const Mutation& mutation) {
  mutation_ = mutation;
  for (Entry& entry : entries_) apply(entry);
}

SiteId Sites::insert(Call call, Place place, size_t slot) {
  if (entries_.size() > UINT16_MAX) throw std::length_error("the model knows 65535 call sites, no more");
  const auto id = static_cast<SiteId>(entries_.size());
  Entry entry;
  entry.place = place;
  entry.call = call;
  entry.hits = 1;
  apply(entry);
  entries_.push_back(entry);
  slots_[slot] = id;
  if (entries_.size() * 2 > slots_.size()) {
    slots_.assign(slots_.size() * 2, 0);
    for (size_t i = 1; i < entries_.size(); ++i) {
      size_t free = slot_of(entries_[i].call, entries_[i].place);
      while (slots_[free] != 0) free = (free + 1) & (slots_.size() - 1);
      slots_[free] = static_cast<SiteId>(i);
    }
  }
  return id;
}

std::vector<SiteHits> Sites::mutable_sites() const {
  // One file may have several addresses for its name, one in each object file.
  std::map<std::tuple<Kind, std::string, int>, int64_t> hits;
  for (const Entry& entry : entries_)
    if (entry.hits > 0 && entry.call <= Call::bound)
      hits[{static_cast<Kind>(entry.call), entry.place.file, entry.place.line}] += entry.hits;
  std::vector<SiteHits> out;
  for (const auto& [key, count] : hits) out.push_back({std::get<0>(key), {std::get<1>(key), std::get<2>(key)}, count});
  return out;
}

}  // namespace binmoe::vector_core
