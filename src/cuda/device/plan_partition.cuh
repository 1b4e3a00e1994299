// A block's part of a stable partition of items by digit, in shared memory: ranks among the items before, sums over
// tiles, starts of bins. Every function is called by all threads of the block.
//   position of an item = start of its bin + the bin's items in earlier tiles, in earlier warps and before it in its
//   own.
#pragma once

#include <cstdint>

#include "cuda/device/plan_items.cuh"

namespace binmoe::cuda::device {

constexpr unsigned kAllLanes = ~0u;
constexpr int kMaxThreads = 1024;
constexpr int kMaxBins = 1024;
constexpr int kMaxTiles = 128;

__host__ __device__ constexpr int row_words(int bins) {
  return (bins + 3) / 4 * 4;
}

/// Counts in a warp's row. Lanes of a bin, 8 rows apart, then are 8 banks apart and do not collide.
__host__ __device__ constexpr int warp_row(int bins) {
  return (bins + 7) / 8 * 8 + 2;
}

constexpr size_t partition_shared_bytes(int bins, int threads) {
  return static_cast<size_t>(5 * row_words(bins) + 4) * 4 +
         static_cast<size_t>(threads / kWarp) * static_cast<size_t>(warp_row(bins)) * 2;
}

/// The tiles of the sequence, consecutive positions each, and how many items of every bin each tile has.
struct Tiles {
  uint32_t count;  // positions in all
  int32_t tiles;
  int32_t log2_size;  // of a tile
  int32_t bins;
  const uint32_t* histograms;  // [tiles][row_words(bins)], zero behind the bins
};

__device__ __forceinline__ int lane_id() {
  return static_cast<int>(threadIdx.x % kWarp);
}

__device__ __forceinline__ int warp_id() {
  return static_cast<int>(threadIdx.x / kWarp);
}

/// Sum over this lane and those below it.
__device__ __forceinline__ uint32_t inclusive_scan(uint32_t value) {
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const uint32_t other = __shfl_up_sync(kAllLanes, value, distance);
    if (lane_id() >= distance) value += other;
  }
  return value;
}

struct Partition {
  int bins;
  int quads;              // of bins, rounded up
  uint32_t* all;          // items of a bin, at slot(bin)
  uint32_t* earlier;      // those in earlier tiles, at slot(bin)
  uint32_t* next;         // [bins] position of the bin's first item in this chunk
  uint32_t* start;        // [bins + 1] position of the bin's first item
  uint32_t* chunk_total;  // [bins] the bin's items in the chunk last scanned
  uint16_t* warp_counts;  // [warps][warp_row(bins)]

  __device__ __forceinline__ Partition(uint32_t* words, int num_bins) : bins(num_bins), quads((num_bins + 3) >> 2) {
    const int row = 4 * quads;
    all = words;
    earlier = all + row;
    next = earlier + row;
    chunk_total = next + row;
    start = chunk_total + row;
    warp_counts = reinterpret_cast<uint16_t*>(start + row + 4);
  }

  /// Where sums over tiles stand: four bins that one thread sums are a row apart, so that a warp meets no bank twice.
  __device__ __forceinline__ int slot(int bin) const { return (bin & 3) * quads + (bin >> 2); }
  __device__ __forceinline__ uint16_t* own_counts() const { return warp_counts + warp_id() * warp_row(bins); }

  __device__ __forceinline__ void clear_sums() const {
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < 8u * static_cast<unsigned>(quads); i += blockDim.x) all[i] = 0;
  }

  __device__ __forceinline__ void clear_own_counts() const {
    uint16_t* counts = own_counts();
    __syncwarp();  // all lanes have read those of the chunk before
    for (int i = lane_id(); i < bins; i += kWarp) counts[i] = 0;
    __syncwarp();
  }

  /// rank[i] = items of the same digit before item i in its warp; adds the items to own_counts().
  template <int kItems>
  __device__ __forceinline__ void rank_in_warp(const int (&digit)[kItems], uint32_t (&rank)[kItems]) const {
    uint16_t* counts = own_counts();
    const unsigned lanes_below = (1u << lane_id()) - 1;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const unsigned peers = __match_any_sync(kAllLanes, digit[i]);
      const unsigned before = peers & lanes_below;
      const uint32_t earlier_items = digit[i] >= 0 ? counts[digit[i]] : 0;
      __syncwarp();
      if (digit[i] >= 0 && before == 0) counts[digit[i]] = static_cast<uint16_t>(earlier_items + __popc(peers));
      __syncwarp();
      rank[i] = earlier_items + __popc(before);
    }
  }

  /// warp_counts become sums over earlier warps; one lane a bin calls through_bin(bin, items in all warps).
  /// A lane scans 8 warps: 256 bins then take one step in a block of any size.
  template <class Function>
  __device__ __forceinline__ void scan_warps(const Function& through_bin) const {
    constexpr int kRowsPerLane = 8;
    const int warps = static_cast<int>(blockDim.x / kWarp), row = warp_row(bins);
    const int log2_lanes = warps > 2 * kRowsPerLane ? 2 : warps > kRowsPerLane ? 1 : 0, lanes = 1 << log2_lanes;
    const int part = static_cast<int>(threadIdx.x) & (lanes - 1), first = part * kRowsPerLane;
    const int rows = min(kRowsPerLane, warps - first), bins_at_once = static_cast<int>(blockDim.x) >> log2_lanes;
#pragma unroll 1
    for (int begin = 0; begin < bins; begin += bins_at_once) {
      const int bin = begin + (static_cast<int>(threadIdx.x) >> log2_lanes);
      uint16_t* column = warp_counts + first * row + bin;
      const bool active = bin < bins;
      uint32_t counts[kRowsPerLane], sum = 0;
#pragma unroll
      for (int j = 0; j < kRowsPerLane; ++j) {
        counts[j] = active && j < rows ? column[j * row] : 0;
        sum += counts[j];
      }
      uint32_t through = sum;  // this part and those before it
      for (int distance = 1; distance < lanes; distance *= 2) {
        const uint32_t other = __shfl_up_sync(kAllLanes, through, distance, lanes);
        if (part >= distance) through += other;
      }
      uint32_t before = through - sum;
#pragma unroll
      for (int j = 0; j < kRowsPerLane; ++j) {
        if (active && j < rows) column[j * row] = static_cast<uint16_t>(before);
        before += counts[j];
      }
      if (active && part == lanes - 1) through_bin(bin, through);
    }
  }

  /// For a chunk of several: next[] moves over the chunk before this one.
  __device__ __forceinline__ void scan_chunk(bool is_first) const {
    scan_warps([&](int bin, uint32_t items) {
      if (!is_first) next[bin] += chunk_total[bin];
      chunk_total[bin] = items;
    });
  }

  /// For items that are all in this block.
  __device__ __forceinline__ void scan_block() const {
    scan_warps([&](int bin, uint32_t items) {
      all[slot(bin)] = items;
      earlier[slot(bin)] = 0;
    });
  }

  /// Adds the histograms of all tiles to `all`, those of tiles before `tile` to `earlier`; four bins a thread.
  __device__ __forceinline__ void sum_tiles(const Tiles& tiles, int tile) const {
    const int log2_width = quads > 1 ? 32 - __clz(quads - 1) : 0, width = 1 << log2_width;
    const int quad = static_cast<int>(threadIdx.x) & (width - 1), first = static_cast<int>(threadIdx.x) >> log2_width;
    const int step = static_cast<int>(blockDim.x) >> log2_width;
    uint32_t sums[8] = {};  // all, earlier
    if (quad < quads) {
      const auto* column = reinterpret_cast<const uint4*>(tiles.histograms) + quad;
#pragma unroll 4
      for (int t = first; t < tiles.tiles; t += step) {
        const uint4 counts = load_result(column + int64_t{t} * quads);
        const uint32_t keep = t < tile ? kAllLanes : 0;
        sums[0] += counts.x, sums[1] += counts.y, sums[2] += counts.z, sums[3] += counts.w;
        sums[4] += counts.x & keep, sums[5] += counts.y & keep, sums[6] += counts.z & keep, sums[7] += counts.w & keep;
      }
    }
    for (int distance = width; distance < kWarp; distance *= 2)  // lanes of a warp with the same bins
#pragma unroll
      for (int j = 0; j < 8; ++j) sums[j] += __shfl_xor_sync(kAllLanes, sums[j], distance);
    if (quad >= quads || lane_id() >= width || first >= tiles.tiles) return;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      atomicAdd(all + j * quads + quad, sums[j]);
      atomicAdd(earlier + j * quads + quad, sums[4 + j]);
    }
  }

  /// From the sums to start[] and next[]. Returns how many items there are in all bins. Synchronizes before its end.
  __device__ __forceinline__ uint32_t scan_bins() const {
    __shared__ uint32_t sum_of_warp[kMaxThreads / kWarp];
    const int log2_threads = 31 - __clz(static_cast<int>(blockDim.x)),
              share = (bins + (1 << log2_threads) - 1) >> log2_threads;
    const int begin = min(static_cast<int>(threadIdx.x) * share, bins), end = min(begin + share, bins);
    uint32_t own = 0;
#pragma unroll 1
    for (int bin = begin; bin < end; ++bin) own += all[slot(bin)];
    const uint32_t through = inclusive_scan(own);
    if (lane_id() == kWarp - 1) sum_of_warp[warp_id()] = through;
    __syncthreads();
    const uint32_t warp_sum = lane_id() < static_cast<int>(blockDim.x / kWarp) ? sum_of_warp[lane_id()] : 0;
    uint32_t position = through - own + __reduce_add_sync(kAllLanes, lane_id() < warp_id() ? warp_sum : 0);
    const uint32_t items = __reduce_add_sync(kAllLanes, warp_sum);
#pragma unroll 1
    for (int bin = begin; bin < end; ++bin) {
      start[bin] = position;
      next[bin] = position + earlier[slot(bin)];
      position += all[slot(bin)];
    }
    if (threadIdx.x == 0) start[bins] = items;
    __syncthreads();
    return items;
  }

  /// The bin that holds `position` < start[bins]: the last one that starts at or before it.
  __device__ __forceinline__ int bin_at(uint32_t position) const {
    int low = 0, high = bins;
    while (high - low > 1) {
      const int middle = (low + high) >> 1;
      (start[middle] <= position ? low : high) = middle;
    }
    return low;
  }
};

}  // namespace binmoe::cuda::device
