// Zeroing of the empty rows of a binned tensor, for gather and scatter_backward: in long stretches, as one front over
// the whole tensor, apart from everything that reads (docs/cuda.md: what limits everything).
#pragma once

#include <cstdint>

#include "cuda/device/vectors.cuh"

namespace binmoe::cuda::device {

struct EmptyRows {
  char* rows;
  int64_t stride_bytes, row_bytes;
  const int32_t* kept_per_expert;
  int32_t num_experts, expert_capacity;

  __device__ __forceinline__ int64_t first_row(int64_t expert) const { return expert * expert_capacity; }
};

/// More experts than this are not scanned: every warp takes whole experts in turn.
inline constexpr int kMaxScannedExperts = 4096;
/// What a block zeroes at once, in whole rows: about so many bytes.
inline constexpr int kZeroPiece = 32768;

/// Shared memory that zero_empty_rows() needs, in bytes.
constexpr size_t zero_rows_shared_bytes(int num_experts) {
  return num_experts <= kMaxScannedExperts ? static_cast<size_t>(num_experts) * sizeof(int32_t) : 0;
}

/// Blocks that zero, of a grid: 16 a multiprocessor, fewer where there is little to do.
constexpr int64_t zero_blocks(int sms, int64_t tensor_bytes) {
  constexpr int64_t kLeastBytes = 16384;
  const int64_t wanted = (tensor_bytes + kLeastBytes - 1) / kLeastBytes;
  return wanted < 16 * sms ? wanted : 16 * sms;
}

/// Zero [p, p + bytes), any alignment, by `threads` >= 16 threads. A warp's stores begin at multiples of 128 bytes:
/// every sector that is written in part costs a read. kStreaming: stores are .cs; a gather is faster with them, a
/// backward without.
template <bool kStreaming = true>
__device__ __forceinline__ void zero_stretch(char* p, int64_t bytes, int thread, int threads) {
  const int64_t to_aligned = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(p) & 15);
  const int64_t head = to_aligned < bytes ? to_aligned : bytes;
  const int64_t tail = (bytes - head) & 15;
  if (thread < head) p[thread] = 0;
  if (thread < tail) p[bytes - tail + thread] = 0;
  const auto vectors = reinterpret_cast<uint4*>(p + head);
  const int64_t count = (bytes - head) >> 4;
  int64_t i = thread - static_cast<int>((reinterpret_cast<uintptr_t>(vectors) & 127) >> 4);
  if (i < 0) i += threads;
#pragma unroll 4
  for (; i < count; i += threads) {
    if constexpr (kStreaming)
      store_streaming(vectors + i, uint4{});
    else
      vectors[i] = uint4{};
  }
}

/// tails[e] = empty rows of experts 0..e. Called by all threads of the block; returns the sum.
__device__ __forceinline__ int32_t scan_tails(const EmptyRows& empty, int32_t* tails) {
  __shared__ int32_t sum_of_warp[32];
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
#pragma unroll 4
  for (int e = thread; e < empty.num_experts; e += threads)
    tails[e] = empty.expert_capacity - load(empty.kept_per_expert + e);
  __syncthreads();
  const int share = (empty.num_experts + threads - 1) / threads;
  const int begin = min(thread * share, empty.num_experts), end = min(begin + share, empty.num_experts);
  int32_t own = 0;
#pragma unroll 1
  for (int e = begin; e < end; ++e) own += tails[e];
  int32_t sum = own;  // of this lane and those before it
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int32_t other = __shfl_up_sync(~0u, sum, distance);
    if (thread % 32 >= distance) sum += other;
  }
  if (thread % 32 == 31) sum_of_warp[thread / 32] = sum;
  __syncthreads();
  int32_t total = 0, before = sum - own;
#pragma unroll 1
  for (int warp = 0; warp < threads / 32; ++warp) {
    if (warp < thread / 32) before += sum_of_warp[warp];
    total += sum_of_warp[warp];
  }
#pragma unroll 1
  for (int e = begin; e < end; ++e) tails[e] = before += tails[e];
  __syncthreads();
  return total;
}

/// Rows [row, end) of all empty rows, counted through: one stretch an expert where rows are dense.
template <bool kStreaming>
__device__ __forceinline__ void zero_piece(const EmptyRows& empty, const int32_t* tails, int32_t row, int32_t end) {
  const bool dense = empty.stride_bytes == empty.row_bytes;
  int expert = 0;
  for (int last = empty.num_experts - 1; expert < last;) {
    const int middle = (expert + last) / 2;
    if (tails[middle] > row)
      last = middle;
    else
      expert = middle + 1;
  }
  while (row < end) {
    while (tails[expert] <= row) ++expert;
    const int32_t stop = min(end, dense ? tails[expert] : row + 1);
    char* first = empty.rows + (empty.first_row(expert + 1) - tails[expert] + row) * empty.stride_bytes;
    zero_stretch<kStreaming>(first, (stop - row) * empty.row_bytes, static_cast<int>(threadIdx.x),
                             static_cast<int>(blockDim.x));
    row = stop;
  }
}

/// Zero the empty rows, as worker (a block) `worker` of `workers`. Called by all threads of the block; blockDim.x is a
/// multiple of 32. tails: zero_rows_shared_bytes() of shared memory. Not inlined: its registers are not the caller's.
template <bool kStreaming = true>
static __device__ __noinline__ void zero_empty_rows(const EmptyRows& empty, int64_t worker, int64_t workers,
                                                    int32_t* tails, int piece_bytes = kZeroPiece) {
  if (empty.num_experts > kMaxScannedExperts) {
    const int64_t warps = blockDim.x / 32;
#pragma unroll 1
    for (int64_t e = worker * warps + threadIdx.x / 32; e < empty.num_experts; e += workers * warps) {
      const int64_t kept_end = empty.first_row(e) + load(empty.kept_per_expert + e), end = empty.first_row(e + 1);
      const bool dense = empty.stride_bytes == empty.row_bytes;
      const int64_t rows_at_once = dense ? end - kept_end : 1;
      for (int64_t row = kept_end; row < end; row += rows_at_once)
        zero_stretch<kStreaming>(empty.rows + row * empty.stride_bytes, rows_at_once * empty.row_bytes,
                                 static_cast<int>(threadIdx.x % 32), 32);
    }
    return;
  }
  const int64_t count = scan_tails(empty, tails);
  const int64_t piece = piece_bytes > empty.row_bytes ? piece_bytes / empty.row_bytes : 1;
#pragma unroll 1
  for (int64_t row = worker * piece; row < count; row += workers * piece)
    zero_piece<kStreaming>(empty, tails, static_cast<int32_t>(row),
                           static_cast<int32_t>(row + piece < count ? row + piece : count));
}

/// Parts of a row that zero_part_if_empty() takes: 2048 bytes each.
__host__ __device__ constexpr int64_t parts_of_row(int64_t row_bytes) {
  return (row_bytes + 2047) / 2048;
}

/// Zero part item % parts of row item / parts if that row is empty; by a warp. For few rows (parts of all of them below
/// 2^31): no scan to wait for.
__device__ __forceinline__ void zero_part_if_empty(const EmptyRows& empty, uint32_t item) {
  const auto parts = static_cast<uint32_t>(parts_of_row(empty.row_bytes));
  const auto capacity = static_cast<uint32_t>(empty.expert_capacity);
  const uint32_t row = item / parts, expert = row / capacity;
  if (expert >= static_cast<uint32_t>(empty.num_experts)) return;
  if (static_cast<int32_t>(row - expert * capacity) < load(empty.kept_per_expert + expert)) return;
  const int64_t begin = int64_t{item - row * parts} * 2048, rest = empty.row_bytes - begin;
  zero_stretch(empty.rows + row * empty.stride_bytes + begin, rest < 2048 ? rest : 2048,
               static_cast<int>(threadIdx.x % 32), 32);
}

/// Zero the parts of empty rows, worker (a warp) `worker` of `workers` taking every workers-th part: 32 of them are
/// looked up at once. parts * rows + 32 * workers below 2^32.
__device__ __forceinline__ void zero_parts(const EmptyRows& empty, uint32_t worker, uint32_t workers) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const auto parts = static_cast<uint32_t>(parts_of_row(empty.row_bytes));
  const auto capacity = static_cast<uint32_t>(empty.expert_capacity);
  const uint32_t items = parts * capacity * static_cast<uint32_t>(empty.num_experts);
  for (uint32_t first = worker; first < items; first += 32 * workers) {
    const uint32_t item = first + lane * workers, row = item / parts, expert = row / capacity;
    const bool is_empty =
        item < items && static_cast<int32_t>(row - expert * capacity) >= load(empty.kept_per_expert + expert);
    for (uint32_t left = __ballot_sync(~0u, is_empty); left != 0; left &= left - 1) {
      const uint32_t next = first + (__ffs(static_cast<int>(left)) - 1) * workers;
      const int64_t begin = int64_t{next % parts} * 2048, rest = empty.row_bytes - begin;
      zero_stretch(empty.rows + next / parts * empty.stride_bytes + begin, rest < 2048 ? rest : 2048, lane, 32);
    }
  }
}

}  // namespace binmoe::cuda::device
