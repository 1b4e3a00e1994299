// A read one past the end of a heap array: the address job must stop here.
#include <cstdio>
#include <memory>

int main(int argc, char**) {
  const auto values = std::make_unique<int[]>(4);
  volatile int index = 3 + argc;
  std::printf("%d\n", values[static_cast<size_t>(index)]);
  return 0;
}
