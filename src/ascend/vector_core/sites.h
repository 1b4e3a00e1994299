// Call sites of the kernels, numbered as they are first met.
#pragma once

#include <optional>
#include <vector>

#include "mutation.h"
#include "types.h"

namespace binmoe::vector_core {

/// The calls that have a site. The first seven are the kinds of mutation, in their order.
enum class Call : uint8_t {
  set_flag,
  wait_flag,
  enque,
  deque,
  free_tensor,
  pipe_barrier,
  bound,
  init_buffer,
  make_pipe,
  get,
  alloc_tensor,
  alloc_event,
  release_event,
  data_copy_pad,
  data_copy,
  cast,
  muls,
  mul,
  add,
  adds,
  duplicate,
  reduce_sum,
  get_value,
  set_value
};
const char* name_of(Call call);

class Sites {
 public:
  struct Entry {
    Place place = {"", 0};
    Call call = Call::get;
    int64_t hits = 0;
    std::optional<Mode> mode;  // set on the one site that is mutated
  };

  Sites();
  void mutate(const Mutation& mutation);

  /// The number of a call, its hits counted up by one.
  SiteId hit(Call call, Place place) {
    size_t slot = slot_of(call, place);
    while (slots_[slot] != 0) {
      Entry& entry = entries_[slots_[slot]];
      if (entry.place.file == place.file && entry.place.line == place.line && entry.call == call) {
        ++entry.hits;
        return slots_[slot];
      }
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return insert(call, place, slot);
  }

  const Entry& at(SiteId site) const { return entries_[site]; }
  bool skips(SiteId site) const { return entries_[site].mode == Mode::skip; }
  bool orders(SiteId site) const { return !entries_[site].mode; }

  /// The sites that can be mutated, with their hits, by kind, file and line.
  std::vector<SiteHits> mutable_sites() const;

 private:
  size_t slot_of(Call call, Place place) const {
    const uint64_t key = reinterpret_cast<uintptr_t>(place.file) * 31 + static_cast<uint64_t>(place.line) * 64 +
                         static_cast<uint64_t>(call);
    return static_cast<size_t>((key * 0x9e3779b97f4a7c15u) >> 40) & (slots_.size() - 1);
  }
  SiteId insert(Call call, Place place, size_t slot);
  void apply(Entry& entry) const;

  std::vector<SiteId> slots_;
  std::vector<Entry> entries_;
  std::optional<Mutation> mutation_;
};

}  // namespace binmoe::vector_core
