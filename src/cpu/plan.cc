// Plan: a counting sort. Each chunk of assignments counts its experts (and finds bad ids, before any output is
// written); a prefix over chunks and experts says where each chunk's entries go; each chunk places its own, in order.
// by_weight sorts every expert's entries afterwards.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "cpu/operations.h"
#include "cpu/work.h"

namespace binmoe::cpu {
namespace {

constexpr int64_t kSerialAssignments = 8192;
constexpr int64_t kCacheLine = 64;

/// Above so many assignments the sorted arrays do not fit the second-level cache, and the line that an expert's next
/// entries go to is fetched ahead: 6.7 -> 1.8 ms for a million assignments to 128 experts on one thread, but 0.26 ->
/// 0.34 for 131072 (docs/cpu.md).
constexpr int64_t kPrefetchAssignments = 262144;
constexpr int64_t kLineEntries = kCacheLine / static_cast<int64_t>(sizeof(int32_t));

/// One expert in one chunk. While counting, `next` and `odd` are the counts of even and odd assignments: two neighbours
/// of one expert then do not wait for each other. Cursors of different chunks never share a cache line.
struct Cursor {
  int32_t next;      // sorted position of the chunk's next entry
  int32_t kept_end;  // sorted positions from here on are dropped
  int32_t shift;     // expert row = position + shift
  int32_t odd;
};

int64_t cursors_per_chunk(const Sizes& s) {
  constexpr int64_t kPerLine = kCacheLine / static_cast<int64_t>(sizeof(Cursor));
  return (s.num_experts + kPerLine - 1) / kPerLine * kPerLine;
}

int64_t plan_chunks(const Sizes& s, const Executor& executor) {
  if (s.assignments() < kSerialAssignments) return 1;
  const int64_t fitting = 1 + s.assignments() / cursors_per_chunk(s);  // the workspace stays O(T*K + E)
  return std::min<int64_t>(executor.concurrency(), fitting);
}

/// An assignment under by_weight: ascending by (key, assignment) is the order that the policy asks for.
struct Ranked {
  uint64_t key;
  int32_t assignment;
  friend bool operator<(const Ranked& a, const Ranked& b) {
    return a.key != b.key ? a.key < b.key : a.assignment < b.assignment;
  }
};

/// Larger weights get smaller keys, -0 that of +0, NaN the largest.
uint64_t key_of(double weight) {
  if (weight != weight) return ~uint64_t{0};
  const auto bits = std::bit_cast<uint64_t>(weight + 0.0);
  const bool negative = bits >> 63 != 0;
  return negative ? bits : ~bits & ~(uint64_t{1} << 63);
}

class Planner {
 public:
  Planner(const PlanJob& job, const Resources& resources)
      : job_(job),
        sizes_(job.out.sizes),
        executor_(resources.executor),
        chunks_(plan_chunks(sizes_, executor_)),
        stride_(cursors_per_chunk(sizes_)) {
    auto address = reinterpret_cast<uintptr_t>(resources.workspace);
    address += -address % kCacheLine;
    cursors_ = reinterpret_cast<Cursor*>(address);
    ranked_ = reinterpret_cast<Ranked*>(address + static_cast<uintptr_t>(chunks_ * stride_) * sizeof(Cursor));
  }

  static size_t workspace_bytes(const Sizes& s, DropPolicy policy, const Executor& executor) {
    const int64_t cursors = plan_chunks(s, executor) * cursors_per_chunk(s) * static_cast<int64_t>(sizeof(Cursor));
    const int64_t ranked = policy == DropPolicy::by_weight ? s.assignments() * static_cast<int64_t>(sizeof(Ranked)) : 0;
    return static_cast<size_t>(cursors + ranked + kCacheLine);
  }

  template <class Id>
  std::optional<Fault> run() {
    std::atomic<bool> bad{false};
    parallel_for(executor_, chunks_, [&](int64_t c) {
      if (!count<Id>(c)) bad = true;
    });
    if (bad) return first_fault<Id>();
    make_cursors();
    parallel_for(executor_, chunks_, [&](int64_t c) {
      sizes_.assignments() < kPrefetchAssignments ? place<Id, false>(c) : place<Id, true>(c);
      fill_bin_ids(part_of(sizes_.assignments(), c, chunks_));
    });
    if (job_.policy == DropPolicy::by_weight) sort_experts();
    return std::nullopt;
  }

 private:
  Cursor* cursors(int64_t chunk) const { return cursors_ + chunk * stride_; }

  /// Call function(assignment, id) for the assignments of a chunk, in the policy's order. Stops at false.
  template <class Id, class Function>
  bool for_chunk(int64_t chunk, const Function& function) const {
    const auto* ids = static_cast<const char*>(job_.ids.data);
    const auto id_at = [ids](int64_t a) { return numeric::load_as<Id>(ids, a); };
    const Range range = part_of(sizes_.assignments(), chunk, chunks_);
    if (job_.policy != DropPolicy::choice_order) {
      for (int64_t a = range.begin; a < range.end; ++a)
        if (!function(a, id_at(a))) return false;
      return true;
    }
    int64_t a = 0, k = 0, t = 0;  // position q stands for choice q / T of token q % T
    if (range.begin < range.end) {
      k = range.begin / sizes_.tokens;
      t = range.begin % sizes_.tokens;
      a = t * sizes_.top_k + k;
    }
    for (int64_t q = range.begin; q < range.end; ++q) {
      if (!function(a, id_at(a))) return false;
      a += sizes_.top_k;
      if (++t == sizes_.tokens) t = 0, a = ++k;
    }
    return true;
  }

  template <class Id>
  bool in_range(Id id) const {
    return static_cast<uint64_t>(static_cast<int64_t>(id)) + 1 <= static_cast<uint64_t>(sizes_.num_experts);
  }

  /// False when an id is out of range.
  template <class Id>
  bool count(int64_t chunk) const {
    Cursor* mine = cursors(chunk);
    std::memset(mine, 0, static_cast<size_t>(stride_) * sizeof(Cursor));
    return for_chunk<Id>(chunk, [&](int64_t a, Id id) {
      if (!in_range(id)) return false;
      if (static_cast<int64_t>(id) >= 0) ++((a & 1) != 0 ? mine[id].odd : mine[id].next);
      return true;
    });
  }

  template <class Id>
  std::optional<Fault> first_fault() const {
    int64_t a = 0;
    while (in_range(numeric::load_as<Id>(job_.ids.data, a))) ++a;
    return Fault{"expert_id_range", a, numeric::load_id(job_.ids, a), sizes_.num_experts};
  }

  /// From counts per chunk to where each chunk's entries go; bins and counts on the way.
  void make_cursors() const {
    const PlanView& out = job_.out;
    int32_t end = 0;
    for (int64_t e = 0; e < sizes_.num_experts; ++e) {
      const int32_t begin = end;
      for (int64_t c = 0; c < chunks_; ++c) {
        Cursor& cursor = cursors(c)[e];
        const int32_t count = cursor.next + cursor.odd;
        cursor.next = end;
        end += count;
      }
      out.bins[e] = end;
      out.tokens_per_expert[e] = end - begin;
      out.kept_per_expert[e] = std::min(end - begin, sizes_.expert_capacity);
      const int32_t kept_end = begin + out.kept_per_expert[e];
      const auto shift = static_cast<int32_t>(expert_rows(out, e).begin - begin);
      for (int64_t c = 0; c < chunks_; ++c) cursors(c)[e].kept_end = kept_end, cursors(c)[e].shift = shift;
    }
  }

  template <class Id, bool kPrefetch>
  void place(int64_t chunk) const {
    const PlanView& out = job_.out;
    Cursor* mine = cursors(chunk);
    for_chunk<Id>(chunk, [&](int64_t a, Id id) {
      if (static_cast<int64_t>(id) < 0) {
        out.row_of_assignment[a] = -1;
        return true;
      }
      Cursor& cursor = mine[id];
      const int32_t position = cursor.next++;
      out.indices[position] = static_cast<int32_t>(a);
      if constexpr (kPrefetch) __builtin_prefetch(out.indices + position + kLineEntries, 1, 3);
      out.row_of_assignment[a] = position < cursor.kept_end ? position + cursor.shift : -1;
      return true;
    });
  }

  /// bin_ids at some positions, and the tails of both sorted arrays.
  void fill_bin_ids(Range positions) const {
    const PlanView& out = job_.out;
    const int32_t* bins_end = out.bins + sizes_.num_experts;
    int64_t p = positions.begin;
    const int32_t* bin = std::upper_bound(static_cast<const int32_t*>(out.bins), bins_end, static_cast<int32_t>(p));
    for (; bin != bins_end && p < positions.end; ++bin) {
      const int64_t end = std::min<int64_t>(*bin, positions.end);
      for (; p < end; ++p) out.bin_ids[p] = static_cast<int32_t>(bin - out.bins);
    }
    for (; p < positions.end; ++p) {
      out.bin_ids[p] = sizes_.num_experts;
      out.indices[p] = -1;
    }
  }

  /// The entries of each expert by weight, and their rows again.
  void sort_experts() const {
    const PlanView& out = job_.out;
    const Cursor* kept = cursors(0);  // kept_end and shift are the same in every chunk
    parallel_for(executor_, chunks_ == 1 ? 1 : sizes_.num_experts, [&](int64_t piece) {
      const Range experts = chunks_ == 1 ? Range{0, sizes_.num_experts} : Range{piece, piece + 1};
      for (int64_t e = experts.begin; e < experts.end; ++e) {
        const int64_t begin = out.bins[e] - out.tokens_per_expert[e], end = out.bins[e];
        for (int64_t p = begin; p < end; ++p)
          ranked_[p] = {key_of(weight_at(job_.priority, out.indices[p])), out.indices[p]};
        std::sort(ranked_ + begin, ranked_ + end);
        for (int64_t p = begin; p < end; ++p) {
          out.indices[p] = ranked_[p].assignment;
          out.row_of_assignment[ranked_[p].assignment] =
              p < kept[e].kept_end ? static_cast<int32_t>(p) + kept[e].shift : -1;
        }
      }
    });
  }

  const PlanJob& job_;
  const Sizes& sizes_;
  Executor& executor_;
  const int64_t chunks_;
  const int64_t stride_;  // from one chunk's cursors to the next
  Cursor* cursors_;
  Ranked* ranked_;
};

}  // namespace

size_t plan_workspace_bytes(const Sizes& sizes, DropPolicy policy, DType, const Executor& executor) {
  return Planner::workspace_bytes(sizes, policy, executor);
}

std::optional<Fault> plan(const PlanJob& job, const Resources& resources) {
  Planner planner(job, resources);
  switch (job.ids.type) {
    case IdType::i8:
      return planner.run<int8_t>();
    case IdType::u8:
      return planner.run<uint8_t>();
    case IdType::i16:
      return planner.run<int16_t>();
    case IdType::u16:
      return planner.run<uint16_t>();
    case IdType::i32:
      return planner.run<int32_t>();
    case IdType::i64:
      return planner.run<int64_t>();
  }
  return std::nullopt;
}

void plan_from_bins(const PlanFromBinsJob& job, const Resources& resources) {
  const PlanView& out = job.out;
  const Sizes& s = out.sizes;
  const int64_t count = job.bins.count, chunks = chunk_count(resources.executor, s.num_experts, count * 32);
  std::fill_n(out.row_of_assignment, s.assignments(), -1);
  std::fill(out.indices + count, out.indices + s.assignments(), -1);
  std::fill(out.bin_ids + count, out.bin_ids + s.assignments(), s.num_experts);
  parallel_for(resources.executor, chunks, [&](int64_t i) {
    const Range experts = part_of(s.num_experts, i, chunks);
    for (int64_t e = experts.begin; e < experts.end; ++e) {
      const int32_t begin = e > 0 ? job.bins.bins[e - 1] : 0, end = job.bins.bins[e];
      out.bins[e] = end;
      out.tokens_per_expert[e] = end - begin;
      out.kept_per_expert[e] = std::min(end - begin, s.expert_capacity);
      const ExpertRows rows = expert_rows(out, e);
      for (int32_t p = begin; p < end; ++p) {
        out.indices[p] = job.bins.indices[p];
        out.bin_ids[p] = static_cast<int32_t>(e);
        if (rows.begin + p - begin < rows.kept_end)
          out.row_of_assignment[job.bins.indices[p]] = static_cast<int32_t>(rows.begin) + p - begin;
      }
    }
  });
}

}  // namespace binmoe::cpu
