#include "openmp_executor.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>

namespace binmoe::python {
namespace {

std::atomic<bool> forked{false};

class OpenMpExecutor final : public Executor {
 public:
  int concurrency() const override {
    if (forked) return default_executor().concurrency();
    return omp_in_parallel() != 0 ? 1 : omp_get_max_threads();
  }

  /// One chunk a thread: each thread has the same one in every call, and what it wrote last is in its core's cache.
  void parallel_for(int64_t chunks, void (*body)(void*, int64_t), void* argument) override {
    if (forked) return default_executor().parallel_for(chunks, body, argument);
    const int threads = static_cast<int>(std::min<int64_t>(concurrency(), chunks));
    if (threads <= 1) {
      for (int64_t i = 0; i < chunks; ++i) body(argument, i);
    } else if (chunks == threads) {
#pragma omp parallel for schedule(static, 1) num_threads(threads)
      for (int64_t i = 0; i < chunks; ++i) body(argument, i);
    } else {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
      for (int64_t i = 0; i < chunks; ++i) body(argument, i);
    }
  }
};

}  // namespace

Executor& openmp_executor() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forked = true; });
  static_cast<void>(registered);
  static OpenMpExecutor executor;
  return executor;
}

}  // namespace binmoe::python
