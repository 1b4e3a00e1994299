// binmoe check
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "plan_folder.h"
#include "progress.h"

namespace binmoe::cli {
namespace {

constexpr CommandText kText = {"check", "Say whether a plan is valid, or give its first fault (exit code 1).",
                               R"(Formula:
  bins are not negative and never fall, bins[E-1] = N, bin_ids agree with bins, every index is in [0, T*K)
  and stands once. With --plan also: the counts, and row_of_assignment as the inverse map.

Files:
  DIR                  a folder that binmoe plan wrote
  i.npy, e.npy, b.npy  int32; another system's indices [N], bin_ids [N] and bins [E] (MegaBlocks')

JSON (--json):
  valid, and for a fault error: {check, position, value, limit}

Example:
  binmoe check --plan plan
  binmoe check --indices i.npy --bins b.npy --num-tokens 2048 --top-k 8)"};

struct CheckOptions {
  std::string plan, indices, bins, bin_ids;
  std::optional<int64_t> num_tokens, top_k;
};

struct Verdict {
  std::optional<PlanFault> fault;
  std::string summary;  ///< of a valid plan
};

std::string summary_of(int64_t count, const Sizes& sizes) {
  return std::to_string(count) + " of " + std::to_string(sizes.assignments()) + " assignments in " +
         std::to_string(sizes.num_experts) + " experts";
}

Verdict check_files(const CheckOptions& options) {
  Sizes sizes;
  sizes.tokens = to_int32("--num-tokens", *options.num_tokens, 0);
  sizes.top_k = to_int32("--top-k", *options.top_k, 1);
  Array indices = read_array(options.indices);
  Array bins = read_array(options.bins);
  require_dimensions(indices, 1, "[N]");
  require_dimensions(bins, 1, "[num_experts]");
  sizes.num_experts = to_int32(options.bins + ": num_experts", bins.extent(0), 1);
  Bins view{int32_of(indices), nullptr, indices.extent(0), int32_of(bins), sizes.num_experts};
  Array bin_ids;
  if (!options.bin_ids.empty()) {
    bin_ids = read_array(options.bin_ids);
    require_shape(bin_ids, indices.shape, "that of " + indices.name);
    view.bin_ids = int32_of(bin_ids);
  }
  Verdict verdict{std::nullopt, summary_of(view.count, sizes)};
  if (const auto fault = check_bins_of_files(view, sizes)) {
    const std::string array = array_of_check(fault->check);
    verdict.fault = {*fault, array == "bins" ? options.bins : array == "bin_ids" ? options.bin_ids : options.indices};
  }
  return verdict;
}

Verdict check_folder(const CheckOptions& options) {
  PlanRead read = read_plan(options.plan);
  if (read.fault) return {read.fault, ""};
  return {std::nullopt, summary_of(read.plan.count(), read.plan.sizes())};
}

void run_check(const CheckOptions& options, Common& common) {
  const bool files = !options.indices.empty() || !options.bins.empty();
  if (options.plan.empty() != files || options.indices.empty() != options.bins.empty())
    throw Failure(kBadUsage, "give --plan, or --indices and --bins");
  if (files && !(options.num_tokens && options.top_k))
    throw Failure(kBadUsage, "--indices and --bins need --num-tokens and --top-k");
  if (!files && (options.num_tokens || options.top_k || !options.bin_ids.empty()))
    throw Failure(kBadUsage, "--num-tokens, --top-k and --bin-ids go with --indices and --bins");
  common.backend();  // an unknown name is refused here as everywhere
  Progress progress;
  progress.step("checking");
  const Verdict verdict = files ? check_files(options) : check_folder(options);
  if (common.json) {
    nlohmann::ordered_json out = {{"valid", !verdict.fault.has_value()}};
    if (verdict.fault) {
      const Fault& fault = verdict.fault->fault;
      out["error"] = {
          {"check", fault.check}, {"position", fault.position}, {"value", fault.value}, {"limit", fault.limit}};
    }
    print(out.dump() + "\n");
  }
  if (verdict.fault) throw Failure(kBadData, verdict.fault->file.string() + ": " + describe(verdict.fault->fault));
  if (!common.json) print("valid: " + verdict.summary + "\n");
}

}  // namespace

void add_check(CLI::App& app, Common& common) {
  const auto options = std::make_shared<CheckOptions>();
  CLI::App& command = add_command(app, common, kText);
  command.add_option("--plan", options->plan, "A folder of binmoe plan")->type_name("DIR");
  add_file(command, "--indices", options->indices, "Assignments by expert");
  add_file(command, "--bins", options->bins, "Inclusive cumulative counts");
  add_file(command, "--bin-ids", options->bin_ids, "The expert of each index");
  add_number(command, "--num-tokens", options->num_tokens, "T");
  add_number(command, "--top-k", options->top_k, "K");
  command.callback([options, &common] { run_check(*options, common); });
}

}  // namespace binmoe::cli
