// The kernels of plan: count the tiles of the first pass; one pass of a stable radix sort; both in one for few ids.
#pragma once

#include <cstdint>

#include "cuda/device/launch.cuh"
#include "cuda/device/plan_items.cuh"
#include "cuda/device/plan_partition.cuh"
#include "cuda/device/plan_sinks.cuh"

namespace binmoe::cuda::device {

/// Memory that a kernel sets to zero for those after it; each block its part.
struct Zeroed {
  uint32_t* words;
  int64_t count;

  __device__ __forceinline__ void clear() const {
#pragma unroll 1
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x)
      words[i] = 0;
  }
};

/// The histogram and the status of every tile. Several items a thread make small blocks, beside which those of the next
/// kernel find room.
template <int kItems, class Source>
__global__ void __launch_bounds__(kMaxThreads, blocks_per_sm(kMaxThreads, 2))
    count_kernel(const __grid_constant__ Source source, const __grid_constant__ Tiles tiles, uint32_t* histograms,
                 TileStatus* status, const __grid_constant__ Zeroed histograms_after,
                 const __grid_constant__ Zeroed expert_counts) {
  extern __shared__ uint32_t shared_words[];
  __shared__ TileStatus bad;
  const auto row = static_cast<unsigned>(row_words(tiles.bins));
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < row; i += blockDim.x) shared_words[i] = 0;
  if (threadIdx.x == 0) bad = {0, kNoAssignment};
  wait_for_previous();
  let_next_start();  // not before the wait: the next kernel reads the ids before it waits
  __syncthreads();
  const uint32_t begin = static_cast<uint32_t>(blockIdx.x) << tiles.log2_size;
  const uint32_t end = min(begin + (1u << tiles.log2_size), tiles.count);
  for (uint32_t first = begin; first < end; first += blockDim.x * kItems) {
    Items<kItems, typename Source::Value> items;
    source.load(first + static_cast<uint32_t>(warp_id() * kItems * kWarp + lane_id()), items);
#pragma unroll
    for (int i = 0; i < kItems; ++i)
      if (items.digit[i] >= 0) atomicAdd(shared_words + items.digit[i], 1u);
    note_bad(items, &bad);
  }
  __syncthreads();
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < row; i += blockDim.x) histograms[int64_t{blockIdx.x} * row + i] = shared_words[i];
  if (threadIdx.x == 0) status[blockIdx.x] = bad;
  histograms_after.clear();
  expert_counts.clear();
}

/// One pass: every block partitions the items of its tile, a chunk at a time.
template <int kItems, class Source, class Sink>
__global__ void __launch_bounds__(kMaxThreads, 1)
    partition_kernel(const __grid_constant__ Source source, const __grid_constant__ Sink sink,
                     const __grid_constant__ Tiles tiles, const __grid_constant__ Zeroed histograms_after) {
  extern __shared__ uint32_t shared_words[];
  const Partition partition(shared_words, tiles.bins);
  partition.clear_sums();
  let_next_start();
  if constexpr (!Source::kReadsInputs) wait_for_previous();
  const uint32_t begin = static_cast<uint32_t>(blockIdx.x) << tiles.log2_size;
  const uint32_t end = min(begin + (1u << tiles.log2_size), tiles.count);
  uint32_t first = begin, items_in_all = 0;
  TileStatus status = {};
  do {
    const bool is_first = first == begin;
    partition.clear_own_counts();
    Items<kItems, typename Source::Value> items;
    typename Sink::Out out[kItems];
    uint32_t rank[kItems];
    source.load(first + static_cast<uint32_t>(warp_id() * kItems * kWarp + lane_id()), items);
    sink.prepare(items, out);
    if constexpr (!Source::kReadsInputs) {
      if (is_first) {
        status = sink.load_status();
        __syncthreads();
        partition.sum_tiles(tiles, static_cast<int>(blockIdx.x));
      }
    }
    partition.rank_in_warp(items.digit, rank);
    __syncthreads();
    partition.scan_chunk(is_first);
    if (is_first) {
      if constexpr (Source::kReadsInputs) {  // all the work above needs nothing but the inputs
        wait_for_previous();
        status = sink.load_status();
        partition.sum_tiles(tiles, static_cast<int>(blockIdx.x));
      }
      __syncthreads();
      items_in_all = partition.scan_bins();
    } else {
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int digit = items.digit[i];
      const uint32_t position =
          digit >= 0 ? partition.next[digit] + partition.own_counts()[digit] + rank[i] : kNoAssignment;
      sink.put(partition, items.assignment[i], digit, position, out[i]);
    }
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const uint32_t position = first + static_cast<uint32_t>(i) * blockDim.x + threadIdx.x;
      if (position < tiles.count) sink.fill(partition, position, items_in_all);
    }
    first += blockDim.x * kItems;
  } while (first < end);
  histograms_after.clear();
  sink.finish(partition, status);
}

/// A plan of few ids in one launch: every block counts them all, and places those of its tile.
__global__ void __launch_bounds__(kMaxThreads, 1)
    count_and_place_kernel(const __grid_constant__ IdSource source, const __grid_constant__ PlanSink sink,
                           const __grid_constant__ Tiles tiles) {
  constexpr int kAtOnce = 4;
  extern __shared__ uint32_t shared_words[];
  __shared__ TileStatus bad;
  const Partition partition(shared_words, tiles.bins);
  partition.clear_sums();
  partition.clear_own_counts();
  if (threadIdx.x == 0) bad = {0, kNoAssignment};
  wait_for_previous();
  let_next_start();
  __syncthreads();
  const uint32_t begin = static_cast<uint32_t>(blockIdx.x) * blockDim.x;
  Items<1, uint32_t> own;
  uint32_t rank[1];
#pragma unroll 1
  for (uint32_t first = 0; first < tiles.count; first += blockDim.x * kAtOnce) {
    Items<kAtOnce, uint32_t> items;
    const uint32_t position = first + static_cast<uint32_t>(warp_id() * kAtOnce * kWarp + lane_id());
    source.load(position, items);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (items.digit[i] < 0) continue;
      const int slot = partition.slot(items.digit[i]);
      atomicAdd(partition.all + slot, 1u);
      if (position + static_cast<uint32_t>(i * kWarp) < begin) atomicAdd(partition.earlier + slot, 1u);
    }
    note_bad(items, &bad);
  }
  source.load(begin + threadIdx.x, own);  // a hit now
  partition.rank_in_warp(own.digit, rank);
  __syncthreads();
  partition.scan_chunk(true);
  __syncthreads();
  const uint32_t items_in_all = partition.scan_bins();
  const int digit = own.digit[0];
  const uint32_t position =
      digit >= 0 ? partition.next[digit] + partition.own_counts()[digit] + rank[0] : kNoAssignment;
  sink.put(partition, own.assignment[0], digit, position, 0);
  if (begin + threadIdx.x < tiles.count) sink.fill(partition, begin + threadIdx.x, items_in_all);
  sink.finish(partition,
              threadIdx.x / kWarp == blockDim.x / kWarp - 1 && lane_id() == 0 ? bad : TileStatus{0, kNoAssignment});
}

}  // namespace binmoe::cuda::device
