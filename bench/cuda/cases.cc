#include "bench/cuda/cases.h"

#include <cstring>

#include "bench/cuda/targets.h"
#include "bench/routing.h"

namespace binmoe::bench {
namespace {

constexpr double kFactor = 1.25, kDecodeFactor = 2;
constexpr int64_t kTokens = 16384, kDeepseekTokens = 8192, kDecodeTokens = 128;

Case case_of(const Model& model, const char* routing, DType dtype = DType::bf16) {
  const int64_t tokens = std::strcmp(model.name, "deepseek-v3") == 0 ? kDeepseekTokens : kTokens;
  const int32_t capacity = expert_capacity(kFactor, tokens, model.top_k, model.num_experts);
  return {model.name, routing, {tokens, model.top_k, model.num_experts, capacity}, model.hidden_size, dtype, 0, ""};
}

Case decode_case(const char* routing) {
  const Model& model = *find_model("deepseek-v3");
  const int32_t capacity = expert_capacity(kDecodeFactor, kDecodeTokens, model.top_k, model.num_experts);
  Case out = case_of(model, routing);
  out.model = kDecode;
  out.sizes = {kDecodeTokens, model.top_k, model.num_experts, capacity};
  return out;
}

std::vector<Row> rows_of(bool quick) {
  std::vector<Row> out = {{Call::plan_token_order}, {Call::plan_token_order, true}, {Call::gather},
                          {Call::scatter},          {Call::scatter_backward},       {Call::plan_gather}};
  if (quick) return out;
  for (const bool warm : {false, true})
    for (const Call call : {Call::plan_choice_order, Call::plan_by_weight}) out.push_back({call, warm});
  out.push_back({Call::gather_weighted});
  out.push_back({Call::wgrad});
  return out;
}

const std::vector<Row> kMovers = {{Call::gather}, {Call::scatter}, {Call::scatter_backward}};

}  // namespace

std::string name_of(const Case& of, const Row& row) {
  std::string out = of.model + "/" + of.routing + "/" + binmoe::name_of(of.dtype) + "/";
  if (!of.variant.empty()) out += of.variant + "/";
  return out + name_of(row.call) + (row.warm ? ", warm" : "");
}

std::vector<Group> all_groups(bool quick) {
  std::vector<Group> out;
  const std::vector<const char*> routings = quick ? std::vector{"uniform"} : std::vector{"uniform", "zipf"};
  for (const char* routing : routings) out.push_back({decode_case(routing), rows_of(quick)});
  for (const Model& model : models())
    for (const char* routing : routings) out.push_back({case_of(model, routing), rows_of(quick)});
  if (quick) return out;
  for (const DType dtype : {DType::f32, DType::f16})
    for (const Model& model : models()) out.push_back({case_of(model, "uniform", dtype), kMovers});
  for (const Model& model : models()) {
    Case odd = case_of(model, "uniform");
    odd.hidden_size -= 1;
    odd.variant = "odd H";
    out.push_back({odd, kMovers});
    odd = case_of(model, "uniform");
    odd.offset = size_of(odd.dtype);
    odd.variant = "odd alignment";
    out.push_back({odd, kMovers});
  }
  for (const char* routing : {"half-masked", "few-experts"})
    for (const Model& model : models()) out.push_back({case_of(model, routing), kMovers});
  return out;
}

}  // namespace binmoe::bench
