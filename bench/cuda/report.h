// What was measured, as a table for people and as JSON for programs.
#pragma once

#include <string>
#include <vector>

#include "bench/cuda/targets.h"

namespace binmoe::bench {

/// What it was measured on, and with which commands.
struct Machine {
  std::string device, command, host_backend;
  int driver = 0, runtime = 0;  ///< CUDA versions, 1000 * major + 10 * minor
  std::vector<double> copies;   ///< bytes per us, in the order measured
};

/// The head of the markdown table.
std::string table_head();
std::string table_row(const Result& result, const std::vector<Target>& targets);

/// How many targets and public times were missed, and which rows are wrong.
struct Tally {
  int wrong = 0, met = 0, missed = 0, faster = 0, slower = 0;
};
std::string summary(const Tally& tally, const Machine& machine);

std::string json_of(const Machine& machine, const std::vector<Result>& results,
                    const std::vector<std::vector<Target>>& targets);

}  // namespace binmoe::bench
