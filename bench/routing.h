// The models and routings of docs/design.md, section 6.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace binmoe::bench {

struct Model {
  const char* name;
  int64_t hidden_size;
  int32_t num_experts;
  int32_t top_k;
};

std::span<const Model> models();

/// Null when there is no such model.
const Model* find_model(const std::string& name);

enum class Routing { uniform, zipf, one };

/// expert_ids [tokens, top_k]. uniform and zipf: per token the top_k experts with the largest log(p_e) + Gumbel noise,
/// p_e equal or 1/(e+1), distinct while there are enough experts; one: all to expert 0. Always the same for the same
/// arguments: the noise is a hash of (seed, token, expert).
std::vector<int32_t> make_routing(Routing routing, int64_t tokens, int32_t top_k, int32_t num_experts);

/// Uniform in [0, 1): a hash of (stream, index).
double noise(uint64_t stream, uint64_t index);

}  // namespace binmoe::bench
