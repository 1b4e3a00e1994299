// Gather, one block a multiprocessor, in rounds: fill shared memory with whole rows of x by bulk copies, wait for all
// of them, write each to its places; after the last round, zero. Reads come in bursts of 200 KB a multiprocessor, and
// writes advance as one front, because all blocks take neighbouring tokens at the same time. The reads of a round begin
// when the writers of the round before come to their last rows, so that their latency is hidden.
#pragma once

#include "cuda/device/bulk_copy.cuh"
#include "cuda/device/gather_arguments.cuh"
#include "cuda/device/launch.cuh"

namespace binmoe::cuda::device {

/// Assignments whose places a block holds at a time: a window of kPhaseAssignments / top_k tokens.
inline constexpr int kPhaseAssignments = 1024;

/// What a block zeroes at once, in bytes: with one block a multiprocessor, finding the next piece must be rare.
inline constexpr int kPhaseZeroPiece = 1 << 18;

/// Shared memory behind the slots for rows: the window's weights, places and list of tokens with a place.
constexpr int64_t phase_map_bytes(int64_t weight_bytes) {
  return kPhaseAssignments * (weight_bytes + 2 * 4);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/// A block's work. Rows of x stand in a ring of grid.rows_at_once slots; a round takes the next slots of the ring, at
/// most as many as leave the rows alone that are still being written: one a group of writers.
template <class Move, int kTopK>
struct GatherPhases {
  using Vector = typename Move::Vector;
  using Weight = typename Move::Weight;

  const GatherArguments& arguments;
  const GatherGrid& grid;
  char* slots;
  Weight* weights;       ///< of the window's assignments
  int32_t* places;       ///< likewise
  int32_t* list;         ///< the window's tokens that have a place, as numbers in the window
  BulkBarrier& arrived;  ///< a round's rows are in shared memory
  BulkBarrier& leaving;  ///< every warp of writers has come to its last row of the round
  int writers;           ///< threads; the warp after them loads
  int64_t first_token = 0;
  int slot = 0;         ///< of the round's first row
  uint32_t parity = 0;  ///< of the round

  __device__ __forceinline__ int top_k() const { return kTopK > 0 ? kTopK : arguments.top_k; }
  __device__ __forceinline__ int row_bytes() const { return static_cast<int>(arguments.y.row_bytes); }
  __device__ __forceinline__ int64_t token(int j) const { return first_token + int64_t{j} * gridDim.x; }
  __device__ __forceinline__ char* slot_of(int i) const {
    const int s = slot + i;
    return slots + (s < grid.rows_at_once ? s : s - grid.rows_at_once) * row_bytes();
  }
  __device__ __forceinline__ void next_round(int rows) {
    slot = slot + rows < grid.rows_at_once ? slot + rows : slot + rows - grid.rows_at_once;
    parity ^= 1;
  }

  /// The window's places and weights. By all threads.
  __device__ __forceinline__ void fetch_window(int tokens) {
    const int threads = static_cast<int>(blockDim.x);
#pragma unroll 1
    for (int f = static_cast<int>(threadIdx.x); f < tokens * top_k(); f += threads) {
      const int j = f / top_k();
      const int64_t a = token(j) * top_k() + (f - j * top_k());
      places[f] = load(arguments.row_of_assignment + a);
      weights[f] = Move::weight(arguments, a);
    }
  }

  /// Make the list, in order. By one warp; returns its length.
  __device__ __forceinline__ int list_used(int tokens) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    int count = 0;
#pragma unroll 1
    for (int begin = 0; begin < tokens; begin += 32) {
      const int j = begin + lane;
      int32_t all = -1;
      if (j < tokens) {
#pragma unroll(kTopK > 0 ? kTopK : 1)
        for (int k = 0; k < top_k(); ++k) all &= places[j * top_k() + k];
      }
      const unsigned used = __ballot_sync(~0u, all >= 0);
      if (all >= 0) list[count + __popc(used & ((1u << lane) - 1))] = j;
      count += __popc(used);
    }
    return count;
  }

  /// Bulk loads of `used` rows in rounds of `share`. By the warp after the writers.
  __device__ __forceinline__ void load_rounds(int used, int share) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll 1
    for (int begin = 0; begin < used; begin += share) {
      const int count = min(share, used - begin);
      leaving.wait(parity ^ 1);  // the round before; before the first round this does not wait
      if (lane == 0) arrived.expect(count * row_bytes());
      __syncwarp();
#pragma unroll 1
      for (int i = lane; i < count; i += 32)
        bulk_load(slot_of(i), arguments.x_row(token(list[begin + i])), row_bytes(), arrived);
      next_round(count);
    }
  }

  /// Write `used` rows, in rounds of `share`, to their places. By the writers, in groups of grid.threads_per_row.
  __device__ __forceinline__ void write_rounds(int used, int share) {
    const int thread = static_cast<int>(threadIdx.x), group = thread / grid.threads_per_row;
    const int groups = writers / grid.threads_per_row;
    const int in_group = thread - group * grid.threads_per_row;
#pragma unroll 1
    for (int begin = 0; begin < used; begin += share) {
      const int count = min(share, used - begin);
      arrived.wait(parity);
#pragma unroll 1
      for (int i = group, step_end = groups;; i += groups, step_end += groups) {
        if (step_end >= count) {
          __syncwarp();
          if (thread % 32 == 0) leaving.arrive();
        }
        if (i < count && group < groups) write_row(slot_of(i), list[begin + i] * top_k(), in_group);
        if (step_end >= count) break;
      }
      next_round(count);
    }
  }

  /// The row in a slot to the places of its assignments from `first` on. By a group.
  __device__ __forceinline__ void write_row(const char* row, int first, int in_group) {
    constexpr int kBytes = sizeof(Vector);
#pragma unroll 1
    for (int at = in_group * kBytes; at < row_bytes(); at += grid.threads_per_row * kBytes) {
      const Vector vector = *reinterpret_cast<const Vector*>(row + at);
#pragma unroll(kTopK > 0 ? kTopK : 1)
      for (int k = 0; k < top_k(); ++k) {
        const int32_t place = places[first + k];
        if (place >= 0)
          store_streaming(reinterpret_cast<Vector*>(arguments.y_row(place) + at),
                          Move::apply(vector, weights[first + k]));
      }
    }
  }
};

/// grid.blocks = all blocks; grid.rows_at_once slots; grid.threads_per_row writers write a row. Token j of window i of
/// a block: (i * window + j) * blocks + block. Shared memory: rows_at_once * row_bytes + phase_map_bytes(), at least
/// zero_rows_shared_bytes().
template <class Move, int kTopK>
__global__ void __launch_bounds__(1024, 1) gather_in_phases_kernel(const __grid_constant__ GatherArguments arguments,
                                                                   const __grid_constant__ GatherGrid grid) {
  extern __shared__ __align__(128) char shared[];
  __shared__ BulkBarrier arrived, leaving;
  __shared__ int shared_used;
  const int thread = static_cast<int>(threadIdx.x), writers = static_cast<int>(blockDim.x) - 32;
  const auto weights =
      reinterpret_cast<typename Move::Weight*>(shared + grid.rows_at_once * static_cast<int>(arguments.y.row_bytes));
  const auto places = reinterpret_cast<int32_t*>(weights + kPhaseAssignments);
  GatherPhases<Move, kTopK> phases = {arguments, grid,    shared, weights, places, places + kPhaseAssignments,
                                      arrived,   leaving, writers};
  const int window = kPhaseAssignments / phases.top_k();
  const int most = max(1, grid.rows_at_once - writers / grid.threads_per_row);
  if (thread == 0) {
    arrived.start(1);
    leaving.start(writers / 32);
  }
  let_next_start();
  wait_for_previous();

#pragma unroll 1
  for (int64_t token = blockIdx.x; token < arguments.tokens; token += int64_t{window} * gridDim.x) {
    phases.first_token = token;
    const auto left = static_cast<uint32_t>(arguments.tokens - 1 - token) / gridDim.x + 1;
    const int tokens = min(static_cast<int>(left), window);
    phases.fetch_window(tokens);
    __syncthreads();
    if (thread < 32) {
      const int count = phases.list_used(tokens);
      if (thread == 0) shared_used = count;
    }
    __syncthreads();
    const int used = shared_used, rounds = (used + most - 1) / most;
    const int share = rounds > 0 ? (used + rounds - 1) / rounds : 1;
    if (thread >= writers)
      phases.load_rounds(used, share);
    else
      phases.write_rounds(used, share);
    __syncthreads();
  }
  __syncthreads();
  zero_empty_rows(arguments.y, blockIdx.x, gridDim.x, reinterpret_cast<int32_t*>(shared), kPhaseZeroPiece);
}

#else

/// Never chosen below sm_90. Code for an older architecture alone, compiled by the driver for a newer one, would come
/// here.
template <class Move, int kTopK>
__global__ void gather_in_phases_kernel(const __grid_constant__ GatherArguments, const __grid_constant__ GatherGrid) {
  __trap();
}

#endif

}  // namespace binmoe::cuda::device
