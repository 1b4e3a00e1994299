#include "bench/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace binmoe::bench {
namespace {

constexpr Model kModels[] = {
    {"mixtral-8x7b", 4096, 8, 2},  {"gpt-oss-120b", 2880, 128, 4},    {"qwen3-30b", 2048, 128, 8},
    {"deepseek-v3", 7168, 256, 8}, {"llama4-maverick", 5120, 128, 1},
};

constexpr uint64_t kSeed = 2024;

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

std::span<const Model> models() {
  return kModels;
}

const Model* find_model(const std::string& name) {
  for (const Model& model : kModels)
    if (name == model.name) return &model;
  return nullptr;
}

double noise(uint64_t stream, uint64_t index) {
  const uint64_t bits = mix(mix(kSeed + stream * 0x9e3779b97f4a7c15u) + index * 0x9e3779b97f4a7c15u);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

std::vector<int32_t> make_routing(Routing routing, int64_t tokens, int32_t top_k, int32_t num_experts) {
  std::vector<int32_t> ids(static_cast<size_t>(tokens * top_k), 0);
  if (routing == Routing::one) return ids;
  const auto experts = static_cast<size_t>(num_experts);
  std::vector<double> score(experts);
  std::vector<int32_t> order(experts);
  for (int64_t t = 0; t < tokens; ++t) {
    for (size_t e = 0; e < experts; ++e) {
      const double p = routing == Routing::zipf ? 1.0 / static_cast<double>(e + 1) : 1.0;
      const double u = noise(0, static_cast<uint64_t>(t) * experts + e) + 0x1p-54;
      score[e] = std::log(p) - std::log(-std::log(u));
    }
    std::iota(order.begin(), order.end(), 0);
    const auto distinct = std::min<ptrdiff_t>(top_k, num_experts);
    std::partial_sort(order.begin(), order.begin() + distinct, order.end(), [&](int32_t a, int32_t b) {
      return score[static_cast<size_t>(a)] > score[static_cast<size_t>(b)];
    });
    for (int32_t k = 0; k < top_k; ++k)
      ids[static_cast<size_t>(t * top_k + k)] = order[static_cast<size_t>(k % distinct)];
  }
  return ids;
}

}  // namespace binmoe::bench
