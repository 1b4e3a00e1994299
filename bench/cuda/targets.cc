#include "bench/cuda/targets.h"

#include <cstdio>
#include <iterator>

namespace binmoe::bench {
namespace {

struct Pair {
  double uniform, zipf;
};

/// A row for each model: shares to reach, then the best public times in us. 0 = nothing is asked.
struct ModelTargets {
  const char* model;
  Pair gather, scatter, backward, plan_gather;
  Pair public_gather, public_scatter, public_backward, public_plan_gather;
};

constexpr ModelTargets kModels[] = {
    {"mixtral-8x7b", {.93, .93}, {1.00, .98}, {.97, .97}, {.88, .88}, {151, 144}, {95, 89}, {246, 239}, {244, 249}},
    {"gpt-oss-120b", {.88, .91}, {1.00, .97}, {.92, .93}, {.83, .83}, {209, 183}, {112, 92}, {371, 331}, {323, 318}},
    {"qwen3-30b", {.94, .94}, {1.02, .98}, {.94, .96}, {.89, .89}, {300, 266}, {141, 111}, {445, 397}, {418, 413}},
    {"deepseek-v3", {.93, .93}, {1.02, .99}, {.94, .96}, {.90, .90}, {542, 482}, {243, 188}, {766, 711}, {722, 690}},
    {"llama4-maverick", {.93, .90}, {.94, .92}, {.94, .94}, {.84, .84}, {95, 84}, {84, 74}, {175, 154}, {186, 160}},
    {kDecode, {}, {}, {}, {}, {10.5, 10.6}, {7.7, 7.2}, {18.8, 18.1}, {38, 38}},
};

const ModelTargets* targets_named(const std::string& model) {
  for (const ModelTargets& entry : kModels)
    if (model == entry.model) return &entry;
  return nullptr;
}

double of_routing(const Pair& pair, const std::string& routing) {
  if (routing == "uniform") return pair.uniform;
  return routing == "zipf" ? pair.zipf : 0;
}

double share_asked(const ModelTargets& of, Call call, const std::string& routing) {
  switch (call) {
    case Call::gather:
      return of_routing(of.gather, routing);
    case Call::scatter:
      return of_routing(of.scatter, routing);
    case Call::scatter_backward:
      return of_routing(of.backward, routing);
    case Call::plan_gather:
      return of_routing(of.plan_gather, routing);
    default:
      return 0;
  }
}

using Figure = Target::Figure;

std::vector<Target> decode_targets(Call call) {
  switch (call) {
    case Call::gather:
      return {{Figure::us, 9.0}, {Figure::behind_us, 8.3}};
    case Call::scatter:
      return {{Figure::us, 6.1}};
    case Call::scatter_backward:
      return {{Figure::us, 14.5}};
    case Call::plan_token_order:
      return {{Figure::us, 4.3}};
    case Call::plan_gather:
      return {{Figure::us, 12.4}};
    default:
      return {};
  }
}

/// Plans by their numbers of ids and experts.
double plan_us_asked(const Sizes& sizes) {
  const int64_t ids = sizes.assignments();
  if (ids == 32768 && sizes.num_experts == 8) return 4.8;
  if (ids == 65536 && sizes.num_experts == 256) return 11;
  return ids == 131072 && sizes.num_experts == 128 ? 12.3 : 0;
}

/// The row that a relative target is measured against, or null.
const Result* base_of(const Result& result, Call call, const std::vector<Result>& before) {
  const bool skewed = result.of.routing == "half-masked" || result.of.routing == "few-experts";
  const std::string routing = skewed ? "uniform" : result.of.routing;
  for (const Result& other : before)
    if (other.of.model == result.of.model && other.of.routing == routing && other.of.dtype == result.of.dtype &&
        other.of.variant.empty() && other.call == call && other.warm == result.warm && other.wrong.empty())
      return &other;
  return nullptr;
}

}  // namespace

bool Target::met(const Result& result) const {
  if (figure == Figure::share) return result.share() >= bound;
  if (figure == Figure::us) return result.full.us <= bound;
  return result.behind_captured && *result.behind_captured <= bound;
}

std::string Target::text() const {
  char out[64];
  if (figure == Figure::share)
    std::snprintf(out, sizeof out, "share >= %.2f", bound);
  else
    std::snprintf(out, sizeof out, "<= %.1f us%s", bound, figure == Figure::us ? "" : " behind");
  return out;
}

std::vector<Target> targets_of(const Result& result, const std::vector<Result>& before) {
  if (result.call == Call::plan_choice_order || result.call == Call::plan_by_weight) {
    const Result* base = base_of(result, Call::plan_token_order, before);
    if (base == nullptr) return {};
    return {{Figure::us, base->full.us * (result.call == Call::plan_by_weight ? 4.0 : 1.1)}};
  }
  const bool odd = !result.of.variant.empty();
  if (odd || result.of.routing == "half-masked" || result.of.routing == "few-experts") {
    const Result* base = base_of(result, result.call, before);
    if (base == nullptr) return {};
    const bool wide = result.call == Call::scatter && result.of.sizes.top_k <= 2;
    return {{Figure::share, base->share() * (odd ? 0.7 : 1 / (wide ? 2.5 : 1.3))}};
  }
  if (result.of.model == kDecode) return decode_targets(result.call);
  if (is_plan(result.call)) {
    const double us = plan_us_asked(result.of.sizes);
    return us > 0 ? std::vector<Target>{{Figure::us, us}} : std::vector<Target>{};
  }
  const ModelTargets* of = targets_named(result.of.model);
  const double share = of == nullptr ? 0 : share_asked(*of, result.call, result.of.routing);
  return share > 0 ? std::vector<Target>{{Figure::share, share}} : std::vector<Target>{};
}

std::optional<double> public_us(const Case& of, Call call) {
  const ModelTargets* entry = targets_named(of.model);
  if (entry == nullptr || of.dtype != DType::bf16 || !of.variant.empty()) return std::nullopt;
  double us = 0;
  if (call == Call::gather) us = of_routing(entry->public_gather, of.routing);
  if (call == Call::scatter) us = of_routing(entry->public_scatter, of.routing);
  if (call == Call::scatter_backward) us = of_routing(entry->public_backward, of.routing);
  if (call == Call::plan_gather) us = of_routing(entry->public_plan_gather, of.routing);
  return us > 0 ? std::optional<double>(us) : std::nullopt;
}

}  // namespace binmoe::bench
