#pragma once

#include <cstddef>
#include <cstdint>

namespace binmoe::python {

/// Ask for huge pages under fresh host memory of 32 MiB and more, which malloc takes from the kernel each time: first
/// touch of 4 KiB pages costs ten times the operation (docs/cpu.md). A wish; the kernel may not grant it.
void advise_huge_pages(uintptr_t address, size_t bytes);

}  // namespace binmoe::python
