#include "cuda/on_device.h"

namespace test {
namespace {

using Use = DeviceBytes::Use;

std::vector<int64_t> used_expert_rows(const Problem& p) {
  std::vector<int64_t> out;
  for (const int32_t row : p.plan.row_of_assignment)
    if (row >= 0) out.push_back(row);
  return out;
}

DeviceNumbers numbers_on_device(const Numbers& host, const Problem& p) {
  DeviceNumbers out(p.c.sizes.assignments(), host.weights().type, p.c.offset_bytes, Use::input);
  out.bytes().put(host.packed().data());
  return out;
}

}  // namespace

OnDevice::OnDevice(const Problem& problem, cudaStream_t stream, Upload upload)
    : p(problem),
      context(device_context(stream)),
      id_bytes(p.c.sizes.assignments() * size_of(p.c.id_type), p.c.offset_bytes, Use::input),
      weights(numbers_on_device(p.weights, p)),
      priority(numbers_on_device(p.priority, p)),
      x(p.x, Use::input),
      grad(p.grad, Use::input),
      y(upload == Upload::everything ? DeviceTensor(p.y, Use::input) : DeviceTensor(p.y, used_expert_rows(p))),
      plan(p.plan),
      workspace(p.c.sizes, p.c.policy, p.c.weight_type, context, upload == Upload::everything) {
  id_bytes.put(p.id_array.view().data);
}

DeviceNumbers OnDevice::gradients_out(DType type) const {
  DeviceNumbers out(p.c.sizes.assignments(), type, p.c.offset_bytes, Use::output);
  const std::vector<unsigned char> poison(static_cast<size_t>(out.bytes().bytes()), 0xff);
  out.bytes().put(poison.data());
  return out;
}

void OnDevice::replace_with(const Problem& other) const {
  id_bytes.put(other.id_array.view().data);
  weights.bytes().put(other.weights.packed().data());
  priority.bytes().put(other.priority.packed().data());
  x.put(other.x);
  grad.put(other.grad);
  y.put(other.y);
  plan.put(other.plan);
}

std::vector<unsigned char> expected_gather(const Problem& p, const Tensor& rows, bool weighted) {
  const oracle::Matrix weights = weighted ? p.weights.values() : oracle::Matrix{};
  return encoded(oracle::gather(p.plan, rows.values(), weights, p.c.hidden, p.c.row_type), p.c.row_type);
}

std::vector<unsigned char> expected_scatter(const Problem& p, bool weighted) {
  const oracle::Matrix weights = weighted ? p.weights.values() : oracle::Matrix{};
  return encoded(oracle::scatter(p.plan, p.y.values(), weights, p.c.hidden, p.c.row_type), p.c.row_type);
}

testing::AssertionResult same_gradients(const DeviceNumbers& dw, const Problem& p, const Tensor& grad) {
  Numbers host = p.gradients_out(dw.gradients().type);
  dw.bytes().fetch(host.gradients().data);
  if (!dw.bytes().guards_intact()) return testing::AssertionFailure() << "bytes around dw were written";
  const oracle::Dots dots = oracle::wgrad(p.plan, p.y.values(), grad.values(), p.c.hidden);
  return within_bound(host, dots, p.plan, p.c.hidden, p.c.row_type);
}

void check_plan_on_device(const OnDevice& d) {
  const DevicePlan made(d.p.c.sizes);
  plan(d.ids(), d.p.c.policy, d.priority_view(), made.view(), d.workspace.with(d.context));
  EXPECT_TRUE(made.same(d.p.plan));
  EXPECT_EQ(made.status(), (std::array<int64_t, 3>{0, -1, 0}));
  EXPECT_TRUE(d.workspace.guards_intact()) << "bytes around the workspace were written";
  const auto fault = check(made.view(), d.context);
  EXPECT_FALSE(fault.has_value()) << describe(*fault);
  const DevicePlan again(d.p.c.sizes);
  const int64_t count = d.p.plan.bins.back();
  for (const bool with_bin_ids : {true, false}) {
    const Bins bins = {made.view().indices, with_bin_ids ? made.view().bin_ids : nullptr, count, made.view().bins,
                       d.p.c.sizes.num_experts};
    plan_from_bins(bins, again.view(), d.context);
    EXPECT_TRUE(again.same(d.p.plan)) << "plan_from_bins; bin_ids: " << with_bin_ids;
    EXPECT_EQ(again.status(), (std::array<int64_t, 3>{0, -1, 0})) << "plan_from_bins";
  }
}

void check_movers_on_device(const OnDevice& d) {
  const Problem& p = d.p;
  const ConstPlanView plan = d.plan.view();
  for (const bool weighted : {false, true}) {
    SCOPED_TRACE(weighted ? "weighted" : "unweighted");
    const Weights weights = d.weights_if(weighted);
    const DeviceTensor y = d.expert_rows_out(), dy = d.expert_rows_out(), dy_alone = d.expert_rows_out();
    const DeviceTensor out = d.token_rows_out(), dx = d.token_rows_out();
    gather(plan, d.x.view(), weights, y.view(), d.context);
    EXPECT_TRUE(same_device_rows(y, expected_gather(p, p.x, weighted))) << "gather";
    scatter(plan, d.y.view(), weights, out.view(), d.context);
    EXPECT_TRUE(same_device_rows(out, expected_scatter(p, weighted))) << "scatter";
    scatter_backward(plan, {}, d.grad.view(), weights, dy_alone.view(), {}, d.context);
    EXPECT_TRUE(same_device_rows(dy_alone, expected_gather(p, p.grad, weighted))) << "scatter_backward without dw";
    for (const DType type : gradient_types(p.c)) {
      SCOPED_TRACE(name_of(type));
      const DeviceNumbers dw = d.gradients_out(type), from_backward = d.gradients_out(type);
      const DeviceNumbers of_gather = d.gradients_out(type);
      wgrad(plan, d.y.view(), d.grad.view(), dw.gradients(), d.context);
      EXPECT_TRUE(same_gradients(dw, p, p.grad)) << "wgrad";
      scatter_backward(plan, d.y.view(), d.grad.view(), weights, dy.view(), from_backward.gradients(), d.context);
      EXPECT_TRUE(same_device_rows(dy, expected_gather(p, p.grad, weighted))) << "scatter_backward";
      EXPECT_TRUE(same_gradients(from_backward, p, p.grad)) << "scatter_backward";
      EXPECT_EQ(dw.bytes().fetched() == from_backward.bytes().fetched(), true) << "dw differs from wgrad's";
      gather_backward(plan, d.y.view(), weights, d.x.view(), dx.view(), of_gather.gradients(), d.context);
      EXPECT_TRUE(same_device_rows(dx, expected_scatter(p, weighted))) << "gather_backward";
      EXPECT_TRUE(same_gradients(of_gather, p, p.x)) << "gather_backward";
    }
  }
}

void sweep_on_device(const std::vector<Case>& cases, Upload upload) {
  const Stream stream;
  for (const Case& c : cases) {
    SCOPED_TRACE(describe(c));
    const Problem p(c);
    const OnDevice d(p, stream, upload);
    check_plan_on_device(d);
    check_movers_on_device(d);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace test
