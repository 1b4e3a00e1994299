// Streams and graphs: capture and replay, launches counted, calls at the same time, a second device, the same bits in
// every run.
#include "cuda/on_device.h"

namespace test {
namespace {

class Graphs : public Cuda {};
class Streams : public Cuda {};
class Repeated : public Cuda {};

/// All operations of a training step on one problem's buffers, plan first.
class TrainingStep {
 public:
  explicit TrainingStep(const OnDevice& on_device)
      : d(on_device),
        made(d.p.c.sizes),
        y(d.expert_rows_out()),
        dy(d.expert_rows_out()),
        out(d.token_rows_out()),
        dx(d.token_rows_out()),
        dw(d.gradients_out(DType::f32)),
        dw_of_gather(d.gradients_out(DType::f32)) {}

  void run() const {
    const Weights weights = d.weights.weights();
    plan(d.ids(), d.p.c.policy, d.priority_view(), made.view(), d.workspace.with(d.context));
    gather(made.view(), d.x.view(), weights, y.view(), d.context);
    scatter(made.view(), d.y.view(), weights, out.view(), d.context);
    scatter_backward(made.view(), d.y.view(), d.grad.view(), weights, dy.view(), dw.gradients(), d.context);
    gather_backward(made.view(), d.y.view(), weights, d.x.view(), dx.view(), dw_of_gather.gradients(), d.context);
  }

  void check(const Problem& p) const {
    EXPECT_TRUE(made.same(p.plan)) << "plan";
    EXPECT_TRUE(same_device_rows(y, expected_gather(p, p.x, true))) << "gather";
    EXPECT_TRUE(same_device_rows(out, expected_scatter(p, true))) << "scatter";
    EXPECT_TRUE(same_device_rows(dy, expected_gather(p, p.grad, true))) << "scatter_backward";
    EXPECT_TRUE(same_gradients(dw, p, p.grad)) << "scatter_backward";
    EXPECT_TRUE(same_device_rows(dx, expected_scatter(p, true))) << "gather_backward";
    EXPECT_TRUE(same_gradients(dw_of_gather, p, p.x)) << "gather_backward";
  }

  void poison() const {
    for (const DeviceTensor* rows : {&y, &dy}) rows->put(d.p.expert_rows_out());
    for (const DeviceTensor* rows : {&out, &dx}) rows->put(d.p.token_rows_out());
  }

  std::vector<std::vector<unsigned char>> all_bytes() const {
    return {made.all_bytes(),
            y.all_bytes(),
            dy.all_bytes(),
            out.all_bytes(),
            dx.all_bytes(),
            dw.bytes().fetched(),
            dw_of_gather.bytes().fetched()};
  }

  const OnDevice& d;
  DevicePlan made;
  DeviceTensor y, dy, out, dx;
  DeviceNumbers dw, dw_of_gather;
};

/// One of each way through the kernels: few and many tokens, one choice, two, more; more experts than a block counts.
const Case kCases[] = {
    {.sizes = {64, 8, 32, 24}, .hidden = 512, .row_type = DType::bf16},
    {.sizes = {1200, 8, 32, 330}, .hidden = 128, .row_type = DType::bf16},
    {.sizes = {2300, 1, 16, 150}, .hidden = 144, .row_type = DType::bf16},
    {.sizes = {700, 1, 16, 50}, .hidden = 264, .row_type = DType::bf16},
    {.sizes = {700, 2, 16, 90}, .hidden = 264, .row_type = DType::bf16, .policy = DropPolicy::choice_order},
    {.sizes = {5000, 4, 64, 330}, .hidden = 72, .row_type = DType::f16, .policy = DropPolicy::by_weight},
    {.sizes = {700, 3, 2000, 2}, .hidden = 33, .row_type = DType::f32, .gap = 1, .offset_bytes = 4},
};

TEST_F(Graphs, a_captured_step_replays_with_other_ids_and_weights_in_the_same_buffers) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(describe(c));
    const Stream stream;
    const Problem first(c);
    const OnDevice d(first, stream);
    const TrainingStep step(d);
    const CapturedGraph graph(stream, [&] { step.run(); });
    for (const Routing routing : {Routing::random, Routing::all_last, Routing::all_masked, Routing::random}) {
      Case other = c;
      other.routing = routing;
      other.seed = 77 + static_cast<uint64_t>(routing);
      const Problem p(other);
      d.replace_with(p);
      step.poison();
      graph.replay(stream);
      stream.wait();
      step.check(p);
      ASSERT_FALSE(HasFailure()) << "seed " << other.seed;
    }
  }
}

/// Kernel nodes of a captured call; anything else in the graph is a failure.
int launches_of(cudaStream_t stream, const std::function<void()>& call) {
  const CapturedGraph graph(stream, call);
  EXPECT_EQ(graph.other_nodes(), 0) << "a node that is no kernel (a memset or a copy)";
  return graph.kernel_nodes();
}

TEST_F(Graphs, an_operation_is_at_most_two_kernels_and_a_plan_three) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(describe(c));
    const Stream stream;
    const Problem p(c);
    const OnDevice d(p, stream);
    const TrainingStep s(d);
    const Weights w = d.weights.weights();
    const ConstPlanView view = d.plan.view();
    const auto count = [&](const char* name, int most, const std::function<void()>& call) {
      const int launches = launches_of(stream, call);
      EXPECT_GE(launches, 1) << name;
      EXPECT_LE(launches, most) << name;
    };
    for (const DropPolicy policy : {DropPolicy::token_order, DropPolicy::choice_order}) {
      const Workspace workspace(c.sizes, policy, DType::f32, d.context);
      count("plan", 3, [&] { plan(d.ids(), policy, {}, s.made.view(), workspace.with(d.context)); });
    }
    const Bins bins = {view.indices, view.bin_ids, p.plan.bins.back(), view.bins, c.sizes.num_experts};
    count("plan_from_bins", 2, [&] { plan_from_bins(bins, s.made.view(), d.context); });
    count("gather", 2, [&] { gather(view, d.x.view(), {}, s.y.view(), d.context); });
    count("weighted gather", 2, [&] { gather(view, d.x.view(), w, s.y.view(), d.context); });
    count("scatter", 2, [&] { scatter(view, d.y.view(), w, s.out.view(), d.context); });
    count("wgrad", 2, [&] { wgrad(view, d.y.view(), d.grad.view(), s.dw.gradients(), d.context); });
    count("scatter_backward", 2,
          [&] { scatter_backward(view, d.y.view(), d.grad.view(), w, s.dy.view(), s.dw.gradients(), d.context); });
    count("gather_backward", 4, [&] {  // a scatter and a wgrad
      gather_backward(view, d.y.view(), w, d.x.view(), s.dx.view(), s.dw_of_gather.gradients(), d.context);
    });
  }
}

TEST_F(Graphs, by_weight_captures_too) {
  const Case c = {.sizes = {40000, 2, 64, 1500}, .hidden = 0, .policy = DropPolicy::by_weight};
  const Stream stream;
  const Problem first(c);
  const OnDevice d(first, stream);
  const DevicePlan made(c.sizes);
  const CapturedGraph graph(
      stream, [&] { plan(d.ids(), c.policy, d.priority_view(), made.view(), d.workspace.with(d.context)); });
  EXPECT_EQ(graph.other_nodes(), 0);
  RecordProperty("launches", graph.kernel_nodes());
  for (const uint64_t seed : {5U, 6U}) {
    Case other = c;
    other.seed = seed;
    const Problem p(other);
    d.replace_with(p);
    graph.replay(stream);
    stream.wait();
    ASSERT_TRUE(made.same(p.plan)) << "seed " << seed;
  }
}

TEST_F(Streams, two_at_once_do_not_disturb_each_other) {
  const Stream a, b;
  const Problem p(kCases[0]), q(kCases[3]);
  const OnDevice on_a(p, a), on_b(q, b);
  const TrainingStep step_a(on_a), step_b(on_b);
  for (int i = 0; i < 50; ++i) {
    step_a.run();
    step_b.run();
  }
  a.wait();
  b.wait();
  step_a.check(p);
  step_b.check(q);
}

TEST_F(Streams, the_default_stream_serves_where_none_is_given) {
  const Problem p(kCases[0]);
  const OnDevice d(p, nullptr);
  const TrainingStep step(d);
  step.run();
  step.check(p);
}

TEST_F(Streams, the_current_device_is_the_one_that_works) {
  int devices = 0;
  must(cudaGetDeviceCount(&devices));
  if (devices < 2) GTEST_SKIP() << "needs two GPUs, and there is " << devices;
  const Problem p(kCases[0]);
  for (const int device : {1, 0, 1, 0}) {
    SCOPED_TRACE("device " + std::to_string(device));
    must(cudaSetDevice(device));
    const Stream stream;
    const OnDevice d(p, stream);
    const TrainingStep step(d);
    step.run();
    int current = -1;
    must(cudaGetDevice(&current));
    EXPECT_EQ(current, device) << "a call changed the current device";
    step.check(p);
  }
}

TEST_F(Repeated, a_hundred_runs_give_the_same_bits) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(describe(c));
    const Stream stream;
    const Problem p(c);
    const OnDevice d(p, stream);
    const TrainingStep step(d);
    step.run();
    step.check(p);
    const auto first = step.all_bytes();
    for (int i = 0; i < 100; ++i) {
      step.poison();
      step.run();
      ASSERT_EQ(step.all_bytes() == first, true) << "run " << i;
    }
  }
}

}  // namespace
}  // namespace test
