#include <string>

#include "binmoe/ascend.h"

namespace binmoe::ascend {
namespace {

constexpr int64_t kKib = 1024;
// 2201: a kernel may use 192 KiB - 256 B, and the compiler's default reserve of 8 KiB stays.
constexpr int64_t kUb2201 = 192 * kKib, kLimit2201 = 192 * kKib - 256 - 8 * kKib;
constexpr int64_t kUb3510 = 256 * kKib, kLimit3510 = 248 * kKib;
constexpr const char* kSource2201 = "NIR NPUTargetSpec.td; ADK architecture page 2201";
constexpr const char* kSource3510 = "NIR NPUTargetSpec.td; ADK architecture page 3510";

constexpr Soc kSocs[] = {
    {"910B1", "A2", 48, kUb2201, kLimit2201, kSource2201},
    {"910B2", "A2", 48, kUb2201, kLimit2201, kSource2201},
    {"910B2C", "A2", 48, kUb2201, kLimit2201, kSource2201},
    {"910B3", "A2", 40, kUb2201, kLimit2201, kSource2201},
    {"910B4", "A2", 40, kUb2201, kLimit2201, kSource2201},
    {"910B4-1", "A2", 40, kUb2201, kLimit2201, kSource2201},
    {"910_9362", "A3", 40, kUb2201, kLimit2201, kSource2201},
    {"910_9363", "A3", 40, kUb2201, kLimit2201, kSource2201},
    {"910_9372", "A3", 40, kUb2201, kLimit2201, kSource2201},
    {"910_9381", "A3", 48, kUb2201, kLimit2201, kSource2201},
    {"910_9382", "A3", 48, kUb2201, kLimit2201, kSource2201},
    {"910_9391", "A3", 48, kUb2201, kLimit2201, kSource2201},
    {"910_9392", "A3", 48, kUb2201, kLimit2201, kSource2201},
    {"950_957x", "950", 56, kUb3510, kLimit3510, kSource3510},
    {"950_958x", "950", 64, kUb3510, kLimit3510, kSource3510},
    {"950_959x", "950", 72, kUb3510, kLimit3510, kSource3510},
};

}  // namespace

std::span<const Soc> socs() {
  return kSocs;
}

const Soc& find_soc(std::string_view name) {
  constexpr std::string_view kPrefix = "Ascend";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  std::string names;
  for (const Soc& soc : kSocs) {
    if (name == soc.name) return soc;
    names += (names.empty() ? "" : ", ") + std::string(soc.name);
  }
  throw Error(ErrorKind::unsupported, "tile", "there is no SoC '" + std::string(name) + "'; there are: " + names);
}

}  // namespace binmoe::ascend
