// y[row_of_assignment[a]] = w[a] * x[a / top_k]; empty rows are zero. One launch; the kernel is chosen by sizes and
// alignment alone. Which design wins where, and by how much: docs/cuda.md.
#include <algorithm>

#include "cuda/device/gather_by_row.cuh"
#include "cuda/device/gather_by_token.cuh"
#include "cuda/device/gather_few_tokens.cuh"
#include "cuda/device/gather_in_phases.cuh"
#include "cuda/device/gather_shifted.cuh"
#include "cuda/operations.h"

namespace binmoe::cuda {
namespace {

using device::Anywhere;
using device::Copy;
using device::GatherArguments;
using device::GatherGrid;
using device::Scale;
using device::Whole;

enum class Design {
  few_tokens,   // decode
  by_row,       // top_k = 1, a copy
  by_token,     // top_k below 8, and what in_phases cannot take
  in_phases,    // top_k >= 8
  shifted,      // rows that are not aligned to 16 bytes (y: 32)
  elementwise,  // weighted rows of y that are not aligned to their elements
};

struct Choice {
  Design design;
  GatherGrid grid;
  int64_t blocks;
  int threads;
  size_t shared_bytes;
};

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// Whole warps for `vectors` vectors, `vectors_per_thread` each; at most a block.
int threads_for(int64_t vectors, int vectors_per_thread) {
  return static_cast<int>(std::clamp<int64_t>(ceil_div(vectors, 32 * vectors_per_thread) * 32, 32, 1024));
}

/// Blocks of at least 128 threads, for rows that take `threads_per_row` each.
GatherGrid rows_in_blocks(int64_t rows, int threads_per_row) {
  const int rows_at_once = std::max(1, 128 / threads_per_row);
  return {ceil_div(rows, rows_at_once), threads_per_row, rows_at_once};
}

/// Blocks of a grid of which `blocks` move rows and the rest zero.
int64_t with_zero_blocks(const GatherArguments& job, const Device& device, int64_t blocks) {
  constexpr int64_t kMaxBlocks = (int64_t{1} << 31) - 1;
  const int64_t bytes = int64_t{job.y.num_experts} * job.y.expert_capacity * job.y.row_bytes;
  return blocks + std::clamp<int64_t>(kMaxBlocks - blocks, 1, device::zero_blocks(device.sms, bytes));
}

/// Shared memory of a block, so that no more than `blocks` share a multiprocessor: more mix more reads into the writes.
/// zero_empty_rows() uses the first of it.
size_t shared_for_occupancy(const GatherArguments& job, const Device& device, size_t blocks) {
  constexpr size_t kReservedPerBlock = 1024, kStaticShared = 256;
  return std::max(device.shared_per_sm / blocks - kReservedPerBlock - kStaticShared,
                  device::zero_rows_shared_bytes(job.y.num_experts));
}

Choice by_token(const GatherArguments& job, const Device& device, Design design, int64_t vector_bytes) {
  const GatherGrid grid =
      rows_in_blocks(job.tokens, threads_for(job.y.row_bytes / vector_bytes, device::kVectorsPerThread));
  return {design, grid, with_zero_blocks(job, device, grid.blocks), grid.threads_per_row * grid.rows_at_once,
          shared_for_occupancy(job, device, job.top_k >= 4 ? 8 : 10)};
}

Choice by_row(const GatherArguments& job, const Device& device) {
  const int64_t rows = int64_t{job.y.num_experts} * job.y.expert_capacity;
  const GatherGrid grid = rows_in_blocks(rows, threads_for(job.y.row_bytes / 16, device::kRowVectorsPerThread));
  return {Design::by_row, grid, with_zero_blocks(job, device, grid.blocks), grid.threads_per_row * grid.rows_at_once,
          shared_for_occupancy(job, device, 12)};
}

Choice few_tokens(const GatherArguments& job) {
  const int64_t parts = device::parts_of_row(job.y.row_bytes);
  const int64_t row_parts = int64_t{job.y.num_experts} * job.y.expert_capacity * parts;
  const GatherGrid grid = {job.tokens * parts, device::kFewTokensThreads, 1};
  return {Design::few_tokens, grid, grid.blocks + ceil_div(row_parts, device::kFewTokensThreads / 32),
          device::kFewTokensThreads, 0};
}

Choice shifted(const GatherArguments& job, const Device& device) {
  const int64_t piece = std::min<int64_t>(job.y.row_bytes, device::kShiftedPiece);
  const int threads = threads_for(ceil_div(piece, 16), 4);
  return {Design::shifted,
          {job.tokens, threads, 1},
          with_zero_blocks(job, device, job.tokens),
          threads,
          std::max(device::shifted_shared_bytes(job.y.row_bytes), device::zero_rows_shared_bytes(job.y.num_experts))};
}

/// Slots for rows of in_phases; 0 where it does not pay: too few, or tokens for less than 8 a block.
int64_t slots_for_rows(const GatherArguments& job, const Device& device, int64_t weight_bytes) {
  constexpr int64_t kStaticShared = 512, kLeastSlots = 12;
  if (device.major < 9 || job.top_k < 8 || job.top_k > 64 || job.tokens < 8 * device.sms) return 0;
  const int64_t room =
      static_cast<int64_t>(device.shared_per_block) - kStaticShared - device::phase_map_bytes(weight_bytes);
  const int64_t slots = room / job.y.row_bytes;
  return slots < kLeastSlots || room < 131072 ? 0 : slots;
}

Choice in_phases(const GatherArguments& job, const Device& device, int64_t slots, int64_t weight_bytes) {
  // A vector of a row a thread, two rows at once where they are short, and a warp that loads.
  constexpr int64_t kMaxWriters = 992, kWriters = 512;
  const int64_t vectors = job.y.row_bytes / 16;
  const int64_t threads_per_row = ceil_div(vectors, ceil_div(vectors, kMaxWriters));
  const int64_t groups = std::max<int64_t>(1, kWriters / threads_per_row);
  const int64_t threads = ceil_div(groups * threads_per_row, 32) * 32 + 32;
  slots = std::min(slots, ceil_div(job.tokens, device.sms) + groups);
  const auto shared_bytes = static_cast<size_t>(slots * job.y.row_bytes + device::phase_map_bytes(weight_bytes));
  return {Design::in_phases,
          {device.sms, static_cast<int32_t>(threads_per_row), static_cast<int32_t>(slots)},
          device.sms,
          static_cast<int>(threads),
          std::max(shared_bytes, device::zero_rows_shared_bytes(job.y.num_experts))};
}

/// element_bytes: 0 for a copy. weight_bytes: of a weight in the arithmetic's type.
Choice choose(const GatherArguments& job, const Device& device, int64_t element_bytes, int64_t weight_bytes) {
  const int64_t y_bits = static_cast<int64_t>(reinterpret_cast<uintptr_t>(job.y.rows)) | job.y.stride_bytes;
  const int64_t x_bits = static_cast<int64_t>(reinterpret_cast<uintptr_t>(job.x)) | job.x_stride_bytes;
  // Half a sector of 32 bytes must not be written alone, so a multiple of 16 is not enough for y.
  if (x_bits % 16 != 0 || (y_bits | job.y.row_bytes) % 32 != 0) {
    if (element_bytes > 0 && y_bits % element_bytes != 0)
      return by_token(job, device, Design::elementwise, element_bytes);
    return shifted(job, device);
  }
  constexpr int64_t kFewRowParts = 1 << 20;
  const int64_t row_parts = int64_t{job.y.num_experts} * job.y.expert_capacity * device::parts_of_row(job.y.row_bytes);
  if (job.tokens <= 2 * device.sms && row_parts <= kFewRowParts) return few_tokens(job);
  if (job.top_k == 1 && job.weights == nullptr) return by_row(job, device);
  if (const int64_t slots = slots_for_rows(job, device, weight_bytes); slots > 0)
    return in_phases(job, device, slots, weight_bytes);
  return by_token(job, device, Design::by_token, 16);
}

template <class Kernel>
void launch(const Launcher& launcher, const char* name, Kernel kernel, const Choice& choice,
            const GatherArguments& job) {
  launcher.launch(name, kernel, choice.blocks, choice.threads, choice.shared_bytes, job, choice.grid);
}

/// MoveOver<Access>: the copy or the scaling of one format; Unit: the smallest piece of a row that it moves alone.
template <template <class> class MoveOver, class Unit>
void launch_design(const Launcher& launcher, const Choice& choice, const GatherArguments& job) {
  using Move = MoveOver<Whole<uint4>>;
  const int top_k = job.top_k;
  switch (choice.design) {
    case Design::few_tokens:
      return launch(launcher, "gather_few_tokens_kernel",
                    top_k == 8 ? device::gather_few_tokens_kernel<Move, 8> : device::gather_few_tokens_kernel<Move, 0>,
                    choice, job);
    case Design::by_row:
      return launch(launcher, "gather_by_row_kernel", device::gather_by_row_kernel<Whole<uint4>>, choice, job);
    case Design::by_token:
      return launch(launcher, "gather_by_token_kernel",
                    top_k == 1   ? device::gather_by_token_kernel<Move, 1>
                    : top_k == 2 ? device::gather_by_token_kernel<Move, 2>
                    : top_k == 4 ? device::gather_by_token_kernel<Move, 4>
                                 : device::gather_by_token_kernel<Move, 0>,
                    choice, job);
    case Design::in_phases:
      return launch(launcher, "gather_in_phases_kernel",
                    top_k == 8 ? device::gather_in_phases_kernel<Move, 8> : device::gather_in_phases_kernel<Move, 0>,
                    choice, job);
    case Design::shifted:
      return launch(launcher, "gather_shifted_kernel", device::gather_shifted_kernel<Move, MoveOver<Whole<Unit>>>,
                    choice, job);
    case Design::elementwise:
      if constexpr (sizeof(Unit) > 1)  // a copy has no elements
        launch(launcher, "gather_by_token_kernel", device::gather_by_token_kernel<MoveOver<Anywhere<Unit>>, 0>, choice,
               job);
      return;
  }
}

template <class Format>
struct ScaleTo {
  template <class Access>
  using Over = Scale<Access, Format>;
  using Unit = typename Format::Bits;
};

template <class Format>
void launch_scaled(const Launcher& launcher, const GatherArguments& job) {
  const Choice choice = choose(job, launcher.device, sizeof(typename Format::Bits), sizeof(typename Format::Real));
  launch_design<ScaleTo<Format>::template Over, typename Format::Bits>(launcher, choice, job);
}

}  // namespace

void gather(const GatherJob& job, const Launcher& launcher) {
  const ConstPlanView& plan = job.plan;
  const int64_t element_bytes = job.x.element_size();
  const GatherArguments arguments = {
      .x = static_cast<const char*>(job.x.data),
      .x_stride_bytes = job.x.stride * element_bytes,
      .y = {static_cast<char*>(job.y.data), job.y.stride * element_bytes, job.y.cols * element_bytes,
            plan.kept_per_expert, plan.sizes.num_experts, plan.sizes.expert_capacity},
      .row_of_assignment = plan.row_of_assignment,
      .indices = plan.indices,
      .bins = plan.bins,
      .tokens_per_expert = plan.tokens_per_expert,
      .weights = job.weights.data,
      .weight_type = job.weights.type,
      .tokens = plan.sizes.tokens,
      .top_k = plan.sizes.top_k,
  };
  if (plan.sizes.expert_rows() == 0 || arguments.y.row_bytes == 0) return;
  if (arguments.weights == nullptr)
    return launch_design<Copy, uint8_t>(launcher, choose(arguments, launcher.device, 0, sizeof(device::NoWeight)),
                                        arguments);
  switch (job.x.type) {
    case DType::f32:
      return launch_scaled<device::F32>(launcher, arguments);
    case DType::f64:
      return launch_scaled<device::F64>(launcher, arguments);
    case DType::bf16:
      return launch_scaled<device::BF16>(launcher, arguments);
    case DType::f16:
      return launch_scaled<device::F16>(launcher, arguments);
    case DType::bytes:
      return;  // bytes have no weights
  }
}

}  // namespace binmoe::cuda
