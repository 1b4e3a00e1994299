#include "plan_folder.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "array.h"
#include "failure.h"

namespace binmoe::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

Array array_of(std::span<const int32_t> values, std::vector<int64_t> shape) {
  npy::ItemType type;
  type.kind = 'i';
  type.bytes = 4;
  type.descr = "'<i4'";
  Array array = make_array("the plan", type, std::move(shape));
  std::copy(values.begin(), values.end(), reinterpret_cast<int32_t*>(array.data.get()));
  return array;
}

int64_t size_in(const json& document, const fs::path& file, const char* key, int64_t least) {
  const auto found = document.find(key);
  if (found == document.end()) throw Failure(kBadData, file.string() + ": it lacks the field " + key);
  if (!found->is_number_integer() ||
      (found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}))
    throw Failure(kBadData, file.string() + ": the field " + key + " is not a whole number");
  const auto value = found->get<int64_t>();
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (value < least || value > kMost)
    throw Failure(kBadData, file.string() + ": the field " + key + " is " + std::to_string(value) +
                                ", but must be from " + std::to_string(least) + " to " + std::to_string(kMost));
  return value;
}

Sizes read_sizes(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text;
  if (stream) text.assign(std::istreambuf_iterator<char>(stream), {});
  if (!stream) throw Failure(kBadData, file.string() + ": cannot be read; is it the folder of a plan?");
  const json document = json::parse(text, nullptr, false);
  if (!document.is_object()) throw Failure(kBadData, file.string() + ": it is not a JSON object");
  const int64_t version = size_in(document, file, "format_version", 0);
  if (version != kPlanFormatVersion)
    throw Failure(kBadData, file.string() + ": its format_version is " + std::to_string(version) +
                                ", but this program reads " + std::to_string(kPlanFormatVersion));
  Sizes sizes;
  sizes.tokens = size_in(document, file, "tokens", 0);
  sizes.top_k = static_cast<int32_t>(size_in(document, file, "top_k", 1));
  sizes.num_experts = static_cast<int32_t>(size_in(document, file, "num_experts", 1));
  sizes.expert_capacity = static_cast<int32_t>(size_in(document, file, "expert_capacity", 0));
  if (sizes.assignments() > std::numeric_limits<int32_t>::max() ||
      sizes.expert_rows() > std::numeric_limits<int32_t>::max())
    throw Failure(kBadData, file.string() + ": tokens * top_k and num_experts * expert_capacity must be below 2^31");
  return sizes;
}

struct PlanFiles {
  Array indices, bin_ids, row_of_assignment, bins, tokens_per_expert, kept_per_expert;
};

PlanFiles read_files(const fs::path& folder, const Sizes& sizes) {
  const auto read = [&](const char* name) { return read_array(folder / (std::string(name) + ".npy")); };
  PlanFiles files{read("indices"), read("bin_ids"),           read("row_of_assignment"),
                  read("bins"),    read("tokens_per_expert"), read("kept_per_expert")};
  require_dimensions(files.indices, 1, "[N]");
  require_shape(files.bin_ids, files.indices.shape, "that of indices");
  require_shape(files.row_of_assignment, {sizes.tokens, sizes.top_k}, "[tokens, top_k]");
  for (const Array* array : {&files.bins, &files.tokens_per_expert, &files.kept_per_expert})
    require_shape(*array, {sizes.num_experts}, "[num_experts]");
  return files;
}

/// `from`, then `tail` up to `count`.
void restore(Array& from, int32_t* to, int64_t count, int32_t tail) {
  const int64_t there = std::min(from.extent(0), count);
  std::copy_n(int32_of(from), there, to);
  std::fill(to + there, to + count, tail);
}

}  // namespace

const char* array_of_check(const std::string& check) {
  if (check.starts_with("bins")) return "bins";
  if (check.starts_with("bin_ids")) return "bin_ids";
  if (check.starts_with("ind")) return "indices";
  if (check == "tokens_per_expert") return "tokens_per_expert";
  if (check == "kept_per_expert") return "kept_per_expert";
  return "row_of_assignment";
}

std::optional<Fault> check_bins_of_files(const Bins& bins, const Sizes& sizes) {
  if (bins.count <= sizes.assignments()) return check_bins(bins, sizes);
  Bins cut = bins;
  cut.count = sizes.assignments();
  const auto fault = check_bins(cut, sizes);
  if (fault &&
      (std::string_view(fault->check) == "bins_nonnegative" || std::string_view(fault->check) == "bins_monotonic"))
    return fault;
  const int64_t last = bins.num_experts - 1, end = bins.bins[last];
  return end > sizes.assignments() ? Fault{"bins_limit", last, end, sizes.assignments()}
                                   : Fault{"bins_end", last, end, bins.count};
}

std::vector<std::string> plan_files() {
  std::vector<std::string> out = {kPlanJson};
  for (const char* name : {"indices", "bin_ids", "bins", "tokens_per_expert", "kept_per_expert", "row_of_assignment"})
    out.push_back(std::string(name) + ".npy");
  return out;
}

void write_plan(Outputs& outputs, size_t index, const Plan& plan, const std::string& json_text) {
  const Sizes& sizes = plan.sizes();
  const std::vector<int64_t> count = {plan.count()}, experts = {sizes.num_experts};
  outputs.write(index, array_of(plan.indices(), count), "indices.npy");
  outputs.write(index, array_of(plan.bin_ids(), count), "bin_ids.npy");
  outputs.write(index, array_of(plan.bins(), experts), "bins.npy");
  outputs.write(index, array_of(plan.tokens_per_expert(), experts), "tokens_per_expert.npy");
  outputs.write(index, array_of(plan.kept_per_expert(), experts), "kept_per_expert.npy");
  outputs.write(index, array_of(plan.row_of_assignment(), {sizes.tokens, sizes.top_k}), "row_of_assignment.npy");
  outputs.write_text(index, json_text, kPlanJson);
}

PlanRead read_plan(const fs::path& folder) {
  const Sizes sizes = read_sizes(folder / kPlanJson);
  PlanFiles files = read_files(folder, sizes);
  PlanRead out{Plan(sizes), std::nullopt};
  const PlanView view = out.plan.view();
  const int64_t assignments = sizes.assignments(), experts = sizes.num_experts;
  restore(files.indices, view.indices, assignments, -1);
  restore(files.bin_ids, view.bin_ids, assignments, sizes.num_experts);
  std::copy_n(int32_of(files.row_of_assignment), assignments, view.row_of_assignment);
  std::copy_n(int32_of(files.bins), experts, view.bins);
  std::copy_n(int32_of(files.tokens_per_expert), experts, view.tokens_per_expert);
  std::copy_n(int32_of(files.kept_per_expert), experts, view.kept_per_expert);

  // Bins first: they alone see how long the files of indices and bin_ids are.
  auto fault = check_bins_of_files(
      {int32_of(files.indices), int32_of(files.bin_ids), files.indices.extent(0), view.bins, experts}, sizes);
  if (!fault) fault = check(out.plan);
  if (fault) out.fault = PlanFault{*fault, folder / (std::string(array_of_check(fault->check)) + ".npy")};
  return out;
}

Plan read_sound_plan(const fs::path& folder) {
  PlanRead read = read_plan(folder);
  if (read.fault) throw Failure(kBadData, read.fault->file.string() + ": " + describe(read.fault->fault));
  return std::move(read.plan);
}

}  // namespace binmoe::cli
