// What a backend is: one function per operation. Arguments were checked by dispatch.cc; nothing here throws, but for
// what docs/design.md, section 5, names.
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
  void* stream = nullptr;  // of a device backend
};

/// The memory that a device backend works on.
struct DeviceMemory {
  void* (*allocate)(size_t bytes, const Resources&);  // null when there is not so much; 256-byte aligned
  void (*release)(void*, const Resources&);
  void (*copy_in)(void* device, const void* host, size_t bytes, const Resources&);
  void (*copy_out)(void* host, const void* device, size_t bytes, const Resources&);  // after all before it; waits
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
  const DeviceMemory* memory = nullptr;                    // null = host memory
  std::vector<BackendProperty> (*properties)() = nullptr;  // null = nothing to tell
};

constexpr uint8_t kAllDTypes = (1 << (static_cast<int>(DType::bytes) + 1)) - 1;

/// Table entries; each stands in its backend's folder.
Backend reference_backend();
Backend cpu_backend();
Backend cuda_backend();
Backend ascend_model_backend();

}  // namespace binmoe
