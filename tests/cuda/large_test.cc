// Tensors past 2^31 elements, in device memory.
#include "cuda/on_device.h"

namespace test {
namespace {

class Large : public Cuda {};

constexpr int32_t kCapacity = 32769;
constexpr int64_t kHidden = 32768, kRowBytes = kHidden * 2;
constexpr int64_t kRows = 2 * int64_t{kCapacity};  // 2 * 32769 * 32768 elements of y

/// A row whose elements depend on the token: small integers, so that bf16 rounds none.
std::vector<uint16_t> row_of(int64_t token) {
  std::vector<uint16_t> out;
  for (int64_t h = 0; h < kHidden; ++h)
    out.push_back(static_cast<uint16_t>(
        oracle::encode(static_cast<double>((token * 7 + h * 3) % 127 + 1), oracle::format_of(DType::bf16))));
  return out;
}

/// Tokens go to expert 0 and 1 by turns; the last three of each expert have no token, so rows at the end are empty.
oracle::Plan alternating_plan() {
  const Sizes sizes = {kRows - 6, 1, 2, kCapacity};
  std::vector<std::vector<int32_t>> bucket(2);
  for (int32_t a = 0; a < sizes.tokens; ++a) bucket[static_cast<size_t>(a % 2)].push_back(a);
  return oracle::plan_of(bucket, sizes);
}

class BigRows {
 public:
  explicit BigRows(int64_t rows) : bytes_(rows * kRowBytes, 0, DeviceBytes::Use::output), rows_(rows) {
    must(cudaMemset(bytes_.data(), 0xff, static_cast<size_t>(bytes_.bytes())));
    must(cudaDeviceSynchronize());
  }
  Rows view() const { return {bytes_.data(), rows_, kHidden, kHidden, DType::bf16}; }
  void put_row(int64_t r, const std::vector<uint16_t>& values) const {
    must(cudaMemcpy(at(r), values.data(), kRowBytes, cudaMemcpyHostToDevice));
    must(cudaDeviceSynchronize());
  }
  std::vector<uint16_t> row(int64_t r) const {
    std::vector<uint16_t> out(static_cast<size_t>(kHidden));
    must(cudaMemcpy(out.data(), at(r), kRowBytes, cudaMemcpyDeviceToHost));
    return out;
  }
  bool guards_intact() const { return bytes_.guards_intact(); }

 private:
  char* at(int64_t r) const { return static_cast<char*>(bytes_.data()) + r * kRowBytes; }
  DeviceBytes bytes_;
  int64_t rows_;
};

bool fits(int64_t bytes) {
  size_t free = 0, total = 0;
  must(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free) > bytes;
}

/// 17 different rows repeated: x [T, H] with token t holding row_of(t % 17) would be another 4 GB, so tokens share.
constexpr int64_t kDifferent = 17;

TEST_F(Large, gather_and_its_backward_reach_past_two_to_the_31_elements) {
  if (!fits(3 * kRows * kRowBytes)) GTEST_SKIP() << "needs 13 GB of device memory";
  const oracle::Plan plan = alternating_plan();
  const Stream stream;
  const Context context = device_context(stream);
  const DevicePlan there(plan);
  const BigRows x(plan.sizes.tokens), y(kRows);
  std::vector<std::vector<uint16_t>> different;
  for (int64_t i = 0; i < kDifferent; ++i) different.push_back(row_of(i));
  const std::vector<int64_t> sampled = {0, 1, 2, 16383, 32766, 32767, 32768, 32769, 40001, kRows - 8, kRows - 7};
  for (const int64_t t : sampled) x.put_row(t, different[static_cast<size_t>(t % kDifferent)]);
  gather(there.view(), x.view(), {}, y.view(), context);
  stream.wait();
  for (const int64_t t : sampled) {
    const int64_t row = plan.row_of_assignment[static_cast<size_t>(t)];
    EXPECT_EQ(y.row(row) == different[static_cast<size_t>(t % kDifferent)], true) << "token " << t << ", row " << row;
  }
  const std::vector<uint16_t> zeros(static_cast<size_t>(kHidden), 0);
  for (const int64_t row : {kCapacity - 3, kCapacity - 1, 2 * kCapacity - 3, 2 * kCapacity - 1})
    EXPECT_EQ(y.row(row) == zeros, true) << "empty row " << row;
  EXPECT_TRUE(y.guards_intact());

  const BigRows dx(plan.sizes.tokens);
  for (const int64_t t : sampled)  // scatter takes what gather gave
    EXPECT_EQ(x.row(t) == different[static_cast<size_t>(t % kDifferent)], true) << "gather changed x";
  scatter(there.view(), y.view(), {}, dx.view(), context);
  stream.wait();
  for (const int64_t t : sampled)
    EXPECT_EQ(dx.row(t) == different[static_cast<size_t>(t % kDifferent)], true) << "scatter, token " << t;
  EXPECT_TRUE(dx.guards_intact());
}

TEST_F(Large, scatter_backward_reaches_past_two_to_the_31_elements) {
  if (!fits(3 * kRows * kRowBytes)) GTEST_SKIP() << "needs 13 GB of device memory";
  const Sizes sizes = {4, 1, 2, kCapacity};
  oracle::Plan plan;  // four tokens at the ends of both experts would need all between them: the plan is given whole
  plan.sizes = sizes;
  plan.indices = {0, 1, 2, 3};
  plan.bin_ids = {0, 0, 1, 1};
  plan.bins = {2, 4};
  plan.tokens_per_expert = plan.kept_per_expert = {2, 2};
  plan.row_of_assignment = {0, 1, kCapacity, kCapacity + 1};
  const Stream stream;
  const Context context = device_context(stream);
  const DevicePlan there(plan);
  const BigRows y(kRows), dy(kRows), grad(4);
  std::vector<uint16_t> unit(static_cast<size_t>(kHidden), 0);
  unit.back() = static_cast<uint16_t>(oracle::encode(1, oracle::format_of(DType::bf16)));
  for (int64_t t = 0; t < 4; ++t) {
    grad.put_row(t, unit);
    y.put_row(plan.row_of_assignment[static_cast<size_t>(t)], row_of(t));
  }
  const DeviceNumbers dw(4, DType::f32, 0, DeviceBytes::Use::output);
  scatter_backward(there.view(), y.view(), grad.view(), {}, dy.view(), dw.gradients(), context);
  float values[4] = {};
  dw.bytes().fetch(values);
  for (int64_t t = 0; t < 4; ++t) {
    const int64_t row = plan.row_of_assignment[static_cast<size_t>(t)];
    EXPECT_EQ(dy.row(row) == unit, true) << "row " << row;
    const double last = oracle::decode(row_of(t).back(), oracle::format_of(DType::bf16));
    EXPECT_EQ(static_cast<double>(values[t]), last) << "token " << t;
  }
  const std::vector<uint16_t> zeros(static_cast<size_t>(kHidden), 0);
  for (const int64_t row :
       {int64_t{2}, int64_t{16384}, int64_t{kCapacity - 1}, int64_t{kCapacity + 2}, kRows - 2, kRows - 1})
    EXPECT_EQ(dy.row(row) == zeros, true) << "empty row " << row;
  EXPECT_TRUE(dy.guards_intact());
}

}  // namespace
}  // namespace test
