// A launch in Chrome's trace format: chrome://tracing or Perfetto show it.
#include <cstdio>

#include "machine.h"

namespace binmoe::vector_core {

namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + '"';
}

std::string number(double value) {
  char text[48];
  std::snprintf(text, sizeof(text), "%.4f", value);
  return text;
}

std::string name_event(const char* what, int32_t core, size_t pipe, const std::string& name) {
  return "{\"ph\":\"M\",\"name\":\"" + std::string(what) + "\",\"pid\":" + std::to_string(core) +
         ",\"tid\":" + std::to_string(pipe) + ",\"args\":{\"name\":" + quoted(name) + "}}";
}

}  // namespace

std::string Machine::chrome_trace(const Launch& launch, const ReplayOptions& options) const {
  std::string out = "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"kernel\":" + quoted(launch.kernel) +
                    ",\"times\":\"estimates by the vector-core model\"},\"traceEvents\":[";
  std::vector<double> begin(static_cast<size_t>(profile_.vector_cores), 0.0);
  const Sites& sites = core_->sites();
  const char* comma = "\n";
  const auto add = [&](const std::string& event) {
    out += comma + event;
    comma = ",\n";
  };
  for (size_t program = 0; program < launch.traces.size(); ++program) {
    const size_t core_index = program % begin.size();
    const auto core = static_cast<int32_t>(core_index);
    if (program < begin.size()) {
      add(name_event("process_name", core, 0, "core " + std::to_string(core)));
      for (size_t p = 0; p < kPipes; ++p) add(name_event("thread_name", core, p, kPipeNames[p]));
    }
    const double offset = begin[core_index];
    const auto visit = [&](const Interval& i) {
      const Sites::Entry& site = sites.at(i.step.site);
      const std::string file = site.place.file;
      const bool plain = i.step.kind == StepKind::scalar;
      std::string event = "{\"ph\":\"X\",\"name\":" + quoted(plain ? "scalar" : name_of(site.call)) +
                          ",\"pid\":" + std::to_string(core) + ",\"tid\":" + std::to_string(index_of(i.pipe)) +
                          ",\"ts\":" + number((offset + i.begin_ns) * 1e-3) +
                          ",\"dur\":" + number((i.end_ns - i.begin_ns) * 1e-3) + ",\"args\":{";
      if (!plain)
        event += "\"at\":" + quoted(file.substr(file.find_last_of('/') + 1) + ":" + std::to_string(site.place.line));
      if (i.step.kind == StepKind::copy && i.pipe != Pipe::scalar)
        event += ",\"blocks\":" + std::to_string(i.step.amount) + ",\"bytes\":" + std::to_string(i.step.extent);
      add(event + "}}");
    };
    begin[core_index] += replay(profile_, launch.traces[program], options, nullptr, visit);
  }
  return out + "\n]}\n";
}

}  // namespace binmoe::vector_core
