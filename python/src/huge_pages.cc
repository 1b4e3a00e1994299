#include "huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

namespace binmoe::python {

void advise_huge_pages(uintptr_t address, size_t bytes) {
  constexpr size_t kLeast = size_t{32} << 20;  // the most that glibc's M_MMAP_THRESHOLD grows to
  if (bytes < kLeast) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (address + page - 1) / page * page, end = (address + bytes) / page * page;
#ifdef MADV_HUGEPAGE
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace binmoe::python
