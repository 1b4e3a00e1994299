// What the commands that move rows share: their options, their inputs checked against the plan, their outputs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "array.h"
#include "common.h"
#include "output.h"
#include "progress.h"

namespace binmoe::cli {

/// Files by role; a command sets those that it has.
struct MoverOptions {
  std::string plan, x, y, grad, weights, out, out_weights, dtype;
};

/// Add --plan and --dtype, which all movers take.
void add_mover_options(CLI::App& command, MoverOptions& options);

/// One run of a mover. Inputs live as long as it does.
class Mover {
 public:
  /// Look at the backend, the outputs and the plan, in this order.
  Mover(const MoverOptions& options, Common& common);

  const Plan& plan() const { return plan_; }
  const Context& context() const { return context_; }
  bool uint16_is_bf16() const { return options_.dtype == "bf16"; }

  /// [tokens, hidden_size]; hidden_size is free when `hidden` is negative.
  Array& read_tokens(const std::string& file, int64_t hidden = -1);
  /// [num_experts, expert_capacity, hidden_size]
  Array& read_expert_rows(const std::string& file, int64_t hidden = -1);
  /// --weights, or none. They must go with the dtype of the rows.
  Weights read_weights(const Array& rows);

  Array& make_tokens(DType type, int64_t hidden);
  Array& make_expert_rows(DType type, int64_t hidden);
  Array& make_expert_rows(const Array& like);  ///< the same item type
  /// f32, with f64 rows f64; none when no file is named.
  WeightGradients make_weight_gradients(const std::string& file, DType rows);

  void begin_work() { progress_.step(name_); }
  /// Write the outputs and report them.
  void finish();

 private:
  Array& keep(Array array);
  Array& keep_output(Array array);

  const MoverOptions& options_;
  Common& common_;
  std::string name_;
  Context context_;
  Progress progress_;
  Outputs outputs_;
  Plan plan_;
  std::vector<std::unique_ptr<Array>> arrays_;
  std::vector<Array*> written_;
};

/// Errors: Failure naming both files when their dtypes differ.
void require_same_type(const Array& array, const ConstRows& view, const Array& other, const ConstRows& other_view);

}  // namespace binmoe::cli
