// binmoe simulate
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/routing.h"
#include "commands.h"
#include "output.h"
#include "plan_folder.h"
#include "progress.h"
#include "tile_options.h"

namespace binmoe::cli {
namespace {

constexpr CommandText kText = {
    "simulate", "Run an Ascend C kernel on our model of a vector core and print its work and an estimate.",
    R"(The kernel is checked on the way: races, buffers, bounds (docs/ascend.md). Estimates come from the model's
constants; nothing was measured on a device. The bound is the minimum bytes of docs/design.md, section 6, at the
chip's bandwidth.

JSON (--json):
  soc, op, order, num_programs, ub_bytes, minimum_bytes, bound_us, estimate_us, share_of_bound,
  estimate_slow_scalar_us (scalar costs doubled, issue queue of 8), launches: [{kernel, ub_high_water, gm_read_bytes,
  gm_written_bytes, estimate_us, programs: [{scalar, vector, mte2, mte3: {operations, bytes, bursts, waits},
  scalar_reads, scalar_writes, scalar_operations}]}]

Examples:
  binmoe simulate --op scatter --weights --tokens 4096 --hidden-size 2048 --num-experts 128 \
    --top-k 8 --expert-capacity 320
  binmoe simulate --op gather --hidden-size 4096 --plan plan --trace trace.json)"};

struct Options : TileOptions {
  std::string plan, routing = "uniform", trace;
};

Plan plan_for(const Options& o, Common& common) {
  if (!o.plan.empty()) return read_sound_plan(o.plan);
  const ascend::TileRequest r = request_of(o);
  if (o.routing != "uniform" && o.routing != "zipf" && o.routing != "one")
    throw Failure(kBadUsage, "--routing names '" + o.routing + "'; there are: uniform, zipf, one");
  const Sizes sizes{r.tokens, r.top_k, r.num_experts, to_int32("--expert-capacity", r.expert_capacity, 0)};
  const auto kind = o.routing == "uniform" ? bench::Routing::uniform
                    : o.routing == "zipf"  ? bench::Routing::zipf
                                           : bench::Routing::one;
  const std::vector<int32_t> ids = bench::make_routing(kind, r.tokens, r.top_k, r.num_experts);
  Context context = common.context();
  context.backend = nullptr;  // how the plan is made does not matter here
  context.options = nullptr;
  return make_plan({ids.data(), static_cast<int64_t>(ids.size()), IdType::i32}, sizes, DropPolicy::token_order, {},
                   context);
}

nlohmann::ordered_json json_of(const ascend::PipeWork& work) {
  return {{"operations", work.operations}, {"bytes", work.bytes}, {"bursts", work.bursts}, {"waits", work.waits}};
}

double share(const ascend::Simulation& s) {
  return s.estimate_us > 0 ? s.bound_us / s.estimate_us : 0;
}

std::string json_of(const ascend::Simulation& s) {
  nlohmann::ordered_json launches = nlohmann::ordered_json::array();
  for (const ascend::LaunchReport& launch : s.launches) {
    nlohmann::ordered_json programs = nlohmann::ordered_json::array();
    for (const ascend::ProgramWork& p : launch.programs)
      programs.push_back({{"scalar", json_of(p.scalar)},
                          {"vector", json_of(p.vector)},
                          {"mte2", json_of(p.mte2)},
                          {"mte3", json_of(p.mte3)},
                          {"scalar_reads", p.scalar_reads},
                          {"scalar_writes", p.scalar_writes},
                          {"scalar_operations", p.scalar_operations}});
    launches.push_back({{"kernel", launch.kernel},
                        {"ub_high_water", launch.ub_high_water},
                        {"gm_read_bytes", launch.gm_read_bytes},
                        {"gm_written_bytes", launch.gm_written_bytes},
                        {"estimate_us", launch.estimate_us},
                        {"programs", programs}});
  }
  const ascend::TileRequest& r = s.tile.request;
  nlohmann::ordered_json out = {{"soc", r.soc->name},
                                {"op", name_of(r.op)},
                                {"order", nullptr},
                                {"num_programs", s.tile.num_programs},
                                {"ub_bytes", s.tile.ub_bytes},
                                {"minimum_bytes", s.minimum_bytes},
                                {"bound_us", s.bound_us},
                                {"estimate_us", s.estimate_us},
                                {"share_of_bound", share(s)},
                                {"estimate_slow_scalar_us", s.estimate_slow_scalar_us},
                                {"launches", launches}};
  if (r.op == ascend::Op::gather) out["order"] = name_of(s.tile.order);
  return out.dump() + "\n";
}

/// Least, mean and most over the programs.
std::string spread_of(const char* name, const ascend::LaunchReport& launch,
                      int64_t (*value)(const ascend::ProgramWork&)) {
  int64_t least = INT64_MAX, most = 0, sum = 0;
  for (const ascend::ProgramWork& program : launch.programs) {
    const int64_t v = value(program);
    least = std::min(least, v), most = std::max(most, v), sum += v;
  }
  char line[120];
  std::snprintf(line, sizeof line, "  %-24s %12lld %14.1f %12lld\n", name, static_cast<long long>(least),
                static_cast<double>(sum) / static_cast<double>(std::max<size_t>(launch.programs.size(), 1)),
                static_cast<long long>(most));
  return line;
}

std::string text_of(const ascend::LaunchReport& launch) {
  using Work = const ascend::ProgramWork&;
  std::string out = "launch " + launch.kernel + ": UB high-water mark " + std::to_string(launch.ub_high_water) +
                    " B, GM read " + std::to_string(launch.gm_read_bytes) + " B, written " +
                    std::to_string(launch.gm_written_bytes) + " B\n" +
                    "  a program                       least           mean         most\n";
  out += spread_of("S operations", launch, [](Work p) { return p.scalar.operations; });
  out += spread_of("S reads of UB", launch, [](Work p) { return p.scalar_reads; });
  out += spread_of("S plain operations", launch, [](Work p) { return p.scalar_operations; });
  out += spread_of("V operations", launch, [](Work p) { return p.vector.operations; });
  out += spread_of("V bytes", launch, [](Work p) { return p.vector.bytes; });
  out += spread_of("MTE2 bursts", launch, [](Work p) { return p.mte2.bursts; });
  out += spread_of("MTE2 bytes", launch, [](Work p) { return p.mte2.bytes; });
  out += spread_of("MTE3 bursts", launch, [](Work p) { return p.mte3.bursts; });
  out += spread_of("MTE3 bytes", launch, [](Work p) { return p.mte3.bytes; });
  out +=
      spread_of("waits", launch, [](Work p) { return p.scalar.waits + p.vector.waits + p.mte2.waits + p.mte3.waits; });
  char line[120];
  std::snprintf(line, sizeof line, "  estimate %.1f us\n", launch.estimate_us);
  return out + line;
}

std::string text_of(const ascend::Simulation& s) {
  std::string out = std::string(s.tile.request.soc->name) + ", " + name_of(s.tile.request.op) + ", " +
                    std::to_string(s.tile.num_programs) + " programs; no rule was broken\n" + budget_of(s.tile);
  for (const ascend::LaunchReport& launch : s.launches) out += text_of(launch);
  char line[240];
  std::snprintf(line, sizeof line,
                "estimate %.1f us (with scalar costs doubled and an issue queue of 8: %.1f us)\n"
                "bound    %.1f us (minimum bytes at the chip's bandwidth): %.1f %% %s\n",
                s.estimate_us, s.estimate_slow_scalar_us, s.bound_us, 100 * share(s), bar_of(share(s), 32).c_str());
  return out + line;
}

void run(const Options& o, Common& common) {
  Progress progress;
  const Plan plan = plan_for(o, common);
  const ascend::TileRequest request = request_of(o, &plan.sizes());
  if (request.family != ascend::Family::ascendc) throw Failure(kBadUsage, "only Ascend C kernels run on the model");
  progress.step("simulating");
  std::string trace;
  const ascend::Simulation simulation = ascend::simulate(request, plan, o.trace.empty() ? nullptr : &trace);
  if (!o.trace.empty()) {
    Outputs outputs;
    outputs.add_file(o.trace);
    outputs.write_text(0, trace, "");
    outputs.commit();
  }
  print(common.json ? json_of(simulation) : text_of(simulation));
}

}  // namespace

void add_simulate(CLI::App& app, Common& common) {
  CLI::App& command = add_command(app, common, kText);
  auto options = std::make_shared<Options>();
  add_tile_options(command, *options);
  command.add_option("--plan", options->plan, "A folder of binmoe plan; else a routing is made")->type_name("DIR");
  command.add_option("--routing", options->routing, "uniform, zipf or one")->capture_default_str();
  command.add_option("--trace", options->trace, "Write a Chrome trace of the first launch")->type_name("FILE");
  command.callback([options, &common] { run(*options, common); });
}

}  // namespace binmoe::cli
