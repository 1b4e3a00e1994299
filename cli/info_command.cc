// binmoe info
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "commands.h"

namespace binmoe::cli {
namespace {

constexpr CommandText kText = {"info",
                               "Print the version, the backends with their settings and devices, threads and caches.",
                               R"(JSON (--json):
  version, backends: [{name, description, supported, reason, options, properties}], default_backend, threads, caches

Example:
  binmoe info)"};

struct Cache {
  const char* name;
  long bytes;
};

std::vector<Cache> caches() {
  return {{"l1d", ::sysconf(_SC_LEVEL1_DCACHE_SIZE)},
          {"l2", ::sysconf(_SC_LEVEL2_CACHE_SIZE)},
          {"l3", ::sysconf(_SC_LEVEL3_CACHE_SIZE)}};
}

std::string json_of(Common& common) {
  nlohmann::ordered_json out = {{"version", version()}};
  for (const Backend& backend : backends()) {
    nlohmann::ordered_json entry = {{"name", backend.name},
                                    {"description", backend.description},
                                    {"supported", backend.unsupported == nullptr},
                                    {"reason", nullptr}};
    if (backend.unsupported != nullptr) entry["reason"] = backend.unsupported;
    entry["options"] = nlohmann::ordered_json::array();
    for (const BackendOption& option : backend_options(backend))
      entry["options"].push_back({{"key", option.key},
                                  {"value", option.value},
                                  {"values", option.values},
                                  {"description", option.description}});
    entry["properties"] = nlohmann::ordered_json::object();
    for (const BackendProperty& property : backend_properties(backend))
      entry["properties"][property.name] = property.value;
    out["backends"].push_back(entry);
  }
  out["default_backend"] = common.backend().name;
  out["threads"] = common.executor().concurrency();
  for (const Cache& cache : caches()) out["caches"][cache.name] = cache.bytes;
  return out.dump() + "\n";
}

std::string text_of(Common& common) {
  std::string out = std::string("binmoe ") + version() + "\nbackends, the best first (* = in force)\n";
  const Backend& chosen = common.backend();
  for (const Backend& backend : backends()) {
    out += std::string(&backend == &chosen ? "* " : "  ") + backend.name + ": " + backend.description;
    if (backend.unsupported != nullptr) out += std::string("; not supported: ") + backend.unsupported;
    out += "\n";
    for (const BackendProperty& property : backend_properties(backend))
      out += "      " + property.name + " " + property.value + "\n";
    for (const BackendOption& option : backend_options(backend)) {
      out += "      " + option.key + "=" + option.value + "  " + option.description;
      for (size_t i = 0; i < option.values.size(); ++i)
        out += (i == 0 ? " (" : ", ") + option.values[i] + (i + 1 == option.values.size() ? ")" : "");
      out += "\n";
    }
  }
  out += "threads " + std::to_string(common.executor().concurrency()) + "\ncaches ";
  for (const Cache& cache : caches())
    out += std::string(" ") + cache.name + " " +
           (cache.bytes > 0 ? std::to_string(cache.bytes / 1024) + " KiB" : "unknown");
  return out + "\n";
}

}  // namespace

void add_info(CLI::App& app, Common& common) {
  CLI::App& command = add_command(app, common, kText);
  command.callback([&common] { print(common.json ? json_of(common) : text_of(common)); });
}

}  // namespace binmoe::cli
