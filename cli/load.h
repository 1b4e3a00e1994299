// What a plan does to a batch, as text and as JSON.
#pragma once

#include <span>
#include <string>

#include "binmoe/binmoe.h"

namespace binmoe::cli {

/// The fields of plan.json, which --json prints too.
std::string load_json(const Plan& plan, DropPolicy policy);

/// Sizes, counts and a bar per expert, or per group of experts when there are many.
std::string load_text(const Plan& plan, DropPolicy policy);

/// "12.3 %"; "-" of nothing.
std::string percent(int64_t part, int64_t whole);

}  // namespace binmoe::cli
