// Scatter backward: one pass over the tokens, a block each, then the empty rows of dy in the same grid (docs/cuda.md).
#include <algorithm>

#include "cuda/device/dot_kernels.cuh"
#include "cuda/device/dot_shifted.cuh"
#include "cuda/dots.h"
#include "cuda/launch_arithmetic.h"
#include "cuda/operations.h"
#include "cuda/row_formats.h"

namespace binmoe::cuda {
namespace {

/// The job as its kernels see it, before the tokens are cut into launches.
device::DotArguments arguments_of(const ScatterBackwardJob& job, int64_t vector_bytes) {
  const int64_t element_bytes = job.y.element_size(), row_bytes = job.y.cols * element_bytes;
  const Sizes& sizes = job.plan.sizes;
  return {.y = static_cast<const char*>(job.y.data),
          .grad = static_cast<const char*>(job.grad.data),
          .y_stride = job.y.stride * element_bytes,
          .grad_stride = job.grad.stride * element_bytes,
          .vectors = row_bytes / vector_bytes,
          .row_of_assignment = job.plan.row_of_assignment,
          .top_k = sizes.top_k,
          .weight_type = job.weights.type,
          .dw_type = job.dw.type,
          .weights = job.weights.data,
          .dw = job.dw.data,
          .dy = {static_cast<char*>(job.dy.data), job.dy.stride * element_bytes, row_bytes, job.plan.kept_per_expert,
                 sizes.num_experts, sizes.expert_capacity},
          .first_block = 0,
          .token_blocks = sizes.tokens};
}

/// Rows of dy that may be empty; 0 where there is no dy.
int64_t dy_rows(const device::EmptyRows& dy) {
  return dy.rows == nullptr ? 0 : int64_t{dy.num_experts} * dy.expert_capacity;
}

struct Geometry {
  int threads;
  int64_t zero_blocks;
  size_t shared_bytes;
};

/// Whole warps, at least one.
int warps_for(int64_t threads) {
  return static_cast<int>(std::max<int64_t>(divided_up(threads, 32), 1) * 32);
}

/// Zeroing as one front by a fixed number of blocks.
Geometry with_zero_blocks(int threads, const device::EmptyRows& dy, const Device& device) {
  const int64_t rows = dy_rows(dy);
  return {threads, device::zero_blocks(device.sms, rows * dy.row_bytes),
          rows == 0 ? 0 : device::zero_rows_shared_bytes(dy.num_experts)};
}

/// Token blocks, then zero blocks. No grid has room for both from 2^30 tokens on: then there are two launches.
template <class Kernel>
void launch(const char* name, Kernel kernel, device::DotArguments arguments, const Geometry& geometry,
            const Launcher& launcher) {
  constexpr int64_t kMostTokens = int64_t{1} << 30;
  const int64_t tokens = arguments.token_blocks;
  if (tokens > kMostTokens) {
    arguments.token_blocks = kMostTokens;
    launcher.launch(name, kernel, kMostTokens, geometry.threads, geometry.shared_bytes, arguments);
    arguments.first_block = kMostTokens;
    arguments.token_blocks = tokens - kMostTokens;
  }
  launcher.launch(name, kernel, arguments.token_blocks + geometry.zero_blocks, geometry.threads, geometry.shared_bytes,
                  arguments);
}

/// Many tokens. K >= 4: two rows of y in flight while two are in use. Two vectors a thread where a row is short enough
/// and a block's registers hold that twice on a multiprocessor, else four.
template <class Format, int kTopK>
void launch_token(const device::DotArguments& arguments, const Launcher& launcher) {
  constexpr int kRows = kTopK < 2 ? kTopK : 2;
  const auto launch_with = [&](auto kernel, int64_t vectors) {
    launch("dot_token_kernel", kernel, arguments,
           with_zero_blocks(warps_for(divided_up(arguments.vectors, vectors)), arguments.dy, launcher.device),
           launcher);
  };
  if constexpr (kTopK >= 4 && sizeof(typename Format::Bits) == 2)
    if (arguments.vectors <= 2 * 512)
      return launch_with(device::dot_token_kernel<Format, kTopK, kRows, 2, 512, 2, false>, 2);
  launch_with(device::dot_token_kernel<Format, kTopK, kRows, 4, 512, 1, false>, 4);
}

/// Few tokens: a block for every four assignments, all their rows in flight; parts of rows to zero dealt out to warps,
/// so that no scan comes before the zeroing.
template <class Format, int kTopK>
void launch_few_tokens(device::DotArguments arguments, const Launcher& launcher) {
  constexpr int kCount = kTopK < 4 ? kTopK : 4, kZeroBlocksPerSm = 3;
  const int threads = warps_for(divided_up(arguments.vectors, 4));
  const int64_t parts = dy_rows(arguments.dy) * device::parts_of_row(arguments.dy.row_bytes);
  arguments.token_blocks *= kTopK / kCount;
  launch("dot_token_kernel", device::dot_token_kernel<Format, kCount, kCount, 4, 512, 1, true>, arguments,
         {threads, std::min<int64_t>(divided_up(parts, threads / 32), kZeroBlocksPerSm * launcher.device.sms), 0},
         launcher);
}

template <class Format, class Access>
void launch_any(const device::DotArguments& arguments, const Launcher& launcher) {
  constexpr int64_t kVectors = device::kDotAnyVectors<Access>, kMostThreads = device::kDotAnyThreads<Access>;
  const int64_t turns = std::max<int64_t>(divided_up(arguments.vectors, kVectors * kMostThreads), 1);
  launch("dot_any_kernel", device::dot_any_kernel<Format, Access>, arguments,
         with_zero_blocks(warps_for(divided_up(arguments.vectors, turns * kVectors)), arguments.dy, launcher.device),
         launcher);
}

/// Rows of an odd length or at odd addresses.
template <class Format, int kRows, int kVectors>
void launch_shifted(const device::DotArguments& arguments, const Launcher& launcher) {
  const int wanted = warps_for(divided_up(divided_up(arguments.dy.row_bytes, sizeof(uint4)), kVectors));
  const int threads =
      std::clamp(wanted, device::ShiftedTurn<Format, kRows, kVectors>::kLeastThreads, device::kDotShiftedThreads);
  Geometry geometry = with_zero_blocks(threads, arguments.dy, launcher.device);
  geometry.shared_bytes = std::max(geometry.shared_bytes, device::shifted_shared_bytes(arguments.dy.row_bytes));
  launch("dot_shifted_kernel", device::dot_shifted_kernel<Format, kRows, kVectors>, arguments, geometry, launcher);
}

template <class Format, int kTopK>
void dots_of_vectors(const device::DotArguments& arguments, const Launcher& launcher) {
  constexpr int64_t kMostParts = int64_t{1} << 20;  // of rows to zero: more of them are better served by a scan
  const bool few = arguments.token_blocks <= int64_t{2} * launcher.device.sms &&
                   dy_rows(arguments.dy) * device::parts_of_row(arguments.dy.row_bytes) <= kMostParts;
  few ? launch_few_tokens<Format, kTopK>(arguments, launcher) : launch_token<Format, kTopK>(arguments, launcher);
}

template <class Format>
void dots_of_format(const ScatterBackwardJob& job, int64_t alignment, const Launcher& launcher) {
  using Bits = typename Format::Bits;
  constexpr int64_t kMostVectors = 4 * 512;
  const int64_t vector_bytes = alignment == sizeof(uint4) ? sizeof(uint4) : sizeof(Bits);
  const device::DotArguments arguments = arguments_of(job, vector_bytes);
  if (alignment < static_cast<int64_t>(sizeof(Bits)))
    return launch_any<Format, device::Anywhere<Bits>>(arguments, launcher);
  if (alignment < static_cast<int64_t>(sizeof(uint4)))
    return arguments.top_k == 1 ? launch_shifted<Format, 1, 4>(arguments, launcher)
                                : launch_shifted<Format, 2, 2>(arguments, launcher);
  if (runs_fit(job.plan, job.weights) && arguments.vectors <= kMostVectors) switch (arguments.top_k) {
      case 1:
        return dots_of_vectors<Format, 1>(arguments, launcher);
      case 2:
        return dots_of_vectors<Format, 2>(arguments, launcher);
      case 4:
        return dots_of_vectors<Format, 4>(arguments, launcher);
      case 8:
        return dots_of_vectors<Format, 8>(arguments, launcher);
      default:
        break;
    }
  launch_any<Format, device::Whole<uint4>>(arguments, launcher);
}

}  // namespace

void make_dots(const ScatterBackwardJob& job, const Launcher& launcher) {
  if (job.plan.sizes.tokens == 0) return;
  const int64_t alignment = common_alignment({job.y, job.grad, job.dy});
  with_row_format(job.y.type, [&]<class Format>(Format) { dots_of_format<Format>(job, alignment, launcher); });
}

void scatter_backward(const ScatterBackwardJob& job, const Launcher& launcher) {
  // Without tokens, dy is nothing but empty rows: gather writes those too.
  if (job.dw.data == nullptr || job.plan.sizes.tokens == 0)
    return gather({job.plan, job.grad, job.weights, job.dy}, launcher);
  make_dots(job, launcher);
}

}  // namespace binmoe::cuda
