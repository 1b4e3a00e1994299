// What the backend ascend-model takes in Context::options: soc=NAME, order=token|expert.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "binmoe/ascend.h"
#include "binmoe/context.h"

namespace binmoe::ascend {

struct ModelOptions {
  const Soc* soc = nullptr;
  std::optional<Order> order;
};

/// Valid options only.
ModelOptions options_of(const char* options);

std::string check_model_options(const char* options);
std::vector<BackendOption> model_options();

}  // namespace binmoe::ascend
