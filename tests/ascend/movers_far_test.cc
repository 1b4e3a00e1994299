// Rows more than 2^31 elements from the first: addresses of the kernels are 64 bits wide. The memory is reserved, not
// used: only the rows are touched.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "backend.h"
#include "mover_problem.h"

namespace test {
namespace {

using ascend::Order;
using ascend::Soc;
using vector_core::Machine;

constexpr int64_t kHidden = 24;
constexpr Sizes kSizes = {5, 2, 2, 5};

/// Rows of f32, `stride` elements apart, in zeroed memory.
class FarRows {
 public:
  FarRows(int64_t rows, int64_t stride)
      : rows_(rows), stride_(stride), bytes_(static_cast<size_t>(((rows - 1) * stride + kHidden) * 4)) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~FarRows() {
    if (is_there()) munmap(memory_, bytes_);
  }
  FarRows(const FarRows&) = delete;
  FarRows& operator=(const FarRows&) = delete;

  bool is_there() const { return memory_ != MAP_FAILED; }
  Rows view() const { return {memory_, rows_, kHidden, stride_, DType::f32}; }
  float* row(int64_t r) const { return static_cast<float*>(memory_) + r * stride_; }
  void fill(Random& random) {
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t h = 0; h < kHidden; ++h) row(r)[h] = static_cast<float>(random.number());
  }
  bool equals(const FarRows& other) const {
    for (int64_t r = 0; r < rows_; ++r)
      if (std::memcmp(row(r), other.row(r), kHidden * 4) != 0) return false;
    return true;
  }

 private:
  int64_t rows_, stride_;
  size_t bytes_;
  void* memory_;
};

class FarMovers : public testing::Test {
 protected:
  static constexpr int64_t kTokenStride = (int64_t{1} << 30) + 3, kExpertStride = (int64_t{1} << 29) + 1;

  void SetUp() override {
    for (const FarRows* rows : {&x, &grad, &y, &expected_y, &actual_y, &expected_x, &actual_x})
      if (!rows->is_there()) GTEST_SKIP() << "the system does not reserve 16 GiB of addresses";
    Random random(1);
    x.fill(random);
    grad.fill(random);
    y.fill(random);
    for (float& weight : weight_values) weight = static_cast<float>(random.number());
  }

  template <class Job, class Run>
  void run(const Job& job, const Run& on_model, std::optional<Order> order = std::nullopt) {
    ascend::TileRequest request = ascend::request_of(soc, job);
    if (order) request.order = order;
    Machine machine(ascend::profile_of(soc));
    on_model(machine, ascend::mover_plan(request), job);
  }

  Weights weights() const { return {weight_values.data(), kSizes.assignments(), DType::f32}; }
  WeightGradients gradients() { return {dw.data(), kSizes.assignments(), DType::f32}; }

  const Soc soc = small_chip(1, 192 * 1024 - 256 - 8 * 1024);
  const std::vector<int32_t> ids = {0, 1, 1, 0, -1, 1, 0, 1, 0, -1};
  const Plan plan = make_plan({ids.data(), kSizes.assignments(), IdType::i32}, kSizes);
  const Resources resources{default_executor(), "", nullptr, 0};
  const BackendOperations& reference = *reference_backend().operations;
  std::vector<float> weight_values = std::vector<float>(static_cast<size_t>(kSizes.assignments())), dw = weight_values;
  FarRows x{kSizes.tokens, kTokenStride}, grad{kSizes.tokens, kTokenStride}, y{kSizes.expert_rows(), kExpertStride};
  FarRows expected_y{kSizes.expert_rows(), kExpertStride}, actual_y{kSizes.expert_rows(), kExpertStride};
  FarRows expected_x{kSizes.tokens, kTokenStride}, actual_x{kSizes.tokens, kTokenStride};
};

TEST_F(FarMovers, gather_beyond_two_to_the_31_elements) {
  for (const Order order : {Order::token, Order::expert})
    for (const Weights& w : {Weights{}, weights()}) {
      reference.gather({plan, x.view(), w, expected_y.view()}, resources);
      for (int64_t r = 0; r < kSizes.expert_rows(); ++r) std::memset(actual_y.row(r), 0xff, kHidden * 4);
      run(GatherJob{plan, x.view(), w, actual_y.view()}, ascend::run_gather, order);
      EXPECT_TRUE(actual_y.equals(expected_y)) << name_of(order);
    }
}

TEST_F(FarMovers, scatter_beyond_two_to_the_31_elements) {
  reference.scatter({plan, y.view(), weights(), expected_x.view()}, resources);
  run(ScatterJob{plan, y.view(), weights(), actual_x.view()}, ascend::run_scatter);
  EXPECT_TRUE(actual_x.equals(expected_x));
}

TEST_F(FarMovers, scatter_backward_beyond_two_to_the_31_elements) {
  std::vector<float> expected = dw;
  const WeightGradients expected_dw = {expected.data(), kSizes.assignments(), DType::f32};
  reference.scatter_backward({plan, y.view(), grad.view(), weights(), expected_y.view(), expected_dw}, resources);
  run(ScatterBackwardJob{plan, y.view(), grad.view(), weights(), actual_y.view(), gradients()},
      ascend::run_scatter_backward);
  EXPECT_TRUE(actual_y.equals(expected_y));
  for (size_t a = 0; a < dw.size(); ++a) EXPECT_NEAR(dw[a], expected[a], 1e-2) << a;
}

TEST_F(FarMovers, wgrad_beyond_two_to_the_31_elements) {
  std::vector<float> expected = dw;
  reference.wgrad({plan, y.view(), grad.view(), {expected.data(), kSizes.assignments(), DType::f32}}, resources);
  run(WgradJob{plan, y.view(), grad.view(), gradients()}, ascend::run_wgrad);
  for (size_t a = 0; a < dw.size(); ++a) EXPECT_NEAR(dw[a], expected[a], 1e-2) << a;
}

}  // namespace
}  // namespace test
