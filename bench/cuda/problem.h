// One benchmark case on the device: sets of buffers, each with its own inputs and outputs, and the check of what calls
// wrote against a host backend.
#pragma once

#include <string>
#include <vector>

#include "bench/cuda/device.h"
#include "bench/cuda/host.h"
#include "bench/problem.h"

namespace binmoe::bench {

/// What is timed. The movers get their plan ready-made; plan_gather makes it in the same call.
enum class Call {
  plan_token_order,
  plan_choice_order,
  plan_by_weight,
  gather,
  gather_weighted,
  scatter,
  wgrad,
  scatter_backward,
  plan_gather,
};
/// "plan token_order", ..., "plan + gather".
const char* name_of(Call call);
/// One of the three that make a plan and move nothing.
bool is_plan(Call call);

struct Case {
  std::string model;
  std::string routing;  ///< uniform, zipf, half-masked, few-experts
  Sizes sizes;
  int64_t hidden_size = 0;
  DType dtype = DType::bf16;
  int64_t offset = 0;   ///< bytes of every row tensor from a 256-byte boundary
  std::string variant;  ///< what is special: "odd H", "odd alignment", or nothing
};

/// expert_ids of a case. half-masked: uniform, every second masked by the hash; few-experts: all on the first K+1.
std::vector<int32_t> make_ids(const Case& of);

class DeviceProblem {
 public:
  /// `block`: where the sets are; `host` outlives the problem and is shared by all.
  DeviceProblem(const Case& of, Host& host, const Block& block, cudaStream_t stream);

  int64_t minimum_bytes(Call call);
  int64_t kept() const { return problem_.load().kept; }

  /// Lay out and fill the sets of a call: together larger than three L2 caches (`warm`: 16 sets), at least 6 if the
  /// block has room (2 or an error). Outputs are poisoned. Returns how many.
  int64_t prepare(Call call, bool warm);
  void run(int64_t set);
  /// A kernel that writes the set's ids and weights anew.
  void run_previous(int64_t set);
  /// Compare every byte of a set's outputs with the host backend (dw within its bound); throws std::runtime_error.
  void verify(int64_t set);
  void poison(int64_t set);

 private:
  /// Offsets of a set's parts, in bytes. ids and weights come first; their copy, for run_previous, stands behind them.
  struct Layout {
    size_t ids, weights, copy, plan, tokens, expert_rows, rows_out, dw, workspace, total;
  };
  Layout layout_of(Call call) const;
  void fill_first_set();
  void fill_rows(size_t offset, int64_t rows, uint64_t stream);
  char* at(int64_t set, size_t offset) const {
    return block_.data() + static_cast<size_t>(set) * layout_.total + offset;
  }
  PlanView plan_view(int64_t set) const;
  Rows rows_view(int64_t set, size_t offset, int64_t rows) const;
  int64_t rows_out() const;
  Context context(int64_t set) const;
  void run_plan(int64_t set, DropPolicy policy);
  void verify_plan(int64_t set);
  void verify_rows(int64_t set);
  void verify_dw(int64_t set);

  Case of_;
  Host& host_;
  const Block& block_;
  cudaStream_t stream_;
  std::vector<int32_t> ids_;
  Problem problem_;  // counts the bytes
  Plan plan_;        // token_order
  size_t workspace_bytes_ = 0;
  Call call_ = Call::gather;
  Layout layout_{};
};

}  // namespace binmoe::bench
