#include "load.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "plan_folder.h"

namespace binmoe::cli {
namespace {

constexpr int32_t kMaxBars = 32;
constexpr int64_t kBarWidth = 50;

__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(line, sizeof line, pattern, arguments);
  va_end(arguments);
  return line;
}

struct Bar {
  int32_t begin = 0, end = 0;  // experts
  int64_t tokens = 0, kept = 0;
};

std::vector<Bar> bars_of(const Plan& plan) {
  const int32_t experts = plan.sizes().num_experts;
  const int32_t group = (experts - 1) / kMaxBars + 1;
  std::vector<Bar> bars;
  for (int32_t begin = 0; begin < experts; begin += group) {
    Bar bar{begin, std::min(experts - begin, group) + begin, 0, 0};
    for (int32_t e = bar.begin; e < bar.end; ++e) {
      bar.tokens += plan.tokens_per_expert()[static_cast<size_t>(e)];
      bar.kept += plan.kept_per_expert()[static_cast<size_t>(e)];
    }
    bars.push_back(bar);
    if (experts - begin <= group) break;
  }
  return bars;
}

std::string bar_lines(const Plan& plan) {
  const std::vector<Bar> bars = bars_of(plan);
  int64_t most = 1;
  for (const Bar& bar : bars) most = std::max(most, bar.tokens);
  const bool grouped = bars.front().end > 1;
  std::string out = grouped ? format("load by groups of %d experts (# kept, x dropped):\n", bars.front().end)
                            : "load by expert (# kept, x dropped):\n";
  for (const Bar& bar : bars) {
    // Anything above nothing shows at least one character.
    const int64_t kept = (bar.kept * kBarWidth + most - 1) / most;
    const int64_t dropped = ((bar.tokens - bar.kept) * kBarWidth + most - 1) / most;
    const std::string label =
        bar.end - bar.begin > 1 ? format("%d-%d", bar.begin, bar.end - 1) : std::to_string(bar.begin);
    out += format("  %11s %10lld ", label.c_str(), static_cast<long long>(bar.tokens));
    out += std::string(static_cast<size_t>(kept), '#') + std::string(static_cast<size_t>(dropped), 'x');
    while (out.back() == ' ') out.pop_back();
    out += "\n";
  }
  return out;
}

}  // namespace

std::string percent(int64_t part, int64_t whole) {
  return whole == 0 ? "-" : format("%.1f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string load_json(const Plan& plan, DropPolicy policy) {
  const Sizes& sizes = plan.sizes();
  const Load load = load_of(plan);
  nlohmann::ordered_json out = {{"format_version", kPlanFormatVersion},
                                {"tokens", sizes.tokens},
                                {"top_k", sizes.top_k},
                                {"num_experts", sizes.num_experts},
                                {"expert_capacity", sizes.expert_capacity},
                                {"policy", name_of(policy)},
                                {"kept", load.kept},
                                {"dropped", load.dropped},
                                {"masked", load.masked},
                                {"empty_rows", load.empty_rows},
                                {"max_over_mean_load", load.max_over_mean}};
  out["tokens_per_expert"] = std::vector<int32_t>(plan.tokens_per_expert().begin(), plan.tokens_per_expert().end());
  return out.dump() + "\n";
}

std::string load_text(const Plan& plan, DropPolicy policy) {
  const Sizes& sizes = plan.sizes();
  const Load load = load_of(plan);
  const int64_t unmasked = load.kept + load.dropped;
  const auto line = [](const char* name, int64_t count, const std::string& rest) {
    return format("%-15s %10lld  %s\n", name, static_cast<long long>(count), rest.c_str());
  };
  std::string out = format("%lld tokens, top_k %d, %d experts, capacity %d, %s\n", static_cast<long long>(sizes.tokens),
                           sizes.top_k, sizes.num_experts, sizes.expert_capacity, name_of(policy));
  out += line("kept", load.kept, percent(load.kept, unmasked) + " of the unmasked assignments");
  out += line("dropped", load.dropped, percent(load.dropped, unmasked) + " of the unmasked assignments");
  out += line("masked", load.masked, percent(load.masked, sizes.assignments()) + " of all assignments");
  out += line("empty rows", load.empty_rows, percent(load.empty_rows, sizes.expert_rows()) + " of the expert rows");
  out += format("%-15s %10.2f\n", "max/mean load", load.max_over_mean);
  return out + bar_lines(plan);
}

}  // namespace binmoe::cli
