// binmoe tile
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "tile_options.h"

namespace binmoe::cli {
namespace {

constexpr CommandText kText = {
    "tile", "Print the tile plan of an Ascend kernel and its exact Unified Buffer budget.",
    R"(Programs, rows held in the Unified Buffer (UB), columns of a tile, buffers with their multi-buffering. The budget
is exact for the Ascend C kernels, an upper bound for the Triton ones. The estimate comes from bytes and published
figures; nothing was measured on a device.

JSON (--json):
  soc, family, row_copy, op, order, dtype, num_programs, sub_block_size, block_x, buffers: [{name, bytes, count}],
  ub_bytes, ub_limit_bytes, estimate_us

Examples:
  binmoe tile --soc 910B3 --op gather --dtype bf16 --tokens 16384 \
    --hidden-size 4096 --num-experts 8 --top-k 2 --expert-capacity 5120
  binmoe tile --list)"};

std::string json_of(const ascend::TilePlan& plan) {
  const ascend::TileRequest& r = plan.request;
  nlohmann::ordered_json out = {{"soc", r.soc->name},
                                {"family", name_of(r.family)},
                                {"row_copy", nullptr},
                                {"op", name_of(r.op)},
                                {"order", nullptr},
                                {"dtype", name_of(r.rows)},
                                {"num_programs", plan.num_programs},
                                {"sub_block_size", plan.sub_block_size},
                                {"block_x", plan.block_x}};
  if (r.row_copy) out["row_copy"] = name_of(*r.row_copy);
  if (r.op == ascend::Op::gather) out["order"] = name_of(plan.order);
  out["buffers"] = nlohmann::ordered_json::array();
  for (const ascend::TileBuffer& buffer : plan.buffers)
    out["buffers"].push_back({{"name", buffer.name}, {"bytes", buffer.bytes}, {"count", buffer.count}});
  out["ub_bytes"] = plan.ub_bytes;
  out["ub_limit_bytes"] = plan.ub_limit_bytes;
  out["estimate_us"] = plan.estimate_us;
  return out.dump() + "\n";
}

std::string text_of(const ascend::TilePlan& plan) {
  const ascend::TileRequest& r = plan.request;
  std::string out =
      std::string(r.soc->name) + " (" + r.soc->generation + "), " + name_of(r.family) + ", " + name_of(r.op) +
      (r.op == ascend::Op::gather ? std::string(" in ") + name_of(plan.order) + " order" : "") + ", " +
      name_of(r.rows) + (r.weights ? std::string(" with ") + name_of(*r.weights) + " weights" : "") + "\n";
  out += "programs        " + std::to_string(plan.num_programs) + ", one a vector core\n";
  out += "dealt           " + std::to_string(plan.items) +
         (plan.order == ascend::Order::expert ? " sorted positions" : " items") + ", " +
         std::to_string(plan.items_per_block) + " at a time, round robin\n";
  out += "SUB_BLOCK_SIZE  " + std::to_string(plan.sub_block_size) + "\n";
  out += "BLOCK_X         " + std::to_string(plan.block_x) + "\n" + budget_of(plan);
  char line[80];
  std::snprintf(line, sizeof line, "estimate        %.1f us (not a measurement)\n", plan.estimate_us);
  return out + line;
}

std::string list_of(bool json) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  std::string text = "name        generation  vector cores  UB bytes  usable  source\n";
  for (const ascend::Soc& soc : ascend::socs()) {
    array.push_back({{"soc", soc.name},
                     {"generation", soc.generation},
                     {"vector_cores", soc.vector_cores},
                     {"ub_bytes", soc.ub_bytes},
                     {"ub_limit_bytes", soc.ub_limit_bytes},
                     {"source", soc.source}});
    char line[200];
    std::snprintf(line, sizeof line, "%-11s %-11s %12d %9lld %7lld  %s\n", soc.name, soc.generation, soc.vector_cores,
                  static_cast<long long>(soc.ub_bytes), static_cast<long long>(soc.ub_limit_bytes), soc.source);
    text += line;
  }
  return json ? nlohmann::ordered_json{{"socs", array}}.dump() + "\n" : text;
}

}  // namespace

void add_tile(CLI::App& app, Common& common) {
  CLI::App& command = add_command(app, common, kText);
  auto options = std::make_shared<TileOptions>();
  auto list = std::make_shared<bool>(false);
  add_tile_options(command, *options);
  command.add_flag("--list", *list, "Name the chips");
  command.callback([options, list, &common] {
    if (*list) return print(list_of(common.json));
    const ascend::TilePlan plan = ascend::tile_plan(request_of(*options));
    print(common.json ? json_of(plan) : text_of(plan));
  });
}

}  // namespace binmoe::cli
