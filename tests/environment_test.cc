// Threads and processes: the pools, nested and concurrent calls, fork, and the same bits whatever runs beside.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "problem.h"

/// Tsan by default ends a child that starts threads after a fork of a threaded parent; that case is tested here.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() {
  return "die_after_fork=0";
}

namespace test {
namespace {

/// parallel_for with a callable.
template <class Body>
void for_each_chunk(Executor& executor, int64_t chunks, const Body& body) {
  executor.parallel_for(
      chunks, [](void* argument, int64_t chunk) { (*static_cast<const Body*>(argument))(chunk); },
      const_cast<Body*>(&body));
}

int64_t sum_of_chunks(Executor& executor, int64_t chunks) {
  std::atomic<int64_t> total{0};
  for_each_chunk(executor, chunks, [&](int64_t i) { total += i + 1; });
  return total;
}

TEST(Pool, runs_each_chunk_once) {
  for (const int threads : {1, 2, 3, 8}) {
    const auto pool = make_thread_pool(threads);
    EXPECT_EQ(pool->concurrency(), threads);
    for (const int64_t chunks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> times(static_cast<size_t>(chunks));
      for_each_chunk(*pool, chunks, [&](int64_t i) { ++times[static_cast<size_t>(i)]; });
      for (const auto& count : times) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(Pool, writes_of_the_chunks_are_seen_after_the_call) {
  const auto pool = make_thread_pool(3);
  std::vector<int64_t> squares(500);
  for (int64_t round = 0; round < 200; ++round) {
    for_each_chunk(*pool, 500, [&](int64_t i) { squares[static_cast<size_t>(i)] = i * i + round; });
    for (int64_t i = 0; i < 500; ++i) ASSERT_EQ(squares[static_cast<size_t>(i)], i * i + round);
  }
}

TEST(Pool, of_fewer_than_one_thread_is_one_thread) {
  EXPECT_EQ(make_thread_pool(0)->concurrency(), 1);
  EXPECT_EQ(make_thread_pool(-4)->concurrency(), 1);
}

TEST(Pool, a_call_from_inside_a_chunk_runs_inline) {
  const auto pool = make_thread_pool(2);
  for (Executor* inner : {pool.get(), &default_executor()}) {
    std::atomic<int> elsewhere{0};
    std::atomic<int64_t> total{0};
    for_each_chunk(*pool, 8, [&](int64_t) {
      const auto self = std::this_thread::get_id();
      for_each_chunk(*inner, 5, [&](int64_t i) {
        total += i;
        elsewhere += std::this_thread::get_id() != self;
      });
    });
    EXPECT_EQ(total, 80);
    EXPECT_EQ(elsewhere, 0);
  }
}

TEST(Pool, concurrent_callers_do_not_wait_for_each_other_forever) {
  Executor& pool = default_executor();
  EXPECT_GE(pool.concurrency(), 1);
  std::atomic<bool> inside{false}, other_done{false};
  std::thread other([&] {
    while (!inside) std::this_thread::yield();
    EXPECT_EQ(sum_of_chunks(pool, 100), 5050);
    other_done = true;
  });
  for_each_chunk(pool, 2, [&](int64_t) {  // holds the pool until the other caller has finished
    inside = true;
    while (!other_done) std::this_thread::yield();
  });
  other.join();
}

TEST(Pool, many_concurrent_callers_each_get_their_sum) {
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) wrong += sum_of_chunks(default_executor(), 30) != 465;
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

/// The child's verdict: 0 when `body` returned true.
template <class Body>
int in_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(Fork, the_default_executor_works_in_the_child_and_still_in_the_parent) {
  ASSERT_EQ(sum_of_chunks(default_executor(), 50), 1275);  // the pool has its workers now
  EXPECT_EQ(in_child([] {
              alarm(20);  // a hang ends as a failure
              bool good = true;
              for (int i = 0; i < 20; ++i) good = good && sum_of_chunks(default_executor(), 50) == 1275;
              return good;
            }),
            0);
  EXPECT_EQ(sum_of_chunks(default_executor(), 50), 1275);
}

TEST(Fork, operations_give_the_same_bits_in_the_child) {
  const Problem p(Case{.sizes = {600, 3, 9, 150}, .hidden = 200});
  for (const Backend& backend : backends()) {
    if (backend.unsupported != nullptr) continue;
    Context context;
    context.backend = &backend;
    Tensor before = p.token_rows_out();
    scatter(p.plan_view(), p.y.view(), p.weights.weights(), before.view(), context);
    EXPECT_EQ(in_child([&] {
                alarm(20);
                Tensor out = p.token_rows_out();
                scatter(p.plan_view(), p.y.view(), p.weights.weights(), out.view(), context);
                return out.packed() == before.packed();
              }),
              0)
        << backend.name;
  }
}

/// Every output of every operation, as bytes.
std::vector<unsigned char> all_outputs(const Problem& p, const Context& context) {
  std::vector<unsigned char> all;
  const auto add = [&](const std::vector<unsigned char>& bytes) { all.insert(all.end(), bytes.begin(), bytes.end()); };
  Plan made(p.c.sizes);
  plan(p.id_array.view(), p.c.policy, p.priority_view(), made.view(), context);
  for (const auto span : {made.indices(), made.bin_ids(), made.row_of_assignment(), made.bins()})
    for (const int32_t value : span)
      for (int shift = 0; shift < 32; shift += 8) all.push_back(static_cast<unsigned char>(value >> shift));
  const Weights weights = p.weights.weights();
  Tensor y = p.expert_rows_out(), dy = p.expert_rows_out(), out = p.token_rows_out(), dx = p.token_rows_out();
  Numbers dw = p.gradients_out(DType::f32), dw_y = p.gradients_out(DType::f32), dw_x = p.gradients_out(DType::f32);
  gather(made, p.x.view(), weights, y.view(), context);
  scatter(made, p.y.view(), weights, out.view(), context);
  wgrad(made, p.y.view(), p.grad.view(), dw.gradients(), context);
  scatter_backward(made, p.y.view(), p.grad.view(), weights, dy.view(), dw_y.gradients(), context);
  gather_backward(made, p.y.view(), weights, p.x.view(), dx.view(), dw_x.gradients(), context);
  for (const Tensor* tensor : {&y, &dy, &out, &dx}) add(tensor->packed());
  for (const Numbers* numbers : {&dw, &dw_y, &dw_x}) add(numbers->packed());
  return all;
}

TEST(SameBits, a_hundred_repetitions_of_every_operation) {
  const Problem p(Case{.sizes = {300, 3, 9, 80}, .hidden = 130, .row_type = DType::bf16});
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    const auto first = all_outputs(p, variant.context());
    for (int i = 1; i < (kThorough ? 100 : 10); ++i)
      ASSERT_TRUE(all_outputs(p, variant.context()) == first) << "repetition " << i;
  }
}

TEST(SameBits, two_threads_calling_at_once) {
  const Problem p(Case{.sizes = {300, 3, 9, 80}, .hidden = 130});
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    for (const bool shared_default : {false, true}) {
      Context context = variant.context();
      if (shared_default) context.executor = nullptr;
      const auto expected = all_outputs(p, context);
      std::atomic<int> wrong{0};
      const auto work = [&] {
        for (int i = 0; i < 5; ++i) wrong += all_outputs(p, context) != expected;
      };
      std::thread one(work), two(work);
      one.join();
      two.join();
      EXPECT_EQ(wrong, 0);
    }
  }
}

TEST(SameBits, inputs_are_left_untouched) {
  const Problem p(Case{.sizes = {40, 3, 9, 10}, .hidden = 33, .gap = 5, .offset_bytes = 1});
  const auto inputs = [&] {
    std::vector<unsigned char> all = p.x.all_bytes();
    for (const auto& part : {p.grad.all_bytes(), p.y.all_bytes(), p.weights.packed(), p.priority.packed()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const auto before = inputs();
  const oracle::Plan plan_before = p.plan;
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    all_outputs(p, variant.context());
    EXPECT_TRUE(inputs() == before);
    EXPECT_TRUE(same_plan(p.plan_view(), plan_before));
  }
}

}  // namespace
}  // namespace test
