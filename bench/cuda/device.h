// What the benchmark stands on: checked calls, one block of device memory, the yardstick, and times by CUDA graphs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <vector>

namespace binmoe::bench {

/// Throws std::runtime_error with the place and CUDA's text unless `result` is cudaSuccess.
void check_cuda(cudaError_t result, const std::source_location& place = std::source_location::current());

/// One block of device memory.
class Block {
 public:
  explicit Block(size_t bytes);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  size_t bytes_;
};

/// Two buffers of 4 GiB and their cudaMemcpyAsync from one to the other: what shares are shares of.
class DeviceCopy {
 public:
  explicit DeviceCopy(cudaStream_t stream);

  /// Bytes read and written per microsecond; median of 11.
  double bytes_per_us() const;

 private:
  cudaStream_t stream_;
  Block from_, to_;
};

/// How the calls of a graph follow each other.
///   full     a call begins when the one before has ended
///   captured as capture recorded it: a call may be a dependent launch, begun while the one before still runs
/// Kernels inside a call are always as captured.
enum class Edges { full, captured };

/// Microseconds of a call: the median over replays and the quartiles.
struct Timing {
  double us = 0, low = 0, high = 0;
};

/// Steps that make up a call; each takes the index of the buffer set.
using Steps = std::vector<std::function<void(int64_t set)>>;

/// Replay a graph of calls on set 0, 1, ..., sets - 1, 0, ... (at least 24 calls and about 2 ms) and time each replay
/// by events: 30 times, fewer (at least 8) when that would take more than 0.2 s.
Timing time_calls(cudaStream_t stream, const Steps& steps, int64_t sets, Edges edges);

}  // namespace binmoe::bench
