// What every test stands on: the variants to run, memory between guard zones, reproducible numbers, comparisons that
// name the place.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "binmoe/binmoe.h"
#include "oracle.h"

namespace test {

using namespace binmoe;

/// False under sanitizers and emulators: the same tests then leave out the largest members of their lists.
#ifdef BINMOE_TEST_SMALL
constexpr bool kThorough = false;
#else
constexpr bool kThorough = true;
#endif

/// A way to run a call: backend x options x threads.
struct Variant {
  std::string name;
  std::string options;
  const Backend* backend = nullptr;
  Executor* executor = nullptr;

  Context context() const {
    Context out;
    out.backend = backend;
    out.executor = executor;
    out.options = options.empty() ? nullptr : options.c_str();
    return out;
  }
  bool is_reference() const { return name.rfind("reference", 0) == 0; }
};

/// Those that run here: reference; cpu on each of its targets, with and without streaming stores, on 1, 2, 3 threads;
/// cuda through copies of the host's arrays; the Ascend model. BINMOE_TEST_BACKEND=NAME leaves one backend.
const std::vector<Variant>& variants();
/// Those whose backend takes all of these dtypes.
std::vector<Variant> variants_taking(std::initializer_list<DType> types);

/// A small counter-based generator: the same numbers everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t bits();
  /// In [0, limit), limit >= 1.
  int64_t below(int64_t limit) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(limit)); }
  /// Magnitudes from 2^-4 to 2^3 with both signs, 20 digits.
  double number();

 private:
  uint64_t state_;
};

/// Bytes at an offset from a 64-byte boundary. Inputs end where the allocation ends, so that a sanitizer sees the first
/// byte read behind them; outputs have a guard zone on both sides.
class Memory {
 public:
  enum class Use { input, output };
  Memory(int64_t bytes, int64_t offset, Use use);

  unsigned char* data() { return start_.get() + kGuard + offset_; }
  const unsigned char* data() const { return start_.get() + kGuard + offset_; }
  int64_t bytes() const { return bytes_; }
  bool guards_intact() const;

 private:
  static constexpr int64_t kGuard = 192;
  struct Free {
    void operator()(unsigned char* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  int64_t bytes_, offset_, total_;
  std::unique_ptr<unsigned char[], Free> start_;
};

/// A matrix of rows with a gap behind each row. Gaps of inputs hold NaN; those of outputs a pattern that must stay.
class Tensor {
 public:
  struct Shape {
    int64_t rows = 0, cols = 0;
    DType type = DType::f32;
    int32_t element_bytes = 0;  ///< for DType::bytes
    int64_t gap = 0;            ///< stride - cols
    int64_t offset = 0;         ///< bytes
  };
  /// Outputs begin as all ones, which is a NaN in every format.
  Tensor(const Shape& shape, Memory::Use use);

  Rows view() { return {memory_.data(), shape_.rows, shape_.cols, stride(), shape_.type, shape_.element_bytes}; }
  ConstRows view() const { return const_cast<Tensor*>(this)->view(); }
  const Shape& shape() const { return shape_; }
  int64_t element_size() const { return view().element_size(); }
  const unsigned char* row(int64_t r) const { return memory_.data() + r * stride() * element_size(); }
  unsigned char* row(int64_t r) { return memory_.data() + r * stride() * element_size(); }
  void set(int64_t r, int64_t c, double value) { oracle::put(row(r), c, shape_.type, value); }
  double get(int64_t r, int64_t c) const { return oracle::value_at(row(r), c, shape_.type); }

  /// Decoded, without gaps.
  oracle::Matrix values() const;
  /// The rows' bytes, without gaps.
  std::vector<unsigned char> packed() const;
  /// Everything, gaps and guards too: to see that a call left it alone.
  std::vector<unsigned char> all_bytes() const;
  /// True when guard zones and gaps are as they were made.
  bool surroundings_intact() const;

 private:
  int64_t stride() const { return shape_.cols + shape_.gap; }
  Shape shape_;
  Memory memory_;
};

/// Weights, weight gradients or a priority: one row of `count` numbers.
class Numbers {
 public:
  Numbers(int64_t count, DType type, Memory::Use use, int64_t offset = 0)
      : tensor_({1, count, type, 0, 0, offset}, use) {}
  Weights weights() const { return {tensor_.row(0), tensor_.shape().cols, tensor_.shape().type}; }
  WeightGradients gradients() { return {tensor_.row(0), tensor_.shape().cols, tensor_.shape().type}; }
  void set(int64_t i, double value) { tensor_.set(0, i, value); }
  double get(int64_t i) const { return tensor_.get(0, i); }
  oracle::Matrix values() const { return tensor_.values(); }
  std::vector<unsigned char> packed() const { return tensor_.packed(); }
  bool surroundings_intact() const { return tensor_.surroundings_intact(); }

 private:
  Tensor tensor_;
};

/// Numbers in the bytes of a tensor of `type`, rounded.
std::vector<unsigned char> encoded(const oracle::Matrix& values, DType type);

/// Bit for bit, but any NaN equals any other; surroundings must be intact. Names the first place and counts the rest.
testing::AssertionResult same_rows(const Tensor& actual, const std::vector<unsigned char>& expected);

/// Within oracle::wgrad_bound; an assignment without a row must be +0.
testing::AssertionResult within_bound(const Numbers& dw, const oracle::Dots& dots, const oracle::Plan& plan,
                                      int64_t hidden, DType rows);

testing::AssertionResult same_array(const char* name, const int32_t* actual, const std::vector<int32_t>& expected);
/// Six arrays, each named when it differs.
testing::AssertionResult same_plan(const ConstPlanView& actual, const oracle::Plan& expected);

/// The text of the Error that `call` throws; "nothing was thrown" when none was.
std::string refusal(const std::function<void()>& call);
/// The text begins with `[operation]` and contains `part`.
testing::AssertionResult refuses(const std::function<void()>& call, const std::string& operation,
                                 const std::string& part);

ConstPlanView view_of(const oracle::Plan& plan);

}  // namespace test
