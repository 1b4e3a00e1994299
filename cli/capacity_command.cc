// binmoe capacity
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "array.h"
#include "commands.h"
#include "progress.h"

namespace binmoe::cli {
namespace {

constexpr CommandText kText = {"capacity", "Say what each expert capacity would drop and waste on recorded routing.",
                               R"(Formula:
  C = ceil(F*T*K/E); dropped = sum over e of max(0, tokens_per_expert[e] - C); empty rows = E*C - kept
  Both shares are of the unmasked assignments, so the rows wasted can exceed 100 %.
  Below: the smallest C that drops at most 0, 0.1, 1 and 5 %, and a factor that gives it.

Files:
  ids.npy  [tokens, top_k] int8, uint8, int16, uint16, int32 or int64 in [-1, E); -1 = masked

JSON (--json):
  points: [{capacity_factor, expert_capacity, dropped_share, empty_row_share}]
  smallest: [{max_dropped_share, expert_capacity, capacity_factor}]

Example:
  binmoe capacity --expert-ids data/traces/flame-moe-290m_layer05_ids.npy --num-experts 64)"};

constexpr std::array kFactors = {0.25, 0.5, 0.75, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0};
constexpr std::array kPerMille = {0, 1, 10, 50};  // shares that may be dropped

struct Routing {
  Sizes sizes;
  std::vector<int32_t> tokens_per_expert;
  int64_t unmasked = 0;
};

struct Point {
  double capacity_factor = 0;
  int32_t expert_capacity = 0;
  double dropped_share = 0, empty_row_share = 0;
};

struct Smallest {
  double max_dropped_share = 0;
  int32_t expert_capacity = 0;
  double capacity_factor = 0;
};

int64_t dropped_at(const Routing& routing, int64_t capacity) {
  int64_t dropped = 0;
  for (const int64_t tokens : routing.tokens_per_expert) dropped += std::max<int64_t>(0, tokens - capacity);
  return dropped;
}

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

Point point_at(const Routing& routing, double factor) {
  const Sizes& s = routing.sizes;
  const int32_t capacity = expert_capacity(factor, s.tokens, s.top_k, s.num_experts);
  const int64_t dropped = dropped_at(routing, capacity);
  const int64_t empty = int64_t{s.num_experts} * capacity - (routing.unmasked - dropped);
  return {factor, capacity, share(dropped, routing.unmasked), share(empty, routing.unmasked)};
}

/// C*E/(T*K), or just below it: a quotient that was rounded up would give C + 1.
double factor_of(const Sizes& s, int32_t capacity) {
  double factor = share(int64_t{s.num_experts} * capacity, s.assignments());
  if (s.num_experts * (int64_t{capacity} + 1) >= int64_t{1} << 31) return factor;  // no factor gives so many rows
  while (factor > 0 && expert_capacity(factor, s.tokens, s.top_k, s.num_experts) > capacity)
    factor = std::nextafter(factor, 0.0);
  return factor;
}

Smallest smallest_at(const Routing& routing, int per_mille) {
  int64_t low = 0;
  int64_t high = *std::max_element(routing.tokens_per_expert.begin(), routing.tokens_per_expert.end());
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (dropped_at(routing, middle) * 1000 <= routing.unmasked * per_mille)
      high = middle;
    else
      low = middle + 1;
  }
  const auto capacity = static_cast<int32_t>(low);
  return {per_mille / 1000.0, capacity, factor_of(routing.sizes, capacity)};
}

Routing read_routing(const std::string& file, int32_t num_experts, const Context& context) {
  Array array = read_array(file);
  const Ids ids = ids_of(array);
  Routing routing;
  routing.sizes = {array.extent(0), to_int32(file + ": top_k", array.extent(1), 1), num_experts, 0};
  try {
    const Plan plan = make_plan(ids, routing.sizes, DropPolicy::token_order, {}, context);
    routing.tokens_per_expert.assign(plan.tokens_per_expert().begin(), plan.tokens_per_expert().end());
    routing.unmasked = plan.count();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_data) throw;
    throw Failure(kBadData, file + ": " + describe(error.fault()));
  }
  return routing;
}

std::string json_of(const std::vector<Point>& points, const std::vector<Smallest>& smallest) {
  nlohmann::ordered_json out;
  for (const Point& p : points)
    out["points"].push_back({{"capacity_factor", p.capacity_factor},
                             {"expert_capacity", p.expert_capacity},
                             {"dropped_share", p.dropped_share},
                             {"empty_row_share", p.empty_row_share}});
  for (const Smallest& s : smallest)
    out["smallest"].push_back({{"max_dropped_share", s.max_dropped_share},
                               {"expert_capacity", s.expert_capacity},
                               {"capacity_factor", s.capacity_factor}});
  return out.dump() + "\n";
}

std::string text_of(const Routing& routing, const std::vector<Point>& points, const std::vector<Smallest>& smallest) {
  char line[160];
  std::snprintf(line, sizeof line, "%lld tokens, top_k %d, %d experts, %lld of %lld assignments unmasked\n",
                static_cast<long long>(routing.sizes.tokens), routing.sizes.top_k, routing.sizes.num_experts,
                static_cast<long long>(routing.unmasked), static_cast<long long>(routing.sizes.assignments()));
  std::string out = line;
  out += "  factor   capacity    dropped  empty rows   (shares of the unmasked assignments)\n";
  for (const Point& p : points) {
    std::snprintf(line, sizeof line, "%8g %10d %8.2f %% %9.2f %%\n", p.capacity_factor, p.expert_capacity,
                  100 * p.dropped_share, 100 * p.empty_row_share);
    out += line;
  }
  out += "smallest capacity that drops\n";
  for (const Smallest& s : smallest) {
    std::snprintf(line, sizeof line, "%s %3g %%: %8d   (factor %.4f)\n",
                  s.max_dropped_share == 0 ? "       " : "at most", 100 * s.max_dropped_share, s.expert_capacity,
                  s.capacity_factor);
    out += line;
  }
  return out;
}

void run_capacity(const std::string& file, int64_t num_experts, Common& common) {
  const int32_t experts = to_int32("--num-experts", num_experts, 1);
  const Context context = common.context();
  Progress progress;
  progress.step("reading " + file);
  const Routing routing = read_routing(file, experts, context);
  std::vector<Point> points;
  for (const double factor : kFactors) points.push_back(point_at(routing, factor));
  std::vector<Smallest> smallest;
  for (const int per_mille : kPerMille) smallest.push_back(smallest_at(routing, per_mille));
  print(common.json ? json_of(points, smallest) : text_of(routing, points, smallest));
}

struct CapacityOptions {
  std::string ids;
  std::optional<int64_t> num_experts;
};

}  // namespace

void add_capacity(CLI::App& app, Common& common) {
  const auto options = std::make_shared<CapacityOptions>();
  CLI::App& command = add_command(app, common, kText);
  add_file(command, "--expert-ids", options->ids, "The router's choice")->required();
  add_number(command, "--num-experts", options->num_experts, "E")->required();
  command.callback([options, &common] { run_capacity(options->ids, *options->num_experts, common); });
}

}  // namespace binmoe::cli
