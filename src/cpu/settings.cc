#include "cpu/settings.h"

#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "option_text.h"

namespace binmoe::cpu {
namespace {

#if defined(__x86_64__)
// Feature by feature: clang 14 does not know the names x86-64-v2 and up, nor f16c, lzcnt and movbe.
bool has_v2() {
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
}

bool has_v3() {
  constexpr unsigned kMovbe = 1u << 22, kF16c = 1u << 29, kLzcnt = 1u << 5;
  unsigned a, b, basic = 0, extended = 0, d;
  if (!__get_cpuid(1, &a, &b, &basic, &d) || !__get_cpuid(0x80000001u, &a, &b, &extended, &d)) return false;
  return (basic & kMovbe) != 0 && (basic & kF16c) != 0 && (extended & kLzcnt) != 0 && __builtin_cpu_supports("avx2") &&
         __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

bool has_v4() {
  return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

struct Target {
  const char* name;
  const RowKernels* kernels;
  bool (*supported)();
};

// The best first.
constexpr Target kTargets[] = {
#if defined(__x86_64__)
    {"x86-64-v4", &kRowKernels_x86_64_v4, has_v4},
    {"x86-64-v3", &kRowKernels_x86_64_v3, has_v3},
    {"x86-64-v2", &kRowKernels_x86_64_v2, has_v2},
#elif defined(__aarch64__)
    {"neon", &kRowKernels_neon, [] { return true; }},
#endif
};

/// Outputs from here on are stored around the cache: a quarter of the last level, but a gather and a read of its output
/// were as fast either way at 10 MB where 300 MB are reported: virtual machines report their host's cache
/// (docs/cpu.md).
int64_t default_stream_bytes() {
  constexpr int64_t kMost = int64_t{8} << 20;
  const long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return l3 > 0 ? std::min<int64_t>(l3 / 4, kMost) : kMost;
}

const Target* find_target(std::string_view name) {
  for (const Target& target : kTargets)
    if (name == target.name && target.supported()) return &target;
  return nullptr;
}

std::string supported_names() {
  std::string names;
  for (const Target& target : kTargets)
    if (target.supported()) names += (names.empty() ? "" : ", ") + std::string(target.name);
  return names;
}

bool parse_bytes(std::string_view text, int64_t& out) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), out);
  return result.ec == std::errc() && result.ptr == text.data() + text.size() && out >= 0;
}

/// Set one key. Returns what is wrong, or an empty string.
std::string apply(std::string_view key, std::string_view value, Settings& settings) {
  if (key == "target") {
    const Target* target = find_target(value);
    if (target == nullptr)
      return "the backend cpu has no target '" + std::string(value) + "' here; there are: " + supported_names();
    settings.kernels = target->kernels;
    return "";
  }
  if (key == "stream_bytes")
    return parse_bytes(value, settings.stream_bytes)
               ? ""
               : "stream_bytes is '" + std::string(value) + "', but must be a number";
  return "the backend cpu has no option '" + std::string(key) + "'; there are: target, stream_bytes";
}

std::string apply_all(const char* options, Settings& settings) {
  return apply_options(options,
                       [&](std::string_view key, std::string_view value) { return apply(key, value, settings); });
}

struct Machine {
  Settings settings;
  std::string complaint;  // about the environment; every call is refused with it
};

const Machine& machine() {
  static const Machine found = [] {
    Machine out{{nullptr, default_stream_bytes()}, ""};
    for (const Target& target : kTargets)
      if (out.settings.kernels == nullptr && target.supported()) out.settings.kernels = target.kernels;
    const auto apply_variable = [&](const char* variable, const char* key) {
      const char* value = std::getenv(variable);
      if (value == nullptr || !out.complaint.empty()) return;
      out.complaint = apply(key, value, out.settings);
      if (!out.complaint.empty()) out.complaint = std::string(variable) + ": " + out.complaint;
    };
    apply_variable("BINMOE_CPU_TARGET", "target");
    apply_variable("BINMOE_STREAM_BYTES", "stream_bytes");
    return out;
  }();
  return found;
}

}  // namespace

Settings settings_of(const char* options) {
  Settings settings = machine().settings;
  if (*options != '\0') apply_all(options, settings);
  return settings;
}

std::string check_options(const char* options) {
  if (!machine().complaint.empty()) return machine().complaint;
  if (*options == '\0') return "";
  Settings ignored = machine().settings;
  return apply_all(options, ignored);
}

std::vector<BackendOption> options() {
  BackendOption target{"target", "", {}, "instruction set of the kernels"};
  for (const Target& t : kTargets) {
    if (t.supported()) target.values.push_back(t.name);
    if (t.kernels == machine().settings.kernels) target.value = t.name;
  }
  return {target,
          {"stream_bytes",
           std::to_string(machine().settings.stream_bytes),
           {},
           "outputs of at least so many bytes are stored around the cache"}};
}

}  // namespace binmoe::cpu
