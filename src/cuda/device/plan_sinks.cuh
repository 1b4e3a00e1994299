// Where the plan's kernels put sorted items: the workspace, for the next pass, or the plan.
#pragma once

#include <cstdint>

#include "cuda/device/plan_items.cuh"
#include "cuda/device/plan_partition.cuh"

namespace binmoe::cuda::device {

/// Ids out of range in one tile: how many, and the first one's position.
struct TileStatus {
  uint32_t count, first;
};

/// Adds a thread's items that are out of range.
template <int kItems, class Value>
__device__ __forceinline__ void note_bad(const Items<kItems, Value>& items, TileStatus* status) {
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    if (items.digit[i] != kOutOfRange) continue;
    atomicAdd(&status->count, 1u);
    atomicMin(&status->first, items.assignment[i]);
  }
}

/// Counts of experts for plans of more experts than one digit holds: level l counts runs of 32^l experts.
struct ExpertCounts {
  uint32_t* counts;  // all levels, one after the other
  int32_t levels;    // 0: nothing is counted
  int32_t num_experts;

  template <class Function>
  __device__ __forceinline__ void for_levels(const Function& function) const {
    uint32_t* level = counts;
    uint32_t size = static_cast<uint32_t>(num_experts);
    for (int l = 0; l < levels; ++l) {
      function(level, l * 5, size);
      level += size;
      size = (size + kWarp - 1) / kWarp;
    }
  }

  __device__ __forceinline__ void add(uint32_t expert) const {
    for_levels([&](uint32_t* level, int shift, uint32_t) { atomicAdd(level + (expert >> shift), 1u); });
  }

  /// before[i] = items of the experts before experts[i] in its run of 32^levels; the same experts in all lanes of the
  /// warp. The loads of a level are in flight together.
  template <int kExperts>
  __device__ __forceinline__ void sum_before(const uint32_t (&experts)[kExperts], uint32_t (&before)[kExperts]) const {
#pragma unroll
    for (int i = 0; i < kExperts; ++i) before[i] = 0;
    for_levels([&](uint32_t* level, int shift, uint32_t size) {
      uint32_t counted[kExperts];
#pragma unroll
      for (int i = 0; i < kExperts; ++i) {
        const uint32_t first = (experts[i] >> shift) / kWarp * kWarp;
        counted[i] = load_result(level + min(first + static_cast<uint32_t>(lane_id()), size - 1));
      }
#pragma unroll
      for (int i = 0; i < kExperts; ++i)
        if (static_cast<uint32_t>(lane_id()) < (experts[i] >> shift) % kWarp) before[i] += counted[i];
    });
#pragma unroll
    for (int i = 0; i < kExperts; ++i) before[i] = __reduce_add_sync(kAllLanes, before[i]);
  }
};

/// The tiles of the next pass, as this pass counts them.
struct NextTiles {
  uint32_t* histograms;  // [tiles][row], zero before this pass
  int32_t row, log2_size;
  Digit digit;

  template <class Value>
  __device__ __forceinline__ void add(uint32_t position, Value value) const {
    atomicAdd(histograms + int64_t{position >> log2_size} * row + digit.of(value), 1u);
  }
};

/// Pairs (value, assignment) for the next pass: the values that came, or the experts of the assignments.
template <class In, class OutValue, bool kToExperts>
struct PairSink {
  using Out = OutValue;
  Out* values;
  uint32_t* assignments;
  int32_t* row_of_assignment;
  NextTiles next;
  ExpertCounts counts;
  ExpertIds ids;

  template <int kItems>
  __device__ __forceinline__ void prepare(const Items<kItems, In>& items, Out (&out)[kItems]) const {
    if constexpr (kToExperts) {
      int experts[kItems];
      load_experts(ids, items.assignment, experts);
#pragma unroll
      for (int i = 0; i < kItems; ++i) out[i] = static_cast<uint32_t>(experts[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kItems; ++i) out[i] = items.value[i];
    }
  }

  __device__ __forceinline__ void put(const Partition&, uint32_t assignment, int digit, uint32_t position,
                                      Out value) const {
    if (digit >= 0) {
      values[position] = value;
      assignments[position] = assignment;
      next.add(position, value);
      counts.add(static_cast<uint32_t>(value));
    } else if (assignment != kNoAssignment) {
      row_of_assignment[assignment] = -1;  // masked: no later pass sees it
    }
  }

  __device__ __forceinline__ void fill(const Partition&, uint32_t position, uint32_t items) const {
    if (position < items) return;
    values[position] = 0;
    assignments[position] = kNoAssignment;
  }

  __device__ __forceinline__ TileStatus load_status() const {
    return {};
  }
  __device__ __forceinline__ void finish(const Partition&, TileStatus) const {}
};

/// The plan, and where its status comes from.
struct PlanOut {
  int32_t *indices, *bin_ids, *row_of_assignment, *bins, *tokens_per_expert, *kept_per_expert;
  int64_t* status;             // null: not wanted
  const TileStatus* of_tiles;  // null: the kernel counts the bad ids itself
  int32_t tiles;
  int32_t num_experts, expert_capacity;
  ExpertIds ids;

  __device__ __forceinline__ int32_t row(int32_t expert, uint32_t offset) const {
    return offset < static_cast<uint32_t>(expert_capacity) ? expert * expert_capacity + static_cast<int32_t>(offset)
                                                           : -1;
  }

  __device__ __forceinline__ void put_counts(int32_t expert, uint32_t begin, uint32_t count) const {
    bins[expert] = static_cast<int32_t>(begin + count);
    tokens_per_expert[expert] = static_cast<int32_t>(count);
    kept_per_expert[expert] = min(static_cast<int32_t>(count), expert_capacity);
  }

  /// Bins are experts; by the first block.
  __device__ __forceinline__ void put_all_counts(const Partition& partition) const {
    if (blockIdx.x != 0) return;
#pragma unroll 1
    for (int e = static_cast<int>(threadIdx.x); e < partition.bins; e += static_cast<int>(blockDim.x))
      put_counts(e, partition.start[e], partition.all[partition.slot(e)]);
  }

  __device__ __forceinline__ void put_tail(uint32_t position) const {
    indices[position] = -1;
    bin_ids[position] = num_experts;
  }

  __device__ __forceinline__ bool puts_status() const {
    return status != nullptr && blockIdx.x == gridDim.x - 1 && threadIdx.x / kWarp == blockDim.x / kWarp - 1;
  }

  /// A lane's part of the tiles' statuses; of the last warp of the grid. Asked for early and used late.
  __device__ __forceinline__ TileStatus load_status() const {
    TileStatus found = {0, kNoAssignment};
    if (!puts_status()) return found;
#pragma unroll
    for (int i = 0; i < kMaxTiles / kWarp; ++i) {
      const int tile = i * kWarp + lane_id();
      if (tile >= tiles) continue;
      const auto* words = reinterpret_cast<const uint32_t*>(of_tiles + tile);
      found.count += load_result(words);
      found.first = min(found.first, load_result(words + 1));
    }
    return found;
  }

  __device__ __forceinline__ void put_status(TileStatus found) const {
    if (!puts_status()) return;
    found.count = __reduce_add_sync(kAllLanes, found.count);
    found.first = __reduce_min_sync(kAllLanes, found.first);
    if (lane_id() != 0) return;
    status[0] = found.count;
    status[1] = found.count > 0 ? static_cast<int64_t>(found.first) : -1;
    status[2] = found.count > 0 ? load_id(ids, found.first) : 0;
  }
};

/// Bins are experts.
struct PlanSink {
  using Out = uint32_t;
  PlanOut out;

  template <int kItems, class In>
  __device__ __forceinline__ void prepare(const Items<kItems, In>&, uint32_t (&)[kItems]) const {}

  __device__ __forceinline__ void put(const Partition& partition, uint32_t assignment, int expert, uint32_t position,
                                      uint32_t) const {
    int32_t row = -1;
    if (expert >= 0) {
      out.indices[position] = static_cast<int32_t>(assignment);
      row = out.row(expert, position - partition.start[expert]);
    }
    if (assignment != kNoAssignment) out.row_of_assignment[assignment] = row;
  }

  /// bin_ids by position, so that neighbours write neighbours.
  __device__ __forceinline__ void fill(const Partition& partition, uint32_t position, uint32_t items) const {
    if (position < items)
      out.bin_ids[position] = partition.bin_at(position);
    else
      out.put_tail(position);
  }

  __device__ __forceinline__ TileStatus load_status() const { return out.load_status(); }

  __device__ __forceinline__ void finish(const Partition& partition, TileStatus status) const {
    out.put_all_counts(partition);
    out.put_status(status);
  }
};

/// Bins are runs of 32^levels experts; the input is sorted by the expert's place in its run.
struct WidePlanSink {
  using Out = uint32_t;
  PlanOut out;
  ExpertCounts counts;

  template <int kItems>
  __device__ __forceinline__ void prepare(const Items<kItems, uint32_t>& items, uint32_t (&experts)[kItems]) const {
#pragma unroll
    for (int i = 0; i < kItems; ++i) experts[i] = items.value[i];
  }

  __device__ __forceinline__ void put(const Partition& partition, uint32_t assignment, int run, uint32_t position,
                                      uint32_t expert) const {
    constexpr int kAtOnce = 8;
    uint32_t begin = 0;
#pragma unroll 1
    for (int first = 0; first < kWarp; first += kAtOnce) {
      uint32_t experts[kAtOnce], before[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) experts[i] = __shfl_sync(kAllLanes, expert, first + i);
      counts.sum_before(experts, before);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (lane_id() == first + i) begin = before[i];
    }
    if (run < 0) return;
    begin += partition.start[run];
    out.indices[position] = static_cast<int32_t>(assignment);
    out.bin_ids[position] = static_cast<int32_t>(expert);
    out.row_of_assignment[assignment] = out.row(static_cast<int32_t>(expert), position - begin);
  }

  __device__ __forceinline__ void fill(const Partition&, uint32_t position, uint32_t items) const {
    if (position >= items) out.put_tail(position);
  }

  __device__ __forceinline__ TileStatus load_status() const {
    return out.load_status();
  }

  /// A warp takes 32 experts at once.
  __device__ __forceinline__ void finish(const Partition& partition, TileStatus status) const {
    const int64_t warps = int64_t{gridDim.x} * (blockDim.x / kWarp);
    const int shift = counts.levels * 5;
    for (int64_t first = (int64_t{blockIdx.x} * (blockDim.x / kWarp) + warp_id()) * kWarp; first < out.num_experts;
         first += warps * kWarp) {
      const int64_t expert = first + lane_id();
      const uint32_t count = expert < out.num_experts ? load_result(counts.counts + expert) : 0;
      const uint32_t first_expert[1] = {static_cast<uint32_t>(first)};
      uint32_t before[1];
      counts.sum_before(first_expert, before);
      const uint32_t begin = partition.start[first >> shift] + before[0] + inclusive_scan(count) - count;
      if (expert < out.num_experts) out.put_counts(static_cast<int32_t>(expert), begin, count);
    }
    out.put_status(status);
  }
};

}  // namespace binmoe::cuda::device
