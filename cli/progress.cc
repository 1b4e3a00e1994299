#include "progress.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace binmoe::cli {

Progress::Progress() {
  if (::isatty(STDERR_FILENO) == 1) printer_ = std::thread(&Progress::run, this);
}

Progress::~Progress() {
  if (!printer_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  ended_.notify_all();
  printer_.join();
}

void Progress::step(const std::string& what) {
  const std::lock_guard lock(mutex_);
  what_ = what;
}

void Progress::run() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  auto wait = std::chrono::milliseconds(1000);
  bool printed = false;
  while (!ended_.wait_for(lock, wait, [this] { return done_; })) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    std::fprintf(stderr, "\r\033[K%s ... %.0f s", what_.c_str(), elapsed.count());
    std::fflush(stderr);
    printed = true;
    wait = std::chrono::milliseconds(250);
  }
  if (printed) std::fputs("\r\033[K", stderr);
}

}  // namespace binmoe::cli
