// Every bad argument has its own message, is found before any work, and leaves the outputs alone.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "problem.h"

namespace test {
namespace {

/// A sound set of arguments for every operation; a test spoils one of them.
struct Call {
  Call() : Call(Case{.sizes = {4, 2, 3, 2}, .hidden = 5}) {}
  explicit Call(const Case& c) : p(c), ids(p.id_array.view()), plan_view(p.plan_view()), weights(p.weights.weights()) {
    x = p.x.view();
    grad = p.grad.view();
    y = p.y.view();
    y_out = y_memory.view();
    token_out = token_memory.view();
    dw = dw_memory.gradients();
    plan_out = plan_memory.view();
    std::fill_n(plan_out.indices, 3 * (c.sizes.assignments() + c.sizes.num_experts), 12345);
    untouched = state();
  }

  void run_plan() { plan(ids, policy, priority, plan_out, context); }
  void run_gather() { gather(plan_view, x, weights, y_out, context); }
  void run_scatter() { scatter(plan_view, y, weights, token_out, context); }
  void run_wgrad() { wgrad(plan_view, y, grad, dw, context); }
  void run_scatter_backward() { scatter_backward(plan_view, y, grad, weights, y_out, dw, context); }
  void run_gather_backward() { gather_backward(plan_view, y, weights, x, token_out, dw, context); }

  std::vector<unsigned char> state() const {
    std::vector<unsigned char> all = y_memory.all_bytes();
    for (const auto& part : {token_memory.all_bytes(), dw_memory.packed()})
      all.insert(all.end(), part.begin(), part.end());
    const auto* begin = reinterpret_cast<const unsigned char*>(plan_memory.view().indices);
    all.insert(all.end(), begin, begin + 12 * (p.c.sizes.assignments() + p.c.sizes.num_experts));
    return all;
  }

  Problem p;
  Tensor y_memory = p.expert_rows_out(), token_memory = p.token_rows_out();
  Numbers dw_memory = p.gradients_out(DType::f32);
  Plan plan_memory = Plan(p.c.sizes);
  Ids ids;
  DropPolicy policy = DropPolicy::token_order;
  Weights priority;
  PlanView plan_out;
  ConstPlanView plan_view;
  ConstRows x, grad, y;
  Weights weights;
  Rows y_out, token_out;
  WeightGradients dw;
  Context context;
  std::vector<unsigned char> untouched;
};

using Run = void (Call::*)();
using Spoil = std::function<void(Call&)>;

testing::AssertionResult refused(Run run, const char* operation, const Spoil& spoil, const std::string& text) {
  for (const Variant& variant : variants()) {
    Call call;
    call.context = variant.context();
    spoil(call);
    if (auto result = refuses([&] { (call.*run)(); }, operation, text); !result) return result << ", " << variant.name;
    if (call.state() != call.untouched)
      return testing::AssertionFailure() << "outputs were written before \"" << text << "\" on " << variant.name;
  }
  return testing::AssertionSuccess();
}

const struct {
  Run run;
  const char* operation;
} kMovers[] = {{&Call::run_gather, "gather"},
               {&Call::run_scatter, "scatter"},
               {&Call::run_wgrad, "wgrad"},
               {&Call::run_scatter_backward, "scatter_backward"},
               {&Call::run_gather_backward, "gather_backward"}};

TEST(Refusal, the_sound_call_is_taken_by_every_operation) {
  for (const auto& mover : kMovers) {
    Call call;
    EXPECT_EQ(refusal([&] { (call.*mover.run)(); }), "nothing was thrown") << mover.operation;
    EXPECT_TRUE(call.state() != call.untouched) << mover.operation;
  }
  Call call;
  call.run_plan();
  EXPECT_TRUE(same_plan(call.plan_out, call.p.plan));
}

TEST(Refusal, sizes_out_of_range) {
  const struct {
    Sizes sizes;
    std::string text;
  } cases[] = {
      {{-1, 2, 3, 2}, "tokens is -1, but must not be negative"},
      {{4, 0, 3, 2}, "top_k is 0, but must be at least 1"},
      {{4, -3, 3, 2}, "top_k is -3, but must be at least 1"},
      {{4, 2, 0, 2}, "num_experts is 0, but must be at least 1"},
      {{4, 2, 3, -1}, "expert_capacity is -1, but must not be negative"},
      {{int64_t{1} << 30, 2, 3, 2}, "tokens * top_k is 1073741824 * 2, but must be below 2^31"},
      {{int64_t{1} << 62, 4, 3, 2}, "tokens * top_k is 4611686018427387904 * 4, but must be below 2^31"},
      {{4, 2, 1 << 16, 1 << 15}, "num_experts * expert_capacity is 65536 * 32768, but must be below 2^31"},
  };
  for (const auto& c : cases) {
    EXPECT_TRUE(refused(
        &Call::run_plan, "plan", [&](Call& call) { call.plan_out.sizes = c.sizes; }, c.text));
    for (const auto& mover : kMovers)
      EXPECT_TRUE(refused(
          mover.run, mover.operation, [&](Call& call) { call.plan_view.sizes = c.sizes; }, c.text));
    EXPECT_TRUE(refuses([&] { plan_workspace_bytes(c.sizes, {}); }, "plan_workspace_bytes", c.text));
    EXPECT_TRUE(refuses([&] { Plan made(c.sizes); }, "plan", c.text));
  }
}

TEST(Refusal, null_plan_arrays) {
  const std::pair<int32_t * PlanView::*, const char*> arrays[] = {
      {&PlanView::indices, "indices is null, but has 8 entries"},
      {&PlanView::bin_ids, "bin_ids is null, but has 8 entries"},
      {&PlanView::row_of_assignment, "row_of_assignment is null, but has 8 entries"},
      {&PlanView::bins, "bins is null, but has 3 entries"},
      {&PlanView::tokens_per_expert, "tokens_per_expert is null, but has 3 entries"},
      {&PlanView::kept_per_expert, "kept_per_expert is null, but has 3 entries"}};
  for (const auto& [array, text] : arrays)
    EXPECT_TRUE(refused(
        &Call::run_plan, "plan", [&, member = array](Call& c) { c.plan_out.*member = nullptr; }, text));
  for (const auto& mover : kMovers)
    EXPECT_TRUE(refused(
        mover.run, mover.operation, [](Call& c) { c.plan_view.bins = nullptr; }, "bins is null, but has 3 entries"));
}

TEST(Refusal, ids_of_a_wrong_count_or_type) {
  const auto plan_refused = [](const Spoil& spoil, const char* text) {
    return refused(&Call::run_plan, "plan", spoil, text);
  };
  EXPECT_TRUE(plan_refused([](Call& c) { c.ids.count = 7; }, "expert_ids has 7 entries, but tokens * top_k is 8"));
  EXPECT_TRUE(plan_refused([](Call& c) { c.ids.data = nullptr; }, "expert_ids is null, but has 8 entries"));
  EXPECT_TRUE(plan_refused([](Call& c) { c.ids.type = static_cast<IdType>(77); }, "expert_ids has an unknown type"));
}

TEST(Refusal, priorities_that_do_not_go_with_the_policy) {
  const auto plan_refused = [](const Spoil& spoil, const char* text) {
    return refused(&Call::run_plan, "plan", spoil, text);
  };
  EXPECT_TRUE(plan_refused([](Call& c) { c.policy = DropPolicy::by_weight; }, "the policy by_weight needs weights"));
  for (const DropPolicy policy : {DropPolicy::token_order, DropPolicy::choice_order})
    EXPECT_TRUE(plan_refused(
        [&](Call& c) {
          c.policy = policy;
          c.priority = c.weights;
        },
        policy == DropPolicy::token_order ? "weights were given, but the policy token_order does not use them"
                                          : "weights were given, but the policy choice_order does not use them"));
  EXPECT_TRUE(plan_refused([](Call& c) { c.policy = static_cast<DropPolicy>(9); }, "unknown drop policy"));
  const auto by_weight = [](Call& c, int64_t count, DType type) {
    c.policy = DropPolicy::by_weight;
    c.priority = {c.weights.data, count, type};
  };
  EXPECT_TRUE(plan_refused([&](Call& c) { by_weight(c, 7, DType::f32); },
                           "weights has 7 entries, but the plan has 8 assignments"));
  EXPECT_TRUE(plan_refused([&](Call& c) { by_weight(c, 8, DType::bytes); }, "weights must be f32, f64, bf16 or f16"));
}

TEST(Refusal, rows_of_a_wrong_shape) {
  const std::pair<Spoil, const char*> gather_cases[] = {
      {[](Call& c) { c.x.rows = 3; }, "x has 3 rows, but the plan was made for 4"},
      {[](Call& c) { c.y_out.rows = 5; }, "y has 5 rows, but the plan was made for 6"},
      {[](Call& c) { c.x.cols = -1; }, "x has -1 columns, but must not be negative"},
      {[](Call& c) { c.y_out.cols = 4; }, "y has a hidden size of 4, but x has 5"},
      {[](Call& c) { c.x.stride = -1; }, "x has a row stride of -1, but must be at least 0"},
      {[](Call& c) { c.y_out.stride = 4; }, "y has a row stride of 4, but must be at least 5"},
      {[](Call& c) { c.x.stride = int64_t{1} << 61; }, "x is larger than 2^63 bytes"},
      {[](Call& c) { c.x.data = nullptr; }, "x is null, but has 5 entries"},
      {[](Call& c) { c.y_out.data = nullptr; }, "y is null, but has 5 entries"},
      {[](Call& c) { c.y_out.type = DType::bf16; },
       "y holds bf16, but x holds f32; all rows of a call share one dtype"},
      {[](Call& c) { c.x.type = static_cast<DType>(77); }, "x has an unknown dtype"},
      {[](Call& c) { c.x.type = DType::bytes; }, "x holds bytes, but its element_bytes is 0"},
      {[](Call& c) { c.x.type = c.y_out.type = DType::bytes, c.x.element_bytes = c.y_out.element_bytes = 4; },
       "rows of bytes cannot be weighted"}};
  for (const auto& [spoil, text] : gather_cases) EXPECT_TRUE(refused(&Call::run_gather, "gather", spoil, text));
  const std::pair<Spoil, const char*> scatter_cases[] = {
      {[](Call& c) { c.y.rows = 7; }, "y has 7 rows, but the plan was made for 6"},
      {[](Call& c) { c.token_out.rows = 0; }, "out has 0 rows, but the plan was made for 4"},
      {[](Call& c) { c.token_out.stride = 0; }, "out has a row stride of 0, but must be at least 5"},
      {[](Call& c) { c.token_out.cols = 6, c.token_out.stride = 6; }, "out has a hidden size of 6, but y has 5"},
      {[](Call& c) { c.y.type = DType::bytes, c.y.element_bytes = 4; },
       "y holds bytes, but only the unweighted gather takes those"}};
  for (const auto& [spoil, text] : scatter_cases) EXPECT_TRUE(refused(&Call::run_scatter, "scatter", spoil, text));
}

TEST(Refusal, one_row_too_long_to_address) {
  const Case one = {.sizes = {1, 1, 1, 1}, .hidden = 5};
  for (const int64_t cols : {int64_t{1} << 61, (int64_t{1} << 62) + 1}) {
    Call call(one);
    call.x.cols = call.x.stride = call.y_out.cols = call.y_out.stride = cols;
    ASSERT_TRUE(refuses([&] { call.run_gather(); }, "gather", "x is larger than 2^63 bytes"));
  }
}

TEST(Refusal, rows_of_backward_and_wgrad) {
  const auto wgrad_refused = [](const Spoil& spoil, const char* text) {
    return refused(&Call::run_wgrad, "wgrad", spoil, text) &&
           refused(&Call::run_scatter_backward, "scatter_backward", spoil, text);
  };
  EXPECT_TRUE(wgrad_refused([](Call& c) { c.grad.rows = 3; }, "grad has 3 rows, but the plan was made for 4"));
  EXPECT_TRUE(wgrad_refused([](Call& c) { c.y.rows = 3; }, "y has 3 rows, but the plan was made for 6"));
  EXPECT_TRUE(wgrad_refused([](Call& c) { c.y.type = DType::f16; }, "grad holds f32, but y holds f16"));
  EXPECT_TRUE(wgrad_refused([](Call& c) { c.dw.count = 4; }, "dw has 4 entries, but the plan has 8 assignments"));
  EXPECT_TRUE(wgrad_refused([](Call& c) { c.dw.type = DType::bytes; }, "dw must be f32, f64, bf16 or f16"));
  EXPECT_TRUE(refused(
      &Call::run_wgrad, "wgrad", [](Call& c) { c.dw.data = nullptr; }, "dw is null, but has 8 entries"));
  EXPECT_TRUE(refused(
      &Call::run_gather_backward, "gather_backward", [](Call& c) { c.x = {}; },
      "x has 0 rows, but the plan was made for 4"));
  EXPECT_TRUE(refused(
      &Call::run_gather_backward, "gather_backward", [](Call& c) { c.x.cols = 4; },
      "x has a hidden size of 4, but dy has 5"));
  EXPECT_TRUE(refused(
      &Call::run_scatter_backward, "scatter_backward", [](Call& c) { c.y = {}; },
      "y has 0 rows, but the plan was made for 6"));
}

TEST(Refusal, weights_of_a_wrong_length_or_dtype) {
  for (const auto& mover : kMovers) {
    if (std::string(mover.operation) == "wgrad") continue;
    EXPECT_TRUE(refused(
        mover.run, mover.operation, [](Call& c) { c.weights.count = 4; },
        "weights has 4 entries, but the plan has 8 assignments"));
    EXPECT_TRUE(refused(
        mover.run, mover.operation, [](Call& c) { c.weights.type = DType::bytes; },
        "weights must be f32, f64, bf16 or f16"));
    EXPECT_TRUE(refused(
        mover.run, mover.operation, [](Call& c) { c.weights.type = DType::f64; },
        "weights are f64, but the rows are f32; f64 weights go with f64 rows only"));
    EXPECT_TRUE(refused(
        mover.run, mover.operation, [](Call& c) { c.weights.data = nullptr; }, "weights is null, but has 8 entries"));
  }
}

TEST(Refusal, outputs_that_overlap_inputs_or_each_other) {
  const auto last_byte = [](const ConstRows& rows) {  // an output that begins at the last byte of `rows`
    return static_cast<char*>(const_cast<void*>(rows.data)) + rows.rows * rows.stride * 4 - 1;
  };
  EXPECT_TRUE(refused(
      &Call::run_gather, "gather", [&](Call& c) { c.y_out.data = last_byte(c.x); },
      "y overlaps x in memory; an output needs its own"));
  EXPECT_TRUE(refused(
      &Call::run_gather, "gather", [&](Call& c) { c.y_out.data = const_cast<void*>(c.weights.data); },
      "y overlaps weights"));
  EXPECT_TRUE(refused(
      &Call::run_gather, "gather", [&](Call& c) { c.y_out.data = const_cast<int32_t*>(c.plan_view.indices); },
      "y overlaps the plan's indices"));
  EXPECT_TRUE(refused(
      &Call::run_scatter, "scatter", [&](Call& c) { c.token_out.data = last_byte(c.y); }, "out overlaps y"));
  EXPECT_TRUE(refused(
      &Call::run_wgrad, "wgrad", [&](Call& c) { c.dw.data = last_byte(c.grad); }, "dw overlaps grad"));
  EXPECT_TRUE(refused(
      &Call::run_wgrad, "wgrad", [&](Call& c) { c.dw.data = last_byte(c.y); }, "dw overlaps y"));
  EXPECT_TRUE(refused(
      &Call::run_scatter_backward, "scatter_backward", [&](Call& c) { c.dw.data = last_byte(c.y_out); },
      "dy overlaps dw"));
  EXPECT_TRUE(refused(
      &Call::run_scatter_backward, "scatter_backward", [&](Call& c) { c.y_out.data = const_cast<void*>(c.y.data); },
      "dy overlaps y"));
  EXPECT_TRUE(refused(
      &Call::run_scatter_backward, "scatter_backward", [&](Call& c) { c.dw.data = const_cast<void*>(c.weights.data); },
      "dw overlaps weights"));
  EXPECT_TRUE(refused(
      &Call::run_gather_backward, "gather_backward", [&](Call& c) { c.token_out.data = const_cast<void*>(c.x.data); },
      "dx overlaps x"));
  EXPECT_TRUE(refused(
      &Call::run_gather_backward, "gather_backward", [&](Call& c) { c.dw.data = last_byte(c.token_out); },
      "dx overlaps dw"));
  EXPECT_TRUE(refused(
      &Call::run_plan, "plan",
      [](Call& c) { c.plan_out.bin_ids = const_cast<int32_t*>(static_cast<const int32_t*>(c.ids.data)); },
      "the plan's bin_ids overlaps expert_ids"));
  EXPECT_TRUE(refused(
      &Call::run_plan, "plan", [](Call& c) { c.plan_out.bins = c.plan_out.indices + 7; },
      "the plan's indices overlaps the plan's bins"));
}

TEST(Refusal, bins_from_elsewhere_that_overlap_the_plan) {
  Call call;
  const PlanView out = call.plan_out;
  EXPECT_TRUE(refuses(
      [&] {
        plan_from_bins({out.indices, nullptr, 8, call.plan_view.bins, 3}, out);
      },
      "plan_from_bins", "the plan's indices overlaps the input's indices"));
}

TEST(Refusal, touching_neighbours_do_not_overlap) {
  Tensor both({10, 5, DType::f32}, Memory::Use::output);  // x in the first four rows, y in the other six
  Call call;
  Rows x = both.view(), y = both.view();
  x.rows = 4;
  y.rows = 6;
  y.data = both.row(4);
  EXPECT_EQ(refusal([&] { gather(call.plan_view, x, {}, y); }), "nothing was thrown");
}

/// Run `call` in a child whose address space ends soon, and return what it refused with.
std::string refusal_in_little_memory(const std::function<void()>& call) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {rlim_t{1} << 30, rlim_t{1} << 30};
    setrlimit(RLIMIT_AS, &limit);
    const std::string text = refusal(call);
    const bool written = write(pipe_ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(written ? 0 : 1);
  }
  close(pipe_ends[1]);
  std::string text(200, ' ');
  const ssize_t got = read(pipe_ends[0], text.data(), text.size());
  close(pipe_ends[0]);
  waitpid(child, nullptr, 0);
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return text;
}

TEST(Refusal, memory_that_is_not_there_is_an_error_with_the_bytes_wanted) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(BINMOE_TEST_EMULATED)
  GTEST_SKIP() << "needs a limited address space: a sanitizer reserves terabytes, an emulator knows no limit";
#endif
  const Sizes huge = {1500000000, 1, 1, 1};
  EXPECT_EQ(refusal_in_little_memory([&] { Plan made(huge); }), "[plan] cannot allocate 18000000012 bytes");
}

}  // namespace
}  // namespace test
