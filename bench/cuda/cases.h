// The rows of the benchmark: issue 6, section 4.
#pragma once

#include <string>
#include <vector>

#include "bench/cuda/problem.h"

namespace binmoe::bench {

struct Row {
  Call call = Call::gather;
  bool warm = false;
};

/// Rows that share ids and sizes.
struct Group {
  Case of;
  std::vector<Row> rows;
};

/// "deepseek-v3/zipf/bf16/odd H/scatter backward": what --filter is matched with.
std::string name_of(const Case& of, const Row& row);

/// All groups, bases of relative targets first. quick: bf16, uniform, the operations that have targets.
std::vector<Group> all_groups(bool quick);

}  // namespace binmoe::bench
