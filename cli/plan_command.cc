// binmoe plan
#include <cmath>
#include <memory>

#include "commands.h"
#include "load.h"
#include "plan_folder.h"
#include "progress.h"

namespace binmoe::cli {
namespace {

constexpr CommandText kText = {"plan",
                               "Sort the router's choices into expert bins and cut each expert at its capacity.",
                               R"(Formula:
  indices lists the unmasked assignments a = t*top_k + k by expert, inside an expert by the policy:
    token_order   by assignment
    choice_order  by k, then t
    by_weight     larger weight first, NaN last, ties by assignment; needs --weights
  The first C of each expert are kept: row_of_assignment = e*C + place, or -1 (dropped or masked).
  C is --expert-capacity, or ceil(F*T*K/E) with --capacity-factor F, rounded up to --multiple.

Files:
  ids.npy  [tokens, top_k] int8, uint8, int16, uint16, int32 or int64 in [-1, E); -1 = masked
  w.npy    [tokens, top_k] or flat; f32, f64, bf16 or f16
  DIR      indices, bin_ids [N], bins, tokens_per_expert, kept_per_expert [E], row_of_assignment
           [tokens, top_k], all int32, as DIR/NAME.npy, and DIR/plan.json. An earlier plan in DIR is
           replaced whole.

JSON (--json and plan.json):
  format_version, tokens, top_k, num_experts, expert_capacity, policy, kept, dropped, masked,
  empty_rows, max_over_mean_load, tokens_per_expert

Example:
  binmoe plan --expert-ids ids.npy --num-experts 64 --capacity-factor 1.25 --multiple 8 --out plan)"};

struct PlanOptions {
  std::string ids, weights, out, policy = "token_order", dtype;
  std::optional<int64_t> num_experts, expert_capacity, multiple;
  std::optional<double> capacity_factor;
};

DropPolicy policy_of(const std::string& name) {
  for (const DropPolicy policy : {DropPolicy::token_order, DropPolicy::choice_order, DropPolicy::by_weight})
    if (name == name_of(policy)) return policy;
  throw Failure(kBadUsage, "--policy is '" + name + "'; there are: token_order, choice_order, by_weight");
}

/// What can be refused from the command line alone.
DropPolicy check_usage(const PlanOptions& options) {
  const DropPolicy policy = policy_of(options.policy);
  if (options.expert_capacity.has_value() == options.capacity_factor.has_value())
    throw Failure(kBadUsage, "give one of --expert-capacity and --capacity-factor");
  if (options.capacity_factor && !(std::isfinite(*options.capacity_factor) && *options.capacity_factor >= 0))
    throw Failure(kBadUsage, "--capacity-factor must be finite and not negative");
  if (policy == DropPolicy::by_weight && options.weights.empty())
    throw Failure(kBadUsage, "--policy by_weight needs --weights");
  if (policy != DropPolicy::by_weight && !options.weights.empty())
    throw Failure(kBadUsage, "--weights are used by --policy by_weight only");
  return policy;
}

Sizes sizes_of(const PlanOptions& options, const Array& ids, int32_t num_experts, int32_t multiple) {
  Sizes sizes;
  sizes.tokens = ids.extent(0);
  sizes.top_k = to_int32(ids.name + ": top_k", ids.extent(1), 1);
  sizes.num_experts = num_experts;
  sizes.expert_capacity = options.expert_capacity ? to_int32("--expert-capacity", *options.expert_capacity, 0)
                                                  : expert_capacity(*options.capacity_factor, sizes.tokens, sizes.top_k,
                                                                    sizes.num_experts, multiple);
  return sizes;
}

void run_plan(const PlanOptions& options, Common& common) {
  const DropPolicy policy = check_usage(options);
  const int32_t num_experts = to_int32("--num-experts", *options.num_experts, 1);
  const int32_t multiple = to_int32("--multiple", options.multiple.value_or(1), 1);
  if (options.expert_capacity) to_int32("--expert-capacity", *options.expert_capacity, 0);
  const Context context = common.context();
  Progress progress;
  Outputs outputs;
  outputs.add_folder(options.out, plan_files());
  progress.step("reading " + options.ids);
  Array ids_array = read_array(options.ids);
  const Ids ids = ids_of(ids_array);
  const Sizes sizes = sizes_of(options, ids_array, num_experts, multiple);
  Array weights_array;
  Weights weights;
  if (!options.weights.empty()) {
    weights_array = read_array(options.weights);
    weights = weights_of(weights_array, sizes, options.dtype == "bf16");
  }
  progress.step("planning");
  Plan plan;
  try {
    plan = make_plan(ids, sizes, policy, weights, context);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_data) throw;
    throw Failure(kBadData, options.ids + ": " + describe(error.fault()));
  }
  progress.step("writing " + options.out);
  const std::string json = load_json(plan, policy);
  write_plan(outputs, 0, plan, json);
  outputs.commit();
  print(common.json ? json : load_text(plan, policy));
}

}  // namespace

void add_plan(CLI::App& app, Common& common) {
  const auto options = std::make_shared<PlanOptions>();
  CLI::App& command = add_command(app, common, kText);
  add_file(command, "--expert-ids", options->ids, "The router's choice")->required();
  add_number(command, "--num-experts", options->num_experts, "E")->required();
  add_number(command, "--expert-capacity", options->expert_capacity, "C, rows for each expert");
  CLI::Option* factor =
      add_number(command, "--capacity-factor", options->capacity_factor, "F, from which C is computed");
  add_number(command, "--multiple", options->multiple, "Round that C up to a multiple of this")->needs(factor);
  command.add_option("--policy", options->policy, "token_order (default), choice_order or by_weight")
      ->type_name("NAME");
  add_file(command, "--weights", options->weights, "What by_weight orders by");
  add_dtype(command, options->dtype);
  command.add_option("--out", options->out, "Folder of the plan")->required()->type_name("DIR");
  command.callback([options, &common] { run_plan(*options, common); });
}

}  // namespace binmoe::cli
