// Host arrays on a device backend: copied in, the outputs copied back. Device arrays, and every array of a host
// backend, pass as they are.
#pragma once

#include <cstdint>
#include <vector>

#include "backend.h"

namespace binmoe {

class Staging {
 public:
  Staging(const char* operation, const Backend& backend, const Context& context, Resources& resources);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// False: everything passes as it is.
  bool active() const { return active_; }

  ConstRows in(const ConstRows& rows);
  Weights in(const Weights& weights);
  Ids in(const Ids& ids);
  Bins in(const Bins& bins);
  ConstPlanView in(const ConstPlanView& plan);

  // Outputs are copied in as well: what an operation leaves alone (gaps between rows) stays as it was.
  Rows out(const Rows& rows);
  WeightGradients out(const WeightGradients& gradients);
  /// The copy has a status, also where `plan` has none.
  PlanView out(const PlanView& plan);

  /// Device memory for the call, when active.
  void* scratch(size_t bytes);

  /// Wait for the plan's status: the id that was out of range, if one was.
  std::optional<Fault> fault_of(const PlanView& plan, int64_t num_experts);

  /// Copy the outputs back and wait.
  void finish();

 private:
  /// At the same offset from a 256-byte boundary as on the host.
  void* place(const void* host, int64_t bytes);
  void* place_out(void* host, int64_t bytes);

  struct CopyBack {
    void* host;
    const void* device;
    size_t bytes;
  };
  const char* operation_;
  const DeviceMemory* memory_;
  Resources& resources_;
  bool active_;
  std::vector<void*> blocks_;
  std::vector<CopyBack> outputs_;
};

/// A copy on the host of `count` elements of device memory. Waits.
template <class T>
std::vector<T> fetch(const Backend& backend, const Resources& resources, const T* device, int64_t count) {
  std::vector<T> host(static_cast<size_t>(count));
  if (count > 0) backend.operations->memory->copy_out(host.data(), device, host.size() * sizeof(T), resources);
  return host;
}

}  // namespace binmoe
