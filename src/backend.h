// What a backend is: one function per operation. Arguments were checked by dispatch.cc; nothing here throws.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "binmoe/context.h"
#include "binmoe/types.h"

namespace binmoe {

struct Resources {
  Executor& executor;
  const char* options;  // never null
  void* workspace;
  size_t workspace_bytes;
};

struct PlanJob {
  Ids ids;
  DropPolicy policy;
  Weights priority;
  PlanView out;
};

struct PlanFromBinsJob {
  Bins bins;
  PlanView out;
};

struct GatherJob {
  ConstPlanView plan;
  ConstRows x;
  Weights weights;
  Rows y;
};

struct ScatterJob {
  ConstPlanView plan;
  ConstRows y;
  Weights weights;
  Rows out;
};

struct WgradJob {
  ConstPlanView plan;
  ConstRows y;
  ConstRows grad;
  WeightGradients dw;
};

struct ScatterBackwardJob {
  ConstPlanView plan;
  ConstRows y;
  ConstRows grad;
  Weights weights;
  Rows dy;
  WeightGradients dw;  // null data: not asked for, and y may be absent
};

struct BackendOperations {
  /// Settings that this backend takes in Context::options.
  std::vector<BackendOption> (*options)();
  /// Empty when the options ("" at least) and the backend's environment are understood, else what is wrong.
  std::string (*check_options)(const char* options);
  size_t (*plan_workspace_bytes)(const Sizes&, DropPolicy, DType priority_type, const Executor&);
  /// Returns the first id that is out of range, before any output is written.
  std::optional<Fault> (*plan)(const PlanJob&, const Resources&);
  void (*plan_from_bins)(const PlanFromBinsJob&, const Resources&);
  void (*gather)(const GatherJob&, const Resources&);
  void (*scatter)(const ScatterJob&, const Resources&);
  void (*wgrad)(const WgradJob&, const Resources&);
  void (*scatter_backward)(const ScatterBackwardJob&, const Resources&);
};

constexpr uint8_t kAllDTypes = (1 << (static_cast<int>(DType::bytes) + 1)) - 1;

/// Table entries; each stands in its backend's folder.
Backend reference_backend();
Backend cpu_backend();
Backend ascend_model_backend();

}  // namespace binmoe
