// Remove the guards of the kernels, one at a time and in each kernel by itself where kernels share a helper, and run
// small cases until something objects. Prints how many mutants died and of what; fails when one survives without a
// reason in the table below, or a reason is no longer needed. With --verbose: each mutant and the objection.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <thread>
#include <tuple>

#include "ascend/vector_core/fault.h"
#include "mutant_jobs.h"

namespace test {
namespace {

namespace vector_core = binmoe::vector_core;
using vector_core::Kind;
using vector_core::Mode;
using vector_core::Mutation;

constexpr const char* kKindNames[] = {"SetFlag",    "WaitFlag",    "EnQue",       "DeQue",
                                      "FreeTensor", "PipeBarrier", "BINMOE_BOUND"};
constexpr const char* kModeNames[] = {"skip", "edge", "unbound"};

/// A mutant that nothing objects to, and why that is right. The site: in `file`, the one whose line, with the two
/// before it, holds `snippet`.
struct Reason {
  Kind kind;
  Mode mode;
  const char* file;
  const char* snippet;
  const char* reason;
  const char* kernel = "";
};
constexpr const char* kBalance = "nothing follows: the wait only balances the flag";
constexpr Reason kReasons[] = {
    {Kind::wait_flag, Mode::edge, "common.h", "void End() { for (", kBalance},
    {Kind::wait_flag, Mode::edge, "plan_count.h", "if (is_stored_) WaitFlag<HardEvent::MTE3_V>(stored_);  //",
     kBalance},
    {Kind::wait_flag, Mode::edge, "plan_radix.h", "if (blocks_ > 0) WaitFlag<HardEvent::MTE3_S>(drained_);  //",
     kBalance},
    {Kind::wait_flag, Mode::edge, "plan_runs.h", "if (is_filled_) WaitFlag<HardEvent::MTE3_S>(drained_);  //",
     kBalance},
    {Kind::enque, Mode::edge, "dots.h", "grads_.EnQue(grad);", "the rows of y are loaded, and queued, after grad's"},
    {Kind::deque, Mode::edge, "dots.h", "grad_tensor_ = grads_.", "the rows' DeQue comes first and orders more"},
    {Kind::pipe_barrier, Mode::skip, "row_scaler.h", "Cast(out_, products_.template",
     "a run is stored once, and the barrier of Take stands before the next products", "gather by expert"},
};

struct Mutant {
  std::string kernel;
  Mutation mutation;
  std::string killed_by;  // empty: it survived
  std::string message;
};

std::vector<Mode> modes_of(Kind kind) {
  if (kind == Kind::pipe_barrier) return {Mode::skip};
  if (kind == Kind::bound) return {Mode::unbound};
  return {Mode::skip, Mode::edge};
}

bool meets(const Baseline& baseline, const Mutation& mutation) {
  for (const vector_core::SiteHits& site : baseline.seen.sites)
    if (site.kind == mutation.kind && site.site == mutation.site) return true;
  return false;
}

/// The first check that objects, over the kernel's jobs that meet the site.
void run(Mutant& mutant, const std::vector<Baseline>& baselines) {
  for (const Baseline& baseline : baselines) {
    if (baseline.job.kernel != mutant.kernel || !meets(baseline, mutant.mutation)) continue;
    try {
      const Observation seen = baseline.job.run(&mutant.mutation);
      if (seen.outputs != baseline.seen.outputs)
        mutant.killed_by = "values";
      else if (seen.read_bytes != baseline.seen.read_bytes)
        mutant.killed_by = "bytes read";
    } catch (const vector_core::ModelFault& fault) {
      mutant.killed_by = fault.rule;
      mutant.message = fault.what();
    }
    if (!mutant.killed_by.empty()) {
      mutant.message = baseline.job.name + ": " + mutant.message;
      return;
    }
  }
}

/// Work through `count` items on two threads.
void in_parallel(const char* what, size_t count, const std::function<void(size_t)>& body) {
  std::atomic<size_t> next{0};
  std::exception_ptr errors[2];
  const auto work = [&](std::exception_ptr& error) {
    try {
      for (size_t i = next++; i < count; i = next++) {
        body(i);
        if (i % 250 == 249) std::fprintf(stderr, "%s: %zu of %zu\n", what, i + 1, count);
      }
    } catch (...) {
      error = std::current_exception();
    }
  };
  std::thread other(work, std::ref(errors[1]));
  work(errors[0]);
  other.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

std::vector<Mutant> mutants_of(const std::vector<Baseline>& baselines) {
  std::set<std::tuple<Kind, std::string, int, std::string>> sites;
  for (const Baseline& baseline : baselines)
    for (const vector_core::SiteHits& site : baseline.seen.sites)
      sites.insert({site.kind, site.site.file, site.site.line, baseline.job.kernel});
  std::vector<Mutant> out;
  for (const auto& [kind, file, line, kernel] : sites)
    for (const Mode mode : modes_of(kind)) out.push_back({kernel, {kind, {file, line}, mode}, "", ""});
  return out;
}

std::string trimmed(const std::string& line) {
  const size_t begin = line.find_first_not_of(' ');
  return begin == std::string::npos ? "" : line.substr(begin);
}

/// The line of a site, behind the two lines before it.
std::string source_of(const vector_core::Site& site) {
  std::ifstream file(site.file);
  std::string line, source;
  for (int i = 1; i <= site.line && std::getline(file, line); ++i)
    if (i + 2 >= site.line) source += (source.empty() ? "" : " ") + trimmed(line);
  return source;
}

std::string name_of(const Mutation& mutation) {
  const auto& [kind, site, mode] = mutation;
  return std::string(kKindNames[static_cast<int>(kind)]) + " " + kModeNames[static_cast<int>(mode)] + " at " +
         site.file.substr(site.file.find_last_of('/') + 1) + ":" + std::to_string(site.line);
}

const Reason* reason_of(const Mutant& mutant) {
  const std::string source = source_of(mutant.mutation.site);
  for (const Reason& reason : kReasons)
    if (reason.kind == mutant.mutation.kind && reason.mode == mutant.mutation.mode &&
        mutant.mutation.site.file.ends_with(std::string("/") + reason.file) &&
        source.find(reason.snippet) != std::string::npos && (*reason.kernel == 0 || mutant.kernel == reason.kernel))
      return &reason;
  return nullptr;
}

void print_kinds(const std::vector<Mutant>& mutants) {
  std::map<std::pair<Kind, Mode>, std::map<std::string, int>> table;
  for (const Mutant& mutant : mutants) ++table[{mutant.mutation.kind, mutant.mutation.mode}][mutant.killed_by];
  for (const auto& [kind, checks] : table) {
    int all = 0, killed = 0;
    std::string by;
    for (const auto& [check, count] : checks) {
      all += count;
      if (check.empty()) continue;
      killed += count;
      by += (by.empty() ? "" : ", ") + check + " " + std::to_string(count);
    }
    std::printf("%-12s %-7s  killed %3d of %3d: %s\n", kKindNames[static_cast<int>(kind.first)],
                kModeNames[static_cast<int>(kind.second)], killed, all, by.c_str());
  }
}

/// Print the survivors; the number of those without a reason, and of reasons not for one site.
int print_survivors(const std::vector<Mutant>& mutants) {
  int unexplained = 0;
  std::map<const Reason*, std::set<int>> lines;
  std::map<std::string, std::string> kernels;  // by what survives
  for (const Mutant& mutant : mutants) {
    if (!mutant.killed_by.empty()) continue;
    const Reason* reason = reason_of(mutant);
    if (reason != nullptr) lines[reason].insert(mutant.mutation.site.line);
    unexplained += reason == nullptr;
    std::string& names = kernels[name_of(mutant.mutation) + ": " +
                                 (reason ? reason->reason : "UNEXPLAINED: " + source_of(mutant.mutation.site))];
    names += (names.empty() ? "" : ", ") + mutant.kernel;
  }
  for (const auto& [survivor, names] : kernels) std::printf("survived: %s (%s)\n", survivor.c_str(), names.c_str());
  for (const Reason& reason : kReasons)
    if (lines[&reason].size() != 1) {
      ++unexplained;
      std::printf("the reason for '%s' in %s speaks for %zu sites that survive, not for one\n", reason.snippet,
                  reason.file, lines[&reason].size());
    }
  return unexplained;
}

/// Print the guards in the kernels' sources that no job has met, and count them.
int print_unmet(const std::vector<Mutant>& mutants) {
  constexpr const char* kCalls[] = {"SetFlag<",     "WaitFlag<",    ".EnQue(",      "DeQue<",
                                    ".FreeTensor(", "PipeBarrier<", "BINMOE_BOUND("};
  std::set<std::pair<std::string, int>> met;
  for (const Mutant& mutant : mutants)
    met.insert({std::filesystem::path(mutant.mutation.site.file).filename(), mutant.mutation.site.line});
  int unmet = 0;
  const auto folder = std::filesystem::path(mutants.at(0).mutation.site.file).parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
      const std::string source = trimmed(line), name = entry.path().filename();
      if (source.starts_with("//") || source.starts_with("#") || met.count({name, number}) > 0) continue;
      for (const char* call : kCalls)
        if (source.find(call) != std::string::npos) {
          ++unmet;
          std::printf("no job meets %s:%d: %s\n", name.c_str(), number, source.c_str());
        }
    }
  }
  return unmet;
}

int report(bool is_verbose) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Job> jobs = all_jobs();
  std::vector<Baseline> baselines(jobs.size());
  in_parallel("jobs without a mutation", jobs.size(), [&](size_t i) {
    baselines[i] = {jobs[i], jobs[i].run(nullptr)};
  });
  std::vector<Mutant> mutants = mutants_of(baselines);
  in_parallel("mutants", mutants.size(), [&](size_t i) { run(mutants[i], baselines); });
  if (is_verbose)
    for (const Mutant& mutant : mutants)
      std::printf("%s: %s: %s (%s)\n", mutant.kernel.c_str(), name_of(mutant.mutation).c_str(),
                  mutant.killed_by.c_str(), mutant.message.c_str());
  print_kinds(mutants);
  const int failures = print_survivors(mutants) + print_unmet(mutants);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%zu mutants, %zu jobs, %.1f s: %s\n", mutants.size(), jobs.size(), seconds.count(),
              failures == 0 ? "passed" : "FAILED");
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace test

int main(int argc, char** argv) {
  try {
    return test::report(argc > 1 && std::string(argv[1]) == "--verbose");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ascend_mutants: %s\n", error.what());
    return 1;
  }
}
