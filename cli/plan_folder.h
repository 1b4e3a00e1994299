// A plan as a folder: DIR/NAME.npy for its six arrays, and DIR/plan.json.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "binmoe/binmoe.h"
#include "output.h"

namespace binmoe::cli {

inline constexpr const char* kPlanJson = "plan.json";
inline constexpr int kPlanFormatVersion = 1;

/// The files of a plan's folder: nothing else in an existing one is ever replaced.
std::vector<std::string> plan_files();

/// Write the plan as output `index`, a folder; `json` goes to plan.json. indices and bin_ids are cut to N.
void write_plan(Outputs& outputs, size_t index, const Plan& plan, const std::string& json);

/// The first fault, and the file that it is in.
struct PlanFault {
  Fault fault;
  std::filesystem::path file;
};

struct PlanRead {
  Plan plan;
  std::optional<PlanFault> fault;
};

/// Read and check a folder. The sizes are plan.json's; everything else comes from the arrays.
/// Errors: Failure when a file cannot be read, or its shape or dtype does not go with the sizes.
PlanRead read_plan(const std::filesystem::path& folder);

/// The same, for use: a fault is a Failure that names file, check, position, value and limit.
Plan read_sound_plan(const std::filesystem::path& folder);

/// Check the bins of another system: as check_bins, but more indices than assignments are a fault like any other.
std::optional<Fault> check_bins_of_files(const Bins& bins, const Sizes& sizes);

/// The array that a check speaks of: "bins" for bins_monotonic.
const char* array_of_check(const std::string& check);

}  // namespace binmoe::cli
