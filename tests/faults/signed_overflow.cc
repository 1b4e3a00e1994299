// A sum past the largest int: the undefined job must stop here.
#include <cstdio>
#include <limits>

int main(int argc, char**) {
  volatile int value = std::numeric_limits<int>::max();
  std::printf("%d\n", value + argc);
  return 0;
}
