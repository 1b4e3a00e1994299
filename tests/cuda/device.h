// Device memory for tests: guarded arrays, tensors, plans, streams and graphs. Without a GPU the tests are skipped, or
// fail where BINMOE_REQUIRE_CUDA is set.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "problem.h"

namespace test {

/// Throws with the place and CUDA's text unless `result` is cudaSuccess.
void must(cudaError_t result, const std::source_location& place = std::source_location::current());

/// Base of all tests that need a GPU.
class Cuda : public testing::Test {
 protected:
  void SetUp() override;
};

class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }
  void wait() const { must(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Runs on `stream`, with arrays in device memory.
Context device_context(cudaStream_t stream);

/// Bytes in device memory, `offset` behind a 256-byte boundary. Inputs end where the allocation ends, so that
/// compute-sanitizer sees the first byte read behind them; outputs have a guard zone on both sides.
class DeviceBytes {
 public:
  enum class Use { input, output };
  DeviceBytes(int64_t bytes, int64_t offset, Use use);
  DeviceBytes(DeviceBytes&&) = default;

  void* data() const { return start_.get() + kGuard + offset_; }
  int64_t bytes() const { return bytes_; }
  void put(const void* host) const { put(host, 0, bytes_); }
  void put(const void* host, int64_t begin, int64_t count) const;
  void fetch(void* host) const;
  std::vector<unsigned char> fetched() const;
  bool guards_intact() const;

 private:
  static constexpr int64_t kGuard = 512;
  struct Free {
    void operator()(unsigned char* p) const { cudaFree(p); }
  };
  int64_t bytes_, offset_, total_;
  std::unique_ptr<unsigned char[], Free> start_;
};

/// A copy of a test::Tensor on the device, its gaps too.
class DeviceTensor {
 public:
  DeviceTensor(const Tensor& host, DeviceBytes::Use use);
  /// Only these rows of the host's; what stands between and behind them on the device was never written.
  DeviceTensor(const Tensor& host, const std::vector<int64_t>& rows);

  Rows view() const;
  void put(const Tensor& host) const;
  /// On the host, gaps as they are on the device.
  Tensor fetched() const;
  std::vector<unsigned char> all_bytes() const { return bytes_.fetched(); }
  bool guards_intact() const { return bytes_.guards_intact(); }

 private:
  Tensor::Shape shape_;
  DeviceBytes bytes_;
};

/// same_rows, and the guard zones on the device.
testing::AssertionResult same_device_rows(const DeviceTensor& actual, const std::vector<unsigned char>& expected);

/// Weights, a priority or weight gradients on the device.
class DeviceNumbers {
 public:
  DeviceNumbers(int64_t count, DType type, int64_t offset, DeviceBytes::Use use)
      : bytes_(count * size_of(type), offset, use), count_(count), type_(type) {}
  Weights weights() const { return {bytes_.data(), count_, type_}; }
  WeightGradients gradients() const { return {bytes_.data(), count_, type_}; }
  const DeviceBytes& bytes() const { return bytes_; }

 private:
  DeviceBytes bytes_;
  int64_t count_;
  DType type_;
};

/// Six guarded arrays and a status.
class DevicePlan {
 public:
  explicit DevicePlan(const Sizes& sizes);  ///< poisoned
  explicit DevicePlan(const oracle::Plan& plan);

  PlanView view() const;
  void put(const oracle::Plan& plan) const;
  /// Arrays as expected, the status clean, guard zones intact.
  testing::AssertionResult same(const oracle::Plan& expected) const;
  oracle::Plan fetched() const;
  std::array<int64_t, 3> status() const;
  bool guards_intact() const;
  std::vector<unsigned char> all_bytes() const;

 private:
  Sizes sizes_;
  std::vector<DeviceBytes> arrays_;
  DeviceBytes status_;
};

/// Device workspace for a plan: guarded, filled with a pattern (or never written), and named in the context.
class Workspace {
 public:
  Workspace(const Sizes& sizes, DropPolicy policy, DType priority_type, const Context& context, bool filled = true);
  Context with(const Context& context) const;
  bool guards_intact() const { return bytes_ == nullptr || bytes_->guards_intact(); }

 private:
  std::unique_ptr<DeviceBytes> bytes_;
};

/// What `work` launches on the stream, captured once.
class CapturedGraph {
 public:
  CapturedGraph(cudaStream_t stream, const std::function<void()>& work);
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  void replay(cudaStream_t stream) const { must(cudaGraphLaunch(executable_, stream)); }
  int kernel_nodes() const { return kernel_nodes_; }
  int other_nodes() const { return other_nodes_; }

 private:
  cudaGraphExec_t executable_ = nullptr;
  int kernel_nodes_ = 0, other_nodes_ = 0;
};

}  // namespace test
