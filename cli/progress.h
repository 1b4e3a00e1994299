// A line on stderr that says what is going on, once that takes over a second and stderr is a terminal.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace binmoe::cli {

class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// What is being done from now on, e.g. "reading x.npy".
  void step(const std::string& what);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable ended_;
  std::string what_ = "working";
  bool done_ = false;
  std::thread printer_;
};

}  // namespace binmoe::cli
