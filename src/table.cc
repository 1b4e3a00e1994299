// The backend table: every known backend, the best first.
#include <array>
#include <cstdlib>
#include <string>

#include "backend.h"
#include "binmoe/context.h"

namespace binmoe {
namespace {

#if !BINMOE_HAVE_CPU
Backend cpu_backend() {
  return {"cpu", "SIMD and threads", "built without it (BINMOE_CPU=OFF)", nullptr};
}
#endif

#if !BINMOE_HAVE_CUDA
Backend cuda_backend() {
  Backend absent = {"cuda", "NVIDIA GPUs, sm_80 and newer", BINMOE_CUDA_ABSENT, nullptr};
  absent.memory = Memory::cuda;
  return absent;
}
#endif

const auto& table() {
  static const std::array<Backend, 4> entries = {cuda_backend(), cpu_backend(), reference_backend(),
                                                 ascend_model_backend()};
  return entries;
}

/// prefix: where the name comes from, for messages.
const Backend& find(std::string_view name, const char* prefix) {
  std::string names;
  for (const Backend& backend : table()) {
    names += (names.empty() ? "" : ", ") + std::string(backend.name);
    if (name != backend.name) continue;
    if (backend.unsupported == nullptr) return backend;
    throw Error(ErrorKind::unsupported, "backend",
                std::string(prefix) + "the backend " + backend.name + " cannot run here: " + backend.unsupported);
  }
  throw Error(ErrorKind::unsupported, "backend",
              std::string(prefix) + "no backend is called '" + std::string(name) + "'; there are: " + names);
}

}  // namespace

std::span<const Backend> backends() {
  return table();
}

const Backend& find_backend(std::string_view name) {
  return find(name, "");
}

const Backend& default_backend(Memory memory) {
  if (const char* name = std::getenv("BINMOE_BACKEND"); name != nullptr && *name != '\0') {
    const Backend& named = find(name, "BINMOE_BACKEND: ");
    if (memory == Memory::host || named.memory == memory) return named;
  }
  const Backend* absent = nullptr;
  for (const Backend& backend : table()) {
    if (backend.by_name_only || backend.memory != memory) continue;
    if (backend.unsupported == nullptr) return backend;
    absent = &backend;
  }
  throw Error(ErrorKind::unsupported, "backend",
              absent == nullptr
                  ? "no backend works on such memory"
                  : std::string("the backend ") + absent->name + " cannot run here: " + absent->unsupported);
}

std::vector<BackendOption> backend_options(const Backend& backend) {
  return backend.operations == nullptr ? std::vector<BackendOption>{} : backend.operations->options();
}

std::vector<BackendProperty> backend_properties(const Backend& backend) {
  if (backend.unsupported != nullptr || backend.operations->properties == nullptr) return {};
  return backend.operations->properties();
}

const char* version() {
  return BINMOE_VERSION;
}

}  // namespace binmoe
