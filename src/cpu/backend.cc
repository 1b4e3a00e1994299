#include "backend.h"

#include "cpu/operations.h"
#include "cpu/settings.h"

namespace binmoe {
namespace {

constexpr BackendOperations kOperations = {
    .options = cpu::options,
    .check_options = cpu::check_options,
    .plan_workspace_bytes = cpu::plan_workspace_bytes,
    .plan = cpu::plan,
    .plan_from_bins = cpu::plan_from_bins,
    .gather = cpu::gather,
    .scatter = cpu::scatter,
    .wgrad = cpu::wgrad,
    .scatter_backward = cpu::scatter_backward,
};

}  // namespace

Backend cpu_backend() {
  const bool supported = cpu::settings_of("").kernels != nullptr;
  return {"cpu", "SIMD and threads", supported ? nullptr : "this processor is older than x86-64-v2", &kOperations,
          kAllDTypes};
}

}  // namespace binmoe
