#include "ascend/model/options.h"

#include "option_text.h"

namespace binmoe::ascend {
namespace {

constexpr const char* kDefaultSoc = "910B3";

const Soc* soc_named(std::string_view name) {
  for (const Soc& soc : socs())
    if (name == soc.name) return &soc;
  return nullptr;
}

std::string apply(std::string_view key, std::string_view value, ModelOptions& out) {
  if (key == "soc") {
    out.soc = soc_named(value);
    return out.soc != nullptr ? "" : "the backend ascend-model knows no SoC '" + std::string(value) + "'";
  }
  if (key == "order") {
    if (value == "auto") return "";
    for (const Order order : {Order::token, Order::expert}) {
      if (value != name_of(order)) continue;
      out.order = order;
      return "";
    }
    return "order is '" + std::string(value) + "'; there are: auto, token, expert";
  }
  return "the backend ascend-model has no option '" + std::string(key) + "'; there are: soc, order";
}

std::string parse(const char* options, ModelOptions& out) {
  out = {soc_named(kDefaultSoc), std::nullopt};
  return apply_options(options, [&](std::string_view key, std::string_view value) { return apply(key, value, out); });
}

}  // namespace

ModelOptions options_of(const char* options) {
  ModelOptions out;
  parse(options, out);
  return out;
}

std::string check_model_options(const char* options) {
  ModelOptions ignored;
  return parse(options, ignored);
}

std::vector<BackendOption> model_options() {
  BackendOption soc{"soc", kDefaultSoc, {}, "the chip that is modelled"};
  for (const Soc& entry : socs()) soc.values.push_back(entry.name);
  return {
      soc,
      {"order", "auto", {"auto", "token", "expert"}, "order in which a gather walks; auto: the tile plan's choice"}};
}

}  // namespace binmoe::ascend
