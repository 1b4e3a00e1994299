// The rest of a plan from sorted indices, as plain loops: for backends that have no faster way.
#pragma once

#include <algorithm>
#include <vector>

#include "backend.h"
#include "layout.h"

namespace binmoe {

/// Fill bins, counts, bin_ids' tail and row_of_assignment from indices that are in place.
inline void finish_plan(const PlanView& out, const std::vector<int32_t>& counts) {
  const Sizes& s = out.sizes;
  std::fill_n(out.row_of_assignment, s.assignments(), -1);
  int32_t end = 0;
  for (int32_t e = 0; e < s.num_experts; ++e) {
    const int32_t begin = end;
    end += counts[static_cast<size_t>(e)];
    out.bins[e] = end;
    out.tokens_per_expert[e] = end - begin;
    out.kept_per_expert[e] = std::min(end - begin, s.expert_capacity);
    for (int32_t p = begin; p < end; ++p) {
      out.bin_ids[p] = e;
      if (p - begin < s.expert_capacity)
        out.row_of_assignment[out.indices[p]] = static_cast<int32_t>(expert_rows(out, e).begin + p - begin);
    }
  }
  std::fill(out.indices + end, out.indices + s.assignments(), -1);
  std::fill(out.bin_ids + end, out.bin_ids + s.assignments(), s.num_experts);
}

inline void plan_from_bins_on_host(const PlanFromBinsJob& job) {
  std::vector<int32_t> counts;
  for (int64_t e = 0; e < job.bins.num_experts; ++e)
    counts.push_back(job.bins.bins[e] - (e > 0 ? job.bins.bins[e - 1] : 0));
  std::copy_n(job.bins.indices, job.bins.count, job.out.indices);
  finish_plan(job.out, counts);
}

}  // namespace binmoe
