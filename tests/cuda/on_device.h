// A problem whose arrays are in device memory, and one check per operation against the oracle.
#pragma once

#include "cuda/device.h"

namespace test {

/// used_rows: only rows of y that hold a token are copied to the device; its empty rows, its gaps and the workspace are
/// never written, so that initcheck sees who reads them.
enum class Upload { everything, used_rows };

class OnDevice {
 public:
  OnDevice(const Problem& problem, cudaStream_t stream, Upload upload = Upload::everything);

  const Problem& p;
  Context context;
  DeviceBytes id_bytes;
  DeviceNumbers weights, priority;
  DeviceTensor x, grad, y;
  DevicePlan plan;  ///< the oracle's
  Workspace workspace;

  Ids ids() const { return {id_bytes.data(), p.c.sizes.assignments(), p.c.id_type}; }
  Weights priority_view() const { return p.c.policy == DropPolicy::by_weight ? priority.weights() : Weights{}; }
  Weights weights_if(bool given) const { return given ? weights.weights() : Weights{}; }
  DeviceTensor expert_rows_out() const { return {p.expert_rows_out(), DeviceBytes::Use::output}; }
  DeviceTensor token_rows_out() const { return {p.token_rows_out(), DeviceBytes::Use::output}; }
  DeviceNumbers gradients_out(DType type) const;

  /// Other ids, weights, priority, rows and plan of the same sizes and types, into the same memory.
  void replace_with(const Problem& other) const;
};

/// The bytes that gather, or scatter_backward's dy, must give.
std::vector<unsigned char> expected_gather(const Problem& p, const Tensor& rows, bool weighted);
std::vector<unsigned char> expected_scatter(const Problem& p, bool weighted);
/// dw on the device within its bound, guard zones intact.
testing::AssertionResult same_gradients(const DeviceNumbers& dw, const Problem& p, const Tensor& grad);

void check_plan_on_device(const OnDevice& d);
void check_movers_on_device(const OnDevice& d);

/// Both checks on each case, until one fails.
void sweep_on_device(const std::vector<Case>& cases, Upload upload = Upload::everything);

}  // namespace test
