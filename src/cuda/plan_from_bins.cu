// Plan from sorted bins of elsewhere. One kernel writes what stands by expert and empties the map, one what stands by
// position. The arrays are not checked here, so whatever they hold, no address and no row outside the plan is made of
// it: bins are taken as if cut to [0, count], and an index outside [0, T*K) becomes -1 and gets no row.
#include <algorithm>

#include "cuda/device/launch.cuh"
#include "cuda/device/vectors.cuh"
#include "cuda/operations.h"

namespace binmoe::cuda {
namespace {

constexpr int kThreads = 256;

struct BinsJob {
  const int32_t *indices, *bins;
  int32_t count;        // of indices
  int32_t assignments;  // T*K
  PlanView out;

  /// Where expert `expert` ends in the sorted order; -1 is the one before the first.
  __device__ __forceinline__ int32_t end_of(int32_t expert) const {
    return expert < 0 ? 0 : min(max(device::load(bins + expert), 0), count);
  }
};

__global__ void __launch_bounds__(kThreads) put_experts_kernel(const __grid_constant__ BinsJob job) {
  device::wait_for_previous();
  device::let_next_start();  // not before the wait: the next kernel reads the bins before it waits
  const PlanView& out = job.out;
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index < job.assignments) out.row_of_assignment[index] = -1;
  if (index == 0 && out.status != nullptr) {  // no ids, so none out of range
    out.status[0] = out.status[2] = 0;
    out.status[1] = -1;
  }
  if (index >= out.sizes.num_experts) return;
  const auto expert = static_cast<int32_t>(index);
  const int32_t end = job.end_of(expert), tokens = max(end - job.end_of(expert - 1), 0);
  out.bins[expert] = end;
  out.tokens_per_expert[expert] = tokens;
  out.kept_per_expert[expert] = min(tokens, out.sizes.expert_capacity);
}

__global__ void __launch_bounds__(kThreads) put_positions_kernel(const __grid_constant__ BinsJob job) {
  const PlanView& out = job.out;
  const Sizes& sizes = out.sizes;
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const auto position = static_cast<int32_t>(index);
  int32_t expert = sizes.num_experts, assignment = -1, offset = -1;
  if (index < job.count) {
    int32_t low = 0;  // the first expert that ends behind the position
    for (int32_t high = sizes.num_experts; low < high;) {
      const int32_t middle = low + (high - low) / 2;
      if (job.end_of(middle) > position)
        high = middle;
      else
        low = middle + 1;
    }
    expert = low;
    if (expert < sizes.num_experts) {
      assignment = device::load(job.indices + position);
      offset = position - job.end_of(expert - 1);
    }
  }
  const bool known = assignment >= 0 && assignment < job.assignments;
  device::wait_for_previous();
  if (index >= job.assignments) return;
  out.indices[position] = known ? assignment : -1;
  out.bin_ids[position] = expert;
  if (known && offset >= 0 && offset < sizes.expert_capacity)
    out.row_of_assignment[assignment] = expert * sizes.expert_capacity + offset;
}

int64_t blocks_for(int64_t threads) {
  return (threads + kThreads - 1) / kThreads;
}

}  // namespace

void plan_from_bins(const PlanFromBinsJob& job, const Launcher& launcher) {
  const Sizes& sizes = job.out.sizes;
  const int64_t assignments = sizes.assignments();
  const BinsJob arguments = {job.bins.indices, job.bins.bins, static_cast<int32_t>(job.bins.count),
                             static_cast<int32_t>(assignments), job.out};
  launcher.launch("put_experts_kernel", put_experts_kernel,
                  blocks_for(std::max<int64_t>(assignments, sizes.num_experts)), kThreads, 0, arguments);
  if (assignments > 0)
    launcher.launch("put_positions_kernel", put_positions_kernel, blocks_for(assignments), kThreads, 0, arguments);
}

}  // namespace binmoe::cuda
