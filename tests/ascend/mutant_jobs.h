// The jobs that mutants of the kernels are run on: small, but every combination of optional arguments, several blocks
// to a program, ragged ends, tiles of columns, dropped and masked assignments, empty experts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ascend/vector_core/machine.h"

namespace test {

struct Observation {
  std::vector<std::vector<unsigned char>> outputs;
  std::vector<int64_t> read_bytes;  ///< of each launch
  std::vector<binmoe::vector_core::SiteHits> sites;
};

struct Job {
  std::string kernel;  ///< "scatter", "plan by_weight": one set of launches
  std::string name;
  /// May be called from several threads at once. Throws ModelFault, also when an output byte was not written once.
  std::function<Observation(const binmoe::vector_core::Mutation*)> run;
};

struct Baseline {
  Job job;
  Observation seen;  ///< without a mutation
};

std::vector<Job> all_jobs();

}  // namespace test
