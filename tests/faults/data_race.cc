// Two threads write one plain int: the thread job must stop here.
#include <cstdio>
#include <thread>

int main() {
  int shared = 0;
  const auto add = [&shared] {
    for (int i = 0; i < 1000; ++i) ++shared;
  };
  std::thread one(add), two(add);
  one.join();
  two.join();
  std::printf("%d\n", shared);
  return 0;
}
