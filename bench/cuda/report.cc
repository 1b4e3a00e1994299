#include "bench/cuda/report.h"

#include <algorithm>
#include <cstdio>

namespace binmoe::bench {
namespace {

/// printf into a string.
template <class... Values>
std::string text(const char* format, Values... values) {
  char out[256];
  std::snprintf(out, sizeof out, format, values...);
  return out;
}

std::string cell_of_targets(const Result& result, const std::vector<Target>& targets) {
  std::string out;
  for (const Target& target : targets)
    out += (out.empty() ? "" : "; ") + target.text() + (target.met(result) ? " met" : " MISSED");
  return out.empty() ? "-" : out;
}

std::string cell_of_public(const Result& result) {
  const auto best = public_us(result.of, result.call);
  if (!best) return "-";
  return text("%.4g: ", *best) +
         (result.full.us > *best * kPublicSpread ? "SLOWER" : text("x%.2f", *best / result.full.us));
}

/// A member of a JSON object; values come as JSON.
std::string member(const char* key, const std::string& value, bool last = false) {
  return std::string("\"") + key + "\": " + value + (last ? "" : ", ");
}

std::string quoted(const std::string& value) {
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

std::string number(double value) {
  return text("%.6g", value);
}

std::string json_of(const Timing& timing) {
  return "[" + number(timing.low) + ", " + number(timing.us) + ", " + number(timing.high) + "]";
}

std::string json_of(const Result& r, const std::vector<Target>& targets) {
  std::string out = "{" + member("model", quoted(r.of.model)) + member("routing", quoted(r.of.routing)) +
                    member("dtype", quoted(binmoe::name_of(r.of.dtype))) + member("variant", quoted(r.of.variant)) +
                    member("call", quoted(name_of(r.call))) + member("warm", r.warm ? "true" : "false") +
                    member("tokens", std::to_string(r.of.sizes.tokens)) +
                    member("hidden_size", std::to_string(r.of.hidden_size));
  if (!r.wrong.empty()) return out + member("wrong", quoted(r.wrong), true) + "}";
  out += member("us", number(r.full.us)) + member("us_quartiles", json_of(r.full)) +
         member("us_dependent", json_of(r.captured));
  if (r.behind_full)
    out += member("us_behind", number(*r.behind_full)) + member("us_behind_dependent", number(*r.behind_captured));
  if (const auto best = public_us(r.of, r.call)) out += member("public_us", number(*best));
  std::string list;
  for (const Target& target : targets)
    list += (list.empty() ? "{" : ", {") + member("target", quoted(target.text())) +
            member("met", target.met(r) ? "true" : "false", true) + "}";
  return out + member("bytes", std::to_string(r.bytes)) + member("copy_bytes_per_us", number(r.copy)) +
         member("share", number(r.share())) + member("targets", "[" + list + "]", true) + "}";
}

}  // namespace

std::string table_head() {
  return "| model | routing | rows | call | us | +- % | dependent us | behind us: full, dependent | share | target "
         "| public best us |\n|---|---|---|---|---|---|---|---|---|---|---|\n";
}

std::string table_row(const Result& r, const std::vector<Target>& targets) {
  std::string out = "| " + r.of.model + " | " + r.of.routing + " | " + binmoe::name_of(r.of.dtype) +
                    (r.of.variant.empty() ? "" : ", " + r.of.variant) + " | " + name_of(r.call) +
                    (r.warm ? ", warm" : "") + " | ";
  if (!r.wrong.empty()) return out + "WRONG: " + r.wrong + " | - | - | - | - | - | - |\n";
  out += text("%.2f | %.1f | %.2f | ", r.full.us, 50 * (r.full.high - r.full.low) / r.full.us, r.captured.us);
  out += r.behind_full ? text("%.2f, %.2f | ", *r.behind_full, *r.behind_captured) : "- | ";
  return out + text("%.3f | ", r.share()) + cell_of_targets(r, targets) + " | " + cell_of_public(r) + " |\n";
}

std::string summary(const Tally& tally, const Machine& machine) {
  const auto [low, high] = std::minmax_element(machine.copies.begin(), machine.copies.end());
  std::string out = machine.device + text(", driver %d, runtime %d", machine.driver, machine.runtime) +
                    "; results checked against the backend " + machine.host_backend + "\n";
  if (!machine.copies.empty())
    out += text("copy of 4 GiB: %.0f to %.0f GB/s in %zu measurements\n", *low * 1e-3, *high * 1e-3,
                machine.copies.size());
  return out + text("targets: %d met, %d missed; public times: %d rows faster or equal, %d slower; wrong rows: %d\n",
                    tally.met, tally.missed, tally.faster, tally.slower, tally.wrong);
}

std::string json_of(const Machine& machine, const std::vector<Result>& results,
                    const std::vector<std::vector<Target>>& targets) {
  std::string out = "{" + member("device", quoted(machine.device)) + member("command", quoted(machine.command)) +
                    member("driver", std::to_string(machine.driver)) +
                    member("runtime", std::to_string(machine.runtime)) +
                    member("checked_against", quoted(machine.host_backend));
  std::string copies, rows;
  for (const double copy : machine.copies) copies += (copies.empty() ? "" : ", ") + number(copy);
  for (size_t i = 0; i < results.size(); ++i) rows += (i == 0 ? "\n  " : ",\n  ") + json_of(results[i], targets[i]);
  return out + member("copies_bytes_per_us", "[" + copies + "]") + "\n" + member("rows", "[" + rows + "\n]", true) +
         "}\n";
}

}  // namespace binmoe::bench
