// The operations. Semantics, rounding and determinism: docs/design.md, section 2. Every function checks its arguments
// before any work and throws binmoe::Error with no output touched. Nothing prints or aborts. No operation but the plan
// ones allocates. A plan given to a mover must come from plan, plan_from_bins or pass check: its entries are trusted.
// T, K, E, C, H: tokens, top_k, num_experts, expert_capacity, hidden_size; U: tokens with a kept row; A: kept rows.
#pragma once

#include <cstdint>
#include <optional>

#include "binmoe/context.h"
#include "binmoe/types.h"

namespace binmoe {

/// Sort the router's choices into expert bins and cut them at the capacity.
///   expert_ids  [T, K] any IdType; values in [-1, E); -1 = masked
///   policy      who keeps a row when an expert overflows
///   priority    [T, K] f32|f64|bf16|f16, for by_weight only (must be absent otherwise); masked ones are ignored
///   out         six arrays of the caller; every element is written; must not overlap the inputs or each other
/// Errors: an id out of range (fault: position, value, limit; in device memory it counts as masked, see
/// PlanView::status); T*K or E*C >= 2^31; K < 1; E < 1; C < 0; overlap; ...
/// Cost: reads the ids twice, writes 12*T*K + 12*E bytes; by_weight also sorts. Allocates if no workspace is given.
/// Order: exact, the same on every backend.
void plan(const Ids& expert_ids, DropPolicy policy, const Weights& priority, const PlanView& out,
          const Context& context = {});

/// Complete a plan from bins that another system made (MegaBlocks' indices and bins).
///   bins  indices, bins, optional bin_ids; count <= T*K; the first C of each expert are kept, in the order they stand
///   out   as in plan
/// Errors: check_bins' faults (not looked for in device memory); sizes; overlap.
/// Cost: O(T*K + E); allocates T*K/8 bytes, as check_bins does.
void plan_from_bins(const Bins& bins, const PlanView& out, const Context& context = {});

/// Bytes of workspace that plan wants at these sizes (priority_type: of by_weight's weights).
size_t plan_workspace_bytes(const Sizes& sizes, DropPolicy policy, DType priority_type = DType::f32,
                            const Context& context = {});

/// The first fault of a plan, or nothing: bins nonnegative and monotonic and at most T*K; bin_ids consistent; indices
/// in range and unique; tails -1 and E; counts; row_of_assignment the inverse; and the id out of range that status
/// tells of. Throws only for sizes and null pointers. Device memory (context.memory): copies the plan to the host,
/// waits. Cost: O(T*K + E), allocates T*K/8 bytes.
std::optional<Fault> check(const ConstPlanView& plan, const Context& context = {});

/// The first fault of bins from elsewhere, or nothing. sizes: expert_capacity is not looked at.
std::optional<Fault> check_bins(const Bins& bins, const Sizes& sizes, const Context& context = {});

/// Gather token rows into expert order.
///   y[e*C + c] = w[a] * x[a / K], a = indices[start_e + c]; empty rows are +0; w absent = a byte copy.
///   x        [T, H] any dtype; DType::bytes without weights only
///   weights  [T, K] f32|bf16|f16, f64 with f64 rows; optional
///   y        [E*C, H] as x; out; every element is written once; must not overlap an input
/// Cost: reads U*H, writes E*C*H elements. Order: bit-identical on every backend.
void gather(const ConstPlanView& plan, const ConstRows& x, const Weights& weights, const Rows& y,
            const Context& context = {});

/// Combine expert rows per token.
///   out[t] = sum over k = 0..K-1, in that order, of w[t,k] * y[row_of_assignment[t,k]], in f32 (f64 rows: f64),
///   rounded once; -1 adds nothing; the sum starts at +0. y [E*C, H], weights [T, K] optional, out [T, H] as y
/// Cost: reads A*H, writes T*H elements. Order: bit-identical on every backend.
void scatter(const ConstPlanView& plan, const ConstRows& y, const Weights& weights, const Rows& out,
             const Context& context = {});

/// Gradient of scatter with respect to the router weights.
///   dw[t,k] = dot(y[row_of_assignment[t,k]], grad[t]) in f32 (f64 rows: f64); +0 where -1
///   y [E*C, H], grad [T, H] as y, dw [T, K] any float dtype; out
/// Cost: reads (U + A)*H elements. Order: fixed per backend (docs/cpu.md, cuda.md); |error| <= H * 2^-24 * sum
/// |y*grad|.
void wgrad(const ConstPlanView& plan, const ConstRows& y, const ConstRows& grad, const WeightGradients& dw,
           const Context& context = {});

/// Backward of scatter in one pass: dy = gather(grad, weights), and dw = wgrad(y, grad) when dw is given.
///   y may be absent when dw is. weights absent: dy holds copies.
/// Cost: reads (U + A)*H (without dw: U*H), writes E*C*H elements.
void scatter_backward(const ConstPlanView& plan, const ConstRows& y, const ConstRows& grad, const Weights& weights,
                      const Rows& dy, const WeightGradients& dw, const Context& context = {});

/// Backward of gather: dx = scatter(dy, weights), and dw = wgrad(dy, x) when dw is given (then x must be).
/// Cost: that of scatter and wgrad. Empty rows of dy are not read.
void gather_backward(const ConstPlanView& plan, const ConstRows& dy, const Weights& weights, const ConstRows& x,
                     const Rows& dx, const WeightGradients& dw, const Context& context = {});

/// Capacity from a factor: ceil(factor*T*K/E), then up to a multiple. The factor is taken as its shortest decimal, so
/// 1.1 x 10 is 11; T*K counts masked assignments too; factor 0 gives 0.
/// Errors: factor negative or not finite; multiple < 1; T*K >= 2^31; a capacity with E*C >= 2^31.
int32_t expert_capacity(double factor, int64_t tokens, int32_t top_k, int32_t num_experts, int32_t multiple = 1);

}  // namespace binmoe
