// by_weight inside experts, for plans that are not sorted digit by digit: few assignments by counting; more, once they
// stand by expert, by sorting tiles of that order and searching in the other tiles of an expert's segment.
#pragma once

#include <cstdint>

#include "cuda/device/launch.cuh"
#include "cuda/device/plan_items.cuh"
#include "cuda/device/plan_partition.cuh"
#include "cuda/device/plan_sinks.cuh"

namespace binmoe::cuda::device {

/// Pairs by expert for the tile sort, and what of the plan is known by then.
template <class Key>
struct SegmentSink {
  using Out = Key;
  PlanOut out;
  Key* keys;
  uint32_t* assignments;
  const void* weights;
  DType type;

  template <int kItems>
  __device__ __forceinline__ void prepare(const Items<kItems, uint32_t>& items, Key (&own_keys)[kItems]) const {
    load_keys(weights, type, items.assignment, own_keys);
  }

  __device__ __forceinline__ void put(const Partition&, uint32_t assignment, int expert, uint32_t position,
                                      Key key) const {
    if (expert >= 0) {
      keys[position] = key;
      assignments[position] = assignment;
    } else if (assignment != kNoAssignment) {
      out.row_of_assignment[assignment] = -1;
    }
  }

  __device__ __forceinline__ void fill(const Partition& partition, uint32_t position, uint32_t items) const {
    if (position < items) {
      out.bin_ids[position] = partition.bin_at(position);
    } else {
      out.put_tail(position);
      keys[position] = 0;
      assignments[position] = kNoAssignment;
    }
  }

  __device__ __forceinline__ TileStatus load_status() const { return out.load_status(); }

  __device__ __forceinline__ void finish(const Partition& partition, TileStatus status) const {
    out.put_all_counts(partition);
    out.put_status(status);
  }
};

/// Pairs in the order of the plan's bin_ids, before and after the tile sort.
template <class Key>
struct Segments {
  const Key* keys;
  const uint32_t* assignments;
  Key* sorted_keys;
  uint32_t* sorted_assignments;
  const int32_t* bin_ids;
  uint32_t count;
  int32_t key_bits;
  int32_t log2_tile;  // of the tile sort: blockDim.x
};

template <class Key>
struct SortEntry {
  Key key;
  uint32_t assignment;
  int expert;
};

constexpr int kKeyDigitBits = 8;

/// Bins of the tile sort: of a key's digit, or of the experts in a tile, among them the one behind the last.
__host__ __device__ constexpr int tile_sort_bins(int num_experts) {
  return num_experts + 1 > (1 << kKeyDigitBits) ? num_experts + 1 : 1 << kKeyDigitBits;
}

template <class Key>
constexpr size_t tile_sort_shared_bytes(int num_experts, int threads) {
  return (partition_shared_bytes(tile_sort_bins(num_experts), threads) + 7) / 8 * 8 +
         static_cast<size_t>(threads) * (sizeof(Key) + sizeof(uint32_t) + sizeof(int));
}

/// Sort the block's entries by one digit, stable; negative digits stand behind the tile and stay.
template <class Key>
__device__ __forceinline__ void sort_by_digit(const Partition& partition, int digit, SortEntry<Key>& entry, Key* keys,
                                              uint32_t* assignments, int* experts) {
  const int digits[1] = {digit};
  uint32_t rank[1];
  partition.clear_own_counts();
  partition.rank_in_warp(digits, rank);
  __syncthreads();
  partition.scan_block();
  __syncthreads();
  partition.scan_bins();
  if (digit >= 0) {
    const uint32_t position = partition.next[digit] + partition.own_counts()[digit] + rank[0];
    keys[position] = entry.key;
    assignments[position] = entry.assignment;
    experts[position] = entry.expert;
  }
  __syncthreads();
  if (digit >= 0) entry = {keys[threadIdx.x], assignments[threadIdx.x], experts[threadIdx.x]};
}

/// Every tile by (expert, key); one entry a thread.
template <class Key>
__global__ void __launch_bounds__(kMaxThreads, 1) sort_tiles_kernel(const __grid_constant__ Segments<Key> segments) {
  extern __shared__ uint32_t shared_words[];
  const int threads = static_cast<int>(blockDim.x);
  auto* keys = reinterpret_cast<Key*>(shared_words);
  auto* assignments = reinterpret_cast<uint32_t*>(keys + threads);
  auto* experts = reinterpret_cast<int*>(assignments + threads);
  auto* partition_words = reinterpret_cast<uint32_t*>(experts + threads);
  const uint32_t begin = static_cast<uint32_t>(blockIdx.x) * blockDim.x, position = begin + threadIdx.x;
  const bool inside = position < segments.count;
  let_next_start();
  wait_for_previous();
  SortEntry<Key> entry = {};
  if (inside)
    entry = {load_result(segments.keys + position), load_result(segments.assignments + position),
             static_cast<int>(load_result(reinterpret_cast<const uint32_t*>(segments.bin_ids) + position))};
  if (threadIdx.x == 0) experts[0] = entry.expert;
  if (position + 1 == min(begin + blockDim.x, segments.count)) experts[1] = entry.expert;
  __syncthreads();
  const int first_expert = experts[0], last_expert = segments.count - begin > 1 ? experts[1] : first_expert;
  const Partition by_key(partition_words, 1 << kKeyDigitBits);
  for (int shift = 0; shift < segments.key_bits; shift += kKeyDigitBits) {
    const int digit = static_cast<int>(static_cast<uint32_t>(entry.key >> shift) & ((1u << kKeyDigitBits) - 1));
    sort_by_digit(by_key, inside ? digit : kMasked, entry, keys, assignments, experts);
  }
  if (first_expert != last_expert) {
    const Partition by_expert(partition_words, last_expert - first_expert + 1);
    sort_by_digit(by_expert, inside ? entry.expert - first_expert : kMasked, entry, keys, assignments, experts);
  }
  if (!inside) return;
  segments.sorted_keys[position] = entry.key;
  segments.sorted_assignments[position] = entry.assignment;
}

/// The first positions in [low[i], high[i]) whose key is above `key`, or not below it where `or_equal[i]`.
template <class Key, int kSearches>
__device__ __forceinline__ void search(const Key* keys, uint32_t count, Key key, const bool (&or_equal)[kSearches],
                                       uint32_t (&low)[kSearches], uint32_t (&high)[kSearches]) {
  uint32_t width = 0;
#pragma unroll
  for (int i = 0; i < kSearches; ++i) width = max(width, high[i] - low[i]);
  for (; width > 0; width /= 2) {
    Key found[kSearches];
#pragma unroll
    for (int i = 0; i < kSearches; ++i) found[i] = load_cached(keys + min((low[i] + high[i]) / 2, count - 1));
#pragma unroll
    for (int i = 0; i < kSearches; ++i) {
      if (low[i] >= high[i]) continue;
      const uint32_t middle = (low[i] + high[i]) / 2;
      if (found[i] < key || (found[i] == key && !or_equal[i]))
        low[i] = middle + 1;
      else
        high[i] = middle;
    }
  }
}

/// An entry's place: the entries before it in its own tile, and those of the expert's other tiles that come first.
template <class Key>
__global__ void __launch_bounds__(kMaxThreads, 1)
    merge_tiles_kernel(const __grid_constant__ Segments<Key> segments, const __grid_constant__ PlanOut out) {
  constexpr int kSearches = 8;
  const uint32_t position = static_cast<uint32_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  let_next_start();
  wait_for_previous();
  if (position >= segments.count) return;
  const int expert = static_cast<int>(load_result(reinterpret_cast<const uint32_t*>(segments.bin_ids) + position));
  const Key key = load_cached(segments.sorted_keys + position);
  const uint32_t assignment = load_result(segments.sorted_assignments + position);
  if (assignment == kNoAssignment) return;
  const uint32_t end = load_result(reinterpret_cast<const uint32_t*>(out.bins) + expert);
  const uint32_t begin = end - load_result(reinterpret_cast<const uint32_t*>(out.tokens_per_expert) + expert);
  const uint32_t own = position >> segments.log2_tile, last = (end - 1) >> segments.log2_tile;
  uint32_t offset = position - max(begin, own << segments.log2_tile);
  for (uint32_t tile = begin >> segments.log2_tile; tile <= last; tile += kSearches) {
    uint32_t low[kSearches], high[kSearches];
    bool or_equal[kSearches];
#pragma unroll
    for (uint32_t i = 0; i < kSearches; ++i) {
      low[i] = max(begin, (tile + i) << segments.log2_tile);
      high[i] = min(end, (tile + i + 1) << segments.log2_tile);
      if (tile + i > last || tile + i == own) high[i] = low[i];
      or_equal[i] = tile + i > own;  // of equal keys, those of earlier tiles come first
      offset -= low[i];
    }
    search(segments.sorted_keys, segments.count, key, or_equal, low, high);
#pragma unroll
    for (int i = 0; i < kSearches; ++i) offset += low[i];
  }
  out.indices[begin + offset] = static_cast<int32_t>(assignment);
  out.row_of_assignment[assignment] = out.row(expert, offset);
}

/// Assignments, of those that a block of count_and_rank_kernel looks at, that it also places.
constexpr int kRankedPerBlock = 16;

template <class Key>
constexpr size_t count_and_rank_shared_bytes(int64_t count) {
  return static_cast<size_t>(count) * (sizeof(Key) + sizeof(int));
}

/// A plan of few assignments: each is placed by counting those that come before it.
template <class Key>
__global__ void __launch_bounds__(kMaxThreads, 1)
    count_and_rank_kernel(const __grid_constant__ IdSource source, const void* weights, DType type,
                          const __grid_constant__ PlanOut out) {
  constexpr int kAtOnce = 4;
  extern __shared__ uint32_t shared_words[];
  __shared__ TileStatus bad;
  const uint32_t count = source.order.count;
  auto* keys = reinterpret_cast<Key*>(shared_words);
  auto* experts = reinterpret_cast<int*>(keys + count);
  if (threadIdx.x == 0) bad = {0, kNoAssignment};
  let_next_start();
  wait_for_previous();
  __syncthreads();
  for (uint32_t first = threadIdx.x / kWarp * kAtOnce * kWarp; first < count; first += blockDim.x * kAtOnce) {
    Items<kAtOnce, uint32_t> items;
    Key own_keys[kAtOnce];
    source.load(first + static_cast<uint32_t>(lane_id()), items);
    load_keys(weights, type, items.assignment, own_keys);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (items.assignment[i] == kNoAssignment) continue;
      keys[items.assignment[i]] = own_keys[i];
      experts[items.assignment[i]] = items.digit[i] < 0 ? out.num_experts : items.digit[i];
    }
    note_bad(items, &bad);
  }
  __syncthreads();
  const unsigned lanes = blockDim.x / kRankedPerBlock, lane = threadIdx.x % lanes;
  const uint32_t own = static_cast<uint32_t>(blockIdx.x) * kRankedPerBlock + threadIdx.x / lanes;
  const bool inside = own < count;
  const int expert = inside ? experts[own] : 0;
  const Key key = inside ? keys[own] : Key{0};
  uint32_t begin = 0, offset = 0, unmasked = 0;
#pragma unroll 4
  for (uint32_t other = lane; other < count; other += lanes) {
    const int other_expert = experts[other];
    const Key other_key = keys[other];
    const bool first = other_key < key || (other_key == key && other < own);
    begin += other_expert < expert ? 1 : 0;
    offset += other_expert == expert && first ? 1 : 0;
    unmasked += other_expert < out.num_experts ? 1 : 0;
  }
  for (unsigned distance = 1; distance < lanes; distance *= 2) {
    begin += __shfl_xor_sync(kAllLanes, begin, distance);
    offset += __shfl_xor_sync(kAllLanes, offset, distance);
    unmasked += __shfl_xor_sync(kAllLanes, unmasked, distance);
  }
  if (inside && lane == 0) {
    const bool masked = expert == out.num_experts;
    if (!masked) {
      out.indices[begin + offset] = static_cast<int32_t>(own);
      out.bin_ids[begin + offset] = expert;
    }
    out.row_of_assignment[own] = masked ? -1 : out.row(expert, offset);
    if (own >= unmasked) out.put_tail(own);
  }
  const int warps = static_cast<int>(blockDim.x / kWarp);
  for (int e = static_cast<int>(blockIdx.x) * warps + warp_id(); e < out.num_experts;
       e += static_cast<int>(gridDim.x) * warps) {
    uint32_t before = 0, items = 0;
    for (uint32_t other = static_cast<uint32_t>(lane_id()); other < count; other += kWarp) {
      before += experts[other] < e ? 1 : 0;
      items += experts[other] == e ? 1 : 0;
    }
    before = __reduce_add_sync(kAllLanes, before);
    items = __reduce_add_sync(kAllLanes, items);
    if (lane_id() == 0) out.put_counts(e, before, items);
  }
  out.put_status(lane_id() == 0 ? bad : TileStatus{0, kNoAssignment});
}

}  // namespace binmoe::cuda::device
