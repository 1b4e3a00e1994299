#include "tile_options.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace binmoe::cli {
namespace {

template <class Enum, size_t kCount>
Enum named(const std::string& option, const std::string& name, const std::array<Enum, kCount>& all) {
  std::string names;
  for (const Enum value : all) {
    if (name == name_of(value)) return value;
    names += (names.empty() ? "" : ", ") + std::string(name_of(value));
  }
  throw Failure(kBadUsage, option + " names '" + name + "'; there are: " + names);
}

constexpr std::array kRowTypes = {DType::f32, DType::bf16, DType::f16};

int64_t required(const std::optional<int64_t>& value, const char* option) {
  if (!value) throw Failure(kBadUsage, std::string(option) + " is needed");
  if (*value < 0) throw Failure(kBadUsage, std::string(option) + " must not be negative");
  return *value;
}

}  // namespace

void add_tile_options(CLI::App& command, TileOptions& o) {
  const auto text = [&](const char* name, std::string& value, const char* description) {
    command.add_option(name, value, description)->type_name("NAME")->capture_default_str();
  };
  text("--soc", o.soc, "The chip: binmoe tile --list");
  text("--op", o.op, "plan, gather, scatter, wgrad or scatter-backward");
  text("--dtype", o.dtype, "Of rows: f32, bf16, f16");
  command.add_flag("--weights", o.weighted, "With router weights");
  text("--weights-dtype", o.weights_dtype, "Of the weights: f32, bf16, f16");
  text("--order", o.order, "Of a gather: expert or token; else the faster one by the estimate");
  text("--policy", o.policy, "Of a plan: token_order, choice_order or by_weight");
  text("--family", o.family, "Of the kernels: ascendc or triton");
  text("--row-copy", o.row_copy, "Of a Triton gather by expert: indexed_load, element_insert or index_select");
  add_number(command, "--tokens", o.tokens, "T");
  add_number(command, "--hidden-size", o.hidden_size, "H");
  add_number(command, "--num-experts", o.num_experts, "E");
  add_number(command, "--top-k", o.top_k, "K");
  add_number(command, "--expert-capacity", o.expert_capacity, "C");
}

ascend::TileRequest request_of(const TileOptions& o, const Sizes* sizes) {
  using namespace ascend;
  TileRequest r;
  r.soc = &find_soc(o.soc);
  r.family = named("--family", o.family, std::array{Family::ascendc, Family::triton});
  if (!o.row_copy.empty())
    r.row_copy = named("--row-copy", o.row_copy,
                       std::array{RowCopy::indexed_load, RowCopy::element_insert, RowCopy::index_select});
  r.op = named("--op", o.op, std::array{Op::plan, Op::gather, Op::scatter, Op::wgrad, Op::scatter_backward});
  r.policy =
      named("--policy", o.policy, std::array{DropPolicy::token_order, DropPolicy::choice_order, DropPolicy::by_weight});
  if (!o.order.empty()) r.order = named("--order", o.order, std::array{Order::token, Order::expert});
  r.rows = named("--dtype", o.dtype, kRowTypes);
  if (o.weighted) r.weights = named("--weights-dtype", o.weights_dtype, kRowTypes);
  r.hidden_size = required(o.hidden_size, "--hidden-size");
  if (sizes != nullptr) {
    r.tokens = sizes->tokens;
    r.top_k = sizes->top_k;
    r.num_experts = sizes->num_experts;
    r.expert_capacity = sizes->expert_capacity;
    return r;
  }
  r.tokens = required(o.tokens, "--tokens");
  r.top_k = to_int32("--top-k", required(o.top_k, "--top-k"), 1);
  r.num_experts = to_int32("--num-experts", required(o.num_experts, "--num-experts"), 1);
  r.expert_capacity = required(o.expert_capacity, "--expert-capacity");
  return r;
}

std::string bar_of(double share, size_t width) {
  const auto filled = std::min(width, static_cast<size_t>(std::max(share, 0.0) * static_cast<double>(width) + 0.5));
  return "[" + std::string(filled, '#') + std::string(width - filled, ' ') + "]";
}

std::string budget_of(const ascend::TilePlan& plan) {
  std::string out;
  char line[160];
  const auto limit = static_cast<double>(plan.ub_limit_bytes);
  for (const ascend::TileBuffer& buffer : plan.buffers) {
    const int64_t bytes = buffer.bytes * buffer.count;
    std::snprintf(line, sizeof line, "  %-28s %3d x %8lld B = %8lld B  %s\n", buffer.name.c_str(), buffer.count,
                  static_cast<long long>(buffer.bytes), static_cast<long long>(bytes),
                  bar_of(static_cast<double>(bytes) / limit, 32).c_str());
    out += line;
  }
  std::snprintf(line, sizeof line, "  %-28s %27lld B  %s\n", "UB used", static_cast<long long>(plan.ub_bytes),
                bar_of(static_cast<double>(plan.ub_bytes) / limit, 32).c_str());
  out += line;
  std::snprintf(line, sizeof line, "  %-28s %27lld B\n", "UB that a kernel may use",
                static_cast<long long>(plan.ub_limit_bytes));
  return out + line;
}

}  // namespace binmoe::cli
