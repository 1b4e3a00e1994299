// The commands of the program, each added to its parser.
#pragma once

#include "common.h"

namespace binmoe::cli {

void add_plan(CLI::App& app, Common& common);
void add_check(CLI::App& app, Common& common);
void add_gather(CLI::App& app, Common& common);
void add_scatter(CLI::App& app, Common& common);
void add_wgrad(CLI::App& app, Common& common);
void add_scatter_backward(CLI::App& app, Common& common);
void add_gather_backward(CLI::App& app, Common& common);
void add_capacity(CLI::App& app, Common& common);
void add_tile(CLI::App& app, Common& common);
void add_simulate(CLI::App& app, Common& common);
void add_bench(CLI::App& app, Common& common);
void add_info(CLI::App& app, Common& common);
void add_demo(CLI::App& app, Common& common);

}  // namespace binmoe::cli
