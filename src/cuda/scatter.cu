// Scatter: the flat kernel while the tokens are few or K is small, a block per token for the rest; rows at odd
// addresses by shifted vectors (docs/cuda.md).
#include <algorithm>
#include <limits>

#include "cuda/device/scatter_kernels.cuh"
#include "cuda/device/scatter_shifted.cuh"
#include "cuda/launch_arithmetic.h"
#include "cuda/operations.h"
#include "cuda/row_formats.h"

namespace binmoe::cuda {
namespace {

constexpr int64_t kFlatLimit = std::numeric_limits<int32_t>::max();  // device::Divisor

/// Threads of a block that makes one row: whole warps, at most `most`, with nearly the same work in each turn.
int row_threads(int64_t vectors, int64_t vectors_per_thread, int64_t most) {
  const int64_t turns = divided_up(vectors, most * vectors_per_thread);
  return static_cast<int>(divided_up(divided_up(vectors, turns * vectors_per_thread), 32) * 32);
}

device::ScatterArguments arguments_of(const ScatterJob& job, int64_t vector_bytes) {
  const int64_t element_bytes = job.y.element_size();
  const int64_t vectors = job.out.cols * element_bytes / vector_bytes;
  const int64_t all_vectors = job.plan.sizes.tokens * vectors;
  return {static_cast<const char*>(job.y.data),
          static_cast<char*>(job.out.data),
          job.y.stride * element_bytes,
          job.out.stride * element_bytes,
          job.plan.row_of_assignment,
          job.weights.data,
          job.weights.type,
          job.plan.sizes.top_k,
          vectors,
          all_vectors,
          device::Divisor(all_vectors <= kFlatLimit ? static_cast<uint32_t>(vectors) : 1)};
}

template <class Format, int kTopK, int kVectors>
void launch_flat(const device::ScatterArguments& arguments, const Launcher& launcher) {
  constexpr int kThreads = kTopK == 2 ? 256 : 128;
  launcher.launch("scatter_flat_kernel", device::scatter_flat_kernel<Format, kTopK, kVectors>,
                  divided_up(arguments.all_vectors, kThreads * kVectors), kThreads, 0, arguments);
}

template <class Format, int kTopK>
void launch_by_token(const device::ScatterArguments& arguments, const Launcher& launcher) {
  launcher.launch("scatter_token_kernel", device::scatter_token_kernel<Format, kTopK>,
                  arguments.all_vectors / arguments.vectors, row_threads(arguments.vectors, 1, kTopK < 8 ? 256 : 128),
                  0, arguments);
}

/// arguments.vectors: elements.
template <class Format, int kTopK>
void launch_shifted(const device::ScatterArguments& arguments, const Launcher& launcher) {
  constexpr int kVectors = kTopK <= 2 ? 2 : 1;
  const int64_t vectors = divided_up(arguments.vectors * sizeof(typename Format::Bits), sizeof(uint4));
  launcher.launch("scatter_shifted_kernel", device::scatter_shifted_kernel<Format, kTopK, kVectors>,
                  arguments.all_vectors / arguments.vectors, row_threads(vectors, kVectors, 64), 0, arguments);
}

template <class Format, class Access, int kVectors>
void launch_any(const device::ScatterArguments& arguments, const Launcher& launcher) {
  launcher.launch("scatter_any_kernel", device::scatter_any_kernel<Format, Access, kVectors>,
                  arguments.all_vectors / arguments.vectors, row_threads(arguments.vectors, kVectors, 128), 0,
                  arguments);
}

/// A block per token would not fill the device.
bool few_tokens(int64_t tokens, const Device& device) {
  constexpr int kThreadsPerToken = 128, kThreadsPerSm = 2048;
  return tokens * kThreadsPerToken <= int64_t{device.sms} * kThreadsPerSm;
}

template <class Format>
void scatter_vectors(const ScatterJob& job, const Launcher& launcher) {
  const device::ScatterArguments arguments = arguments_of(job, sizeof(uint4));
  const bool flat = arguments.all_vectors <= kFlatLimit, runs = runs_fit(job.plan, job.weights);
  const bool few = flat && few_tokens(job.plan.sizes.tokens, launcher.device);
  const int top_k = job.plan.sizes.top_k;
  if (runs && flat && top_k == 1) return launch_flat<Format, 1, 2>(arguments, launcher);
  if (runs && flat && top_k == 2) return launch_flat<Format, 2, 2>(arguments, launcher);
  if (runs && few && top_k == 4) return launch_flat<Format, 4, 1>(arguments, launcher);
  if (runs && few && top_k == 8) return launch_flat<Format, 8, 1>(arguments, launcher);
  if (runs && top_k == 4) return launch_by_token<Format, 4>(arguments, launcher);
  if (runs && top_k == 8) return launch_by_token<Format, 8>(arguments, launcher);
  launch_any<Format, device::Whole<uint4>, 1>(arguments, launcher);
}

/// Rows of an odd length or at odd addresses.
template <class Format>
void scatter_elements(const ScatterJob& job, const Launcher& launcher) {
  using Bits = typename Format::Bits;
  const device::ScatterArguments arguments = arguments_of(job, sizeof(Bits));
  if (runs_fit(job.plan, job.weights)) switch (job.plan.sizes.top_k) {
      case 1:
        return launch_shifted<Format, 1>(arguments, launcher);
      case 2:
        return launch_shifted<Format, 2>(arguments, launcher);
      case 4:
        return launch_shifted<Format, 4>(arguments, launcher);
      case 8:
        return launch_shifted<Format, 8>(arguments, launcher);
      default:
        break;
    }
  launch_any<Format, device::Whole<Bits>, 4>(arguments, launcher);
}

}  // namespace

void scatter(const ScatterJob& job, const Launcher& launcher) {
  if (job.plan.sizes.tokens == 0 || job.out.cols == 0) return;
  const int64_t alignment = common_alignment({job.y, job.out});
  with_row_format(job.y.type, [&]<class Format>(Format) {
    using Bits = typename Format::Bits;
    if (alignment == sizeof(uint4)) return scatter_vectors<Format>(job, launcher);
    if (alignment >= static_cast<int64_t>(sizeof(Bits))) return scatter_elements<Format>(job, launcher);
    launch_any<Format, device::Anywhere<Bits>, 1>(arguments_of(job, sizeof(Bits)), launcher);
  });
}

}  // namespace binmoe::cuda
