// binmoe bench: every operation verified against the reference, then timed beside a streaming copy.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "array.h"
#include "bench/measure.h"
#include "bench/routing.h"
#include "commands.h"
#include "progress.h"

namespace binmoe::cli {
namespace {

constexpr CommandText kText = {
    "bench", "Verify operations against the reference, then time them beside a streaming copy.",
    R"(A share is (minimum bytes of docs/design.md, section 6) / time, over the same figure of a copy measured by turns
with it; medians. Outputs are the caller's, with touched pages. Cases under 32 MiB are called in a row: their
operands are in the cache. Bare: all models, uniform and zipf, bf16, all operations, T=4096 (deepseek-v3 2048) and 64.

JSON (--json):
  results: [{op, model, routing, backend, dtype, us, bytes, gb_per_s, share_of_copy, tokens, us_quartiles}],
  copy_gb_per_s, threads

Examples:
  binmoe bench --model mixtral-8x7b --op gather,scatter --routing zipf
  binmoe bench --tokens 8192 --hidden-size 1024 --num-experts 64 --top-k 6 --dtype f32
  binmoe bench --model qwen3-30b --routing ids.npy)"};

constexpr int kRepetitions = 15;
constexpr int64_t kDecodeTokens = 64;

struct Options {
  std::vector<std::string> models, routings = {"uniform", "zipf"}, dtypes = {"bf16"}, ops;
  std::vector<int64_t> tokens;
  std::optional<int64_t> hidden_size, num_experts, top_k;
  double capacity_factor = 1.25;
};

struct Case {
  std::string model, routing;
  int64_t tokens = 0, hidden_size = 0;
  int32_t top_k = 1, num_experts = 1;
};

struct Result {
  Case of;
  std::string op, dtype;
  bench::Measured measured;
};

[[noreturn]] void bad_usage(const std::string& message) {
  throw Failure(kBadUsage, message);
}

DType dtype_named(const std::string& name) {
  for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::f16})
    if (name == name_of(type)) return type;
  bad_usage("--dtype names '" + name + "'; there are: f32, f64, bf16, f16");
}

bench::Op op_named(const std::string& name) {
  std::string names;
  for (const bench::Op op : bench::all_ops()) {
    if (name == bench::name_of(op)) return op;
    names += (names.empty() ? "" : ", ") + std::string(bench::name_of(op));
  }
  bad_usage("--op names '" + name + "'; there are: " + names);
}

bool is_file(const std::string& routing) {
  return routing.ends_with(".npy");
}

std::vector<int32_t> read_routing(Case& of) {
  Array array = read_array(of.routing);
  require_dimensions(array, 2, "[tokens, top_k]");
  const Ids ids = ids_of(array);
  of.tokens = array.extent(0);
  of.top_k = to_int32("top_k", array.extent(1), 1);
  std::vector<int32_t> out(static_cast<size_t>(ids.count));
  const Sizes sizes{of.tokens, of.top_k, of.num_experts, 0};
  const Plan plan = make_plan(ids, sizes);  // refuses ids out of range
  std::fill(out.begin(), out.end(), -1);
  for (size_t p = 0; p < plan.indices().size(); ++p) out[static_cast<size_t>(plan.indices()[p])] = plan.bin_ids()[p];
  return out;
}

std::vector<int32_t> make_ids(Case& of) {
  if (is_file(of.routing)) return read_routing(of);
  const auto kind = of.routing == "uniform" ? bench::Routing::uniform
                    : of.routing == "zipf"  ? bench::Routing::zipf
                                            : bench::Routing::one;
  return bench::make_routing(kind, of.tokens, of.top_k, of.num_experts);
}

/// The models asked for, or the one that the sizes describe.
std::vector<Case> models_of(const Options& options) {
  std::vector<Case> out;
  const bool custom = options.hidden_size || options.num_experts || options.top_k;
  if (custom) {
    if (!options.models.empty()) bad_usage("--model and the sizes of a model exclude each other");
    if (!options.hidden_size || !options.num_experts || !options.top_k || options.tokens.empty())
      bad_usage("a case of your own needs --tokens, --hidden-size, --num-experts and --top-k");
    if (*options.hidden_size < 0) bad_usage("--hidden-size must not be negative");
    return {{"custom", "", 0, *options.hidden_size, to_int32("--top-k", *options.top_k, 1),
             to_int32("--num-experts", *options.num_experts, 1)}};
  }
  for (const bench::Model& model : bench::models())
    if (options.models.empty() || std::count(options.models.begin(), options.models.end(), model.name) > 0)
      out.push_back({model.name, "", 0, model.hidden_size, model.top_k, model.num_experts});
  for (const std::string& name : options.models)
    if (bench::find_model(name) == nullptr) {
      std::string names;
      for (const bench::Model& model : bench::models()) names += (names.empty() ? "" : ", ") + std::string(model.name);
      bad_usage("--model names '" + name + "'; there are: " + names);
    }
  return out;
}

std::vector<Case> cases_of(const Options& options) {
  std::vector<Case> out;
  for (Case of : models_of(options)) {
    std::vector<int64_t> tokens = options.tokens;
    if (tokens.empty()) tokens = {of.model == "deepseek-v3" ? 2048 : 4096, kDecodeTokens};
    for (const std::string& routing : options.routings) {
      if (!is_file(routing) && routing != "uniform" && routing != "zipf" && routing != "one")
        bad_usage("--routing names '" + routing + "'; there are: uniform, zipf, one, or a file FILE.npy");
      of.routing = routing;
      if (is_file(routing)) tokens.resize(1);
      for (const int64_t t : tokens) {
        if (t < 0) bad_usage("--tokens must not be negative");
        of.tokens = t;
        out.push_back(of);
      }
    }
  }
  return out;
}

std::string row_of(const Result& r) {
  char line[200];
  std::snprintf(line, sizeof line, "%-16s %8lld  %-8s %-5s %-17s %10.1f  %8.1f - %-8.1f %6.1f  %5.3f\n",
                r.of.model.c_str(), static_cast<long long>(r.of.tokens), r.of.routing.c_str(), r.dtype.c_str(),
                r.op.c_str(), r.measured.us, r.measured.us_low, r.measured.us_high, r.measured.gb_per_s,
                r.measured.share_of_copy);
  return line;
}

constexpr const char* kHeader =
    "model              tokens  routing  dtype op                        us         quartiles     GB/s  share\n";

double median_copy(const std::vector<Result>& results) {
  std::vector<double> rates;
  for (const Result& r : results) rates.push_back(r.measured.copy_gb_per_s);
  std::sort(rates.begin(), rates.end());
  return rates.empty() ? 0 : rates[rates.size() / 2];
}

std::string json_of(const std::vector<Result>& results, Common& common) {
  nlohmann::ordered_json out;
  out["results"] = nlohmann::ordered_json::array();
  for (const Result& r : results)
    out["results"].push_back({{"op", r.op},
                              {"model", r.of.model},
                              {"routing", r.of.routing},
                              {"backend", common.backend().name},
                              {"dtype", r.dtype},
                              {"us", r.measured.us},
                              {"bytes", r.measured.bytes},
                              {"gb_per_s", r.measured.gb_per_s},
                              {"share_of_copy", r.measured.share_of_copy},
                              {"tokens", r.of.tokens},
                              {"us_quartiles", {r.measured.us_low, r.measured.us_high}}});
  out["copy_gb_per_s"] = median_copy(results);
  out["threads"] = common.executor().concurrency();
  return out.dump() + "\n";
}

void run(const Options& options, Common& common) {
  if (!std::isfinite(options.capacity_factor) || options.capacity_factor < 0)
    bad_usage("--capacity-factor must be finite and not negative");
  std::vector<bench::Op> ops;
  for (const std::string& name : options.ops) ops.push_back(op_named(name));
  if (ops.empty()) ops = bench::all_ops();
  std::vector<DType> dtypes;
  for (const std::string& name : options.dtypes) dtypes.push_back(dtype_named(name));
  std::vector<Case> cases = cases_of(options);
  const Context context = common.context();
  Progress progress;
  bench::Stopwatch stopwatch(common.executor());
  std::vector<Result> results;
  if (!common.json) print(kHeader);
  for (Case& of : cases) {
    progress.step(of.model + ", " + of.routing + ", T=" + std::to_string(of.tokens));
    const std::vector<int32_t> ids = make_ids(of);
    const int32_t capacity = expert_capacity(options.capacity_factor, of.tokens, of.top_k, of.num_experts);
    for (const DType dtype : dtypes) {
      bench::Problem problem(ids, {of.tokens, of.top_k, of.num_experts, capacity}, of.hidden_size, dtype);
      for (const bench::Op op : ops) {
        results.push_back(
            {of, bench::name_of(op), name_of(dtype), stopwatch.measure(problem, op, context, kRepetitions)});
        if (!common.json) print(row_of(results.back()));
      }
    }
  }
  if (common.json) return print(json_of(results, common));
  char line[120];
  std::snprintf(line, sizeof line, "copy %.1f GB/s on %d threads, backend %s\n", median_copy(results),
                common.executor().concurrency(), common.backend().name);
  print(line);
}

}  // namespace

void add_bench(CLI::App& app, Common& common) {
  CLI::App& command = add_command(app, common, kText);
  auto options = std::make_shared<Options>();
  const auto list = [&](const char* name, std::vector<std::string>& values, const char* description) {
    command.add_option(name, values, description)->delimiter(',')->type_name("NAME,...");
  };
  list("--model", options->models, "Models of docs/design.md, section 6; all");
  list("--routing", options->routings, "uniform, zipf, one (all to expert 0), or FILE.npy; uniform,zipf");
  list("--dtype", options->dtypes, "Of rows: f32, f64, bf16, f16; bf16");
  list("--op", options->ops, "plan, gather, scatter, wgrad, scatter-backward, gather-backward; all");
  command.add_option("--tokens", options->tokens, "Batch sizes")->delimiter(',')->type_name("N,...");
  add_number(command, "--hidden-size", options->hidden_size, "Of a model of your own");
  add_number(command, "--num-experts", options->num_experts, "Of a model of your own");
  add_number(command, "--top-k", options->top_k, "Of a model of your own");
  command.add_option("--capacity-factor", options->capacity_factor, "1.25")->type_name("F");
  command.callback([options, &common] { run(*options, common); });
}

}  // namespace binmoe::cli
