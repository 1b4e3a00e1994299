// The default executor: a small pool. The caller takes part; chunks are claimed one by one. Workers spin briefly before
// they sleep, so that the phases of one operation follow each other without a wake-up.
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "binmoe/context.h"

namespace binmoe {
namespace {

thread_local bool inside_a_chunk = false;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct Work {
  int64_t chunks = 0;
  void (*body)(void*, int64_t) = nullptr;
  void* argument = nullptr;
};

void run_inline(const Work& work) {
  for (int64_t i = 0; i < work.chunks; ++i) work.body(work.argument, i);
}

class ThreadPool final : public Executor {
 public:
  explicit ThreadPool(int threads) : threads_(threads < 1 ? 1 : threads) {}

  ~ThreadPool() override {
    stopping_ = true;
    generation_.fetch_add(1);
    generation_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  int concurrency() const override { return threads_; }

  void parallel_for(int64_t chunks, void (*body)(void*, int64_t), void* argument) override {
    const Work work{chunks, body, argument};
    if (chunks <= 1 || threads_ == 1 || inside_a_chunk) return run_inline(work);
    const std::unique_lock lock(busy_, std::try_to_lock);
    if (!lock.owns_lock()) return run_inline(work);
    start_workers();
    work_ = work;
    next_ = 0;
    running_ = static_cast<int>(workers_.size());
    generation_.fetch_add(1);
    generation_.notify_all();
    claim_chunks();
    for (int spins = 0; running_.load() != 0; ++spins) {
      pause();
      if (spins > kSpins) std::this_thread::yield();
    }
  }

 private:
  static constexpr int kSpins = 2000;  // some 30 us

  void start_workers() {
    if (!workers_.empty() || failed_) return;
    try {
      for (int i = 1; i < threads_; ++i) workers_.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {
      failed_ = true;  // fewer threads, or none: the caller does the work
    }
  }

  void serve() {
    uint32_t seen = 0;
    while (true) {
      for (int spins = 0; generation_.load() == seen && spins < kSpins; ++spins) pause();
      generation_.wait(seen);
      seen = generation_.load();
      if (stopping_) return;
      claim_chunks();
      running_.fetch_sub(1);
    }
  }

  void claim_chunks() {
    inside_a_chunk = true;
    for (int64_t i = next_.fetch_add(1); i < work_.chunks; i = next_.fetch_add(1)) work_.body(work_.argument, i);
    inside_a_chunk = false;
  }

  const int threads_;
  std::mutex busy_;
  std::vector<std::thread> workers_;
  bool failed_ = false;
  Work work_;
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<int> running_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  std::atomic<bool> stopping_{false};
};

int available_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());  // more than 1024 CPUs do not fit cpu_set_t
}

std::atomic<ThreadPool*> shared_pool{nullptr};

/// After fork the child has none of the workers: it leaves the parent's pool behind and makes its own on first use.
void forget_pool() {
  shared_pool = nullptr;
}

}  // namespace

Executor& default_executor() {
  static const int threads = available_threads();
  static const int registered = pthread_atfork(nullptr, nullptr, forget_pool);
  static_cast<void>(registered);
  ThreadPool* pool = shared_pool.load();
  if (pool == nullptr) {
    auto made = std::make_unique<ThreadPool>(threads);
    if (shared_pool.compare_exchange_strong(pool, made.get())) pool = made.release();
  }
  return *pool;
}

std::unique_ptr<Executor> make_thread_pool(int threads) {
  return std::make_unique<ThreadPool>(threads);
}

}  // namespace binmoe
