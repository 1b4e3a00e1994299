// Route 4 tokens to 2 experts of capacity 2, scale each expert's rows, and combine them again.
#include <binmoe/binmoe.h>

#include <cstdio>
#include <vector>

int main() {
  const std::vector<int32_t> expert_ids = {0, 1, 0, 0};  // [tokens, top_k]; expert 0 drops its third
  const std::vector<float> weights = {1.0F, 0.5F, 0.25F, 1.0F};
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};  // [tokens, hidden_size]
  std::vector<float> y(4 * 2), out(4 * 2);

  const binmoe::Plan plan =
      binmoe::make_plan({expert_ids.data(), 4}, {.tokens = 4, .num_experts = 2, .expert_capacity = 2});
  const binmoe::Rows expert_rows{.data = y.data(), .rows = 4, .cols = 2, .stride = 2};
  binmoe::gather(plan, {x.data(), 4, 2, 2}, {}, expert_rows);
  for (size_t i = 0; i < y.size(); ++i) y[i] *= i < 4 ? 10.0F : 100.0F;  // the experts
  binmoe::scatter(plan, expert_rows, {weights.data(), 4}, {out.data(), 4, 2, 2});

  for (size_t t = 0; t < 4; ++t) std::printf("token %zu: %g %g\n", t, double{out[2 * t]}, double{out[2 * t + 1]});
}
