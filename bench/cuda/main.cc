// bench_cuda: every operation of the cuda backend, checked, then timed by CUDA graphs over rotating buffer sets.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <regex>
#include <stdexcept>

#include "bench/cuda/cases.h"
#include "bench/cuda/report.h"

namespace binmoe::bench {
namespace {

constexpr const char* kUsage = R"(bench_cuda [--filter REGEX] [--quick] [--list] [--json FILE]

Times the cuda backend on the current device (CUDA_VISIBLE_DEVICES chooses). A row: its result checked in full against a
host backend, outputs poisoned before; then calls over buffer sets that are together larger than the L2 cache three
times, in a CUDA graph; the median of its replays. share = minimum bytes (docs/design.md, section 6) / us / a copy of
4 GiB measured before and after. us: a call begins when the one before has ended; dependent: as launched, kernels begin
while the one before ends; behind: what a call adds to a small kernel before it. Warm plans: 16 sets, in the L2 cache.

  --filter REGEX  rows whose name (--list) has a match
  --quick         bf16, uniform, the operations that have targets
  --list          print the rows' names only
  --json FILE     also write the figures; after each group, so that a run cut short leaves what it has

Exit: 0; 1 when a result was wrong or a call failed; 2 for a wrong option. Missed targets do not count.
)";

struct Options {
  std::string filter, json, command;
  bool quick = false, list = false;
};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), block_(room()), copy_(nullptr) {
    cudaDeviceProp device{};
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    check_cuda(cudaGetDeviceProperties(&device, 0));
    machine_.device = device.name;
    machine_.command = options.command;
    machine_.host_backend = host_.backend_name();
    check_cuda(cudaDriverGetVersion(&machine_.driver));
    check_cuda(cudaRuntimeGetVersion(&machine_.runtime));
  }
  ~Bench() { cudaStreamDestroy(stream_); }

  int run(const std::vector<Group>& groups) {
    std::fputs(table_head().c_str(), stdout);
    double before = measure_copy();
    for (const Group& group : groups) {
      const size_t first = results_.size();
      run_group(group);
      const double after = measure_copy();
      for (size_t i = first; i < results_.size(); ++i) report(i, (before + after) / 2);
      before = after;
      std::fflush(stdout);
      if (!options_.json.empty()) std::ofstream(options_.json) << json_of(machine_, results_, targets_);
    }
    std::fputs(("\n" + summary(tally_, machine_)).c_str(), stdout);
    return tally_.wrong > 0 ? 1 : 0;
  }

 private:
  /// 40 GiB hold six sets of the largest case; a smaller device gives 6/10 of what is free (the copy takes 8 GiB).
  static size_t room() {
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total));
    return std::min(size_t{40} << 30, free / 10 * 6);
  }

  double measure_copy() {
    machine_.copies.push_back(copy_.bytes_per_us());
    return machine_.copies.back();
  }

  void run_group(const Group& group) {
    std::fprintf(stderr, "%s, %s, %s %s\n", group.of.model.c_str(), group.of.routing.c_str(),
                 binmoe::name_of(group.of.dtype), group.of.variant.c_str());
    DeviceProblem problem(group.of, host_, block_, stream_);
    for (const Row& row : group.rows) {
      Result result{group.of, row.call, row.warm, "", {}, {}, {}, {}, problem.minimum_bytes(row.call)};
      try {
        measure(problem, result);
      } catch (const std::exception& error) {
        result.wrong = error.what();
        check_cuda(cudaStreamSynchronize(stream_));  // an error that stays ends the run
      }
      results_.push_back(result);
    }
  }

  void measure(DeviceProblem& problem, Result& result) {
    const int64_t sets = problem.prepare(result.call, result.warm);
    problem.run(0);
    problem.verify(0);
    problem.poison(sets - 1);
    const auto call = [&](int64_t set) { problem.run(set); };
    const auto previous = [&](int64_t set) { problem.run_previous(set); };
    result.full = time_calls(stream_, {call}, sets, Edges::full);
    result.captured = time_calls(stream_, {call}, sets, Edges::captured);
    if (result.of.model == kDecode || is_plan(result.call)) {
      const double alone = time_calls(stream_, {previous}, sets, Edges::full).us;
      result.behind_full = time_calls(stream_, {previous, call}, sets, Edges::full).us - alone;
      result.behind_captured = time_calls(stream_, {previous, call}, sets, Edges::captured).us - alone;
    }
    problem.verify(sets - 1);
  }

  void report(size_t index, double copy) {
    Result& result = results_[index];
    result.copy = copy;
    targets_.push_back(result.wrong.empty() ? targets_of(result, results_) : std::vector<Target>{});
    std::fputs(table_row(result, targets_.back()).c_str(), stdout);
    if (!result.wrong.empty()) return void(++tally_.wrong);
    for (const Target& target : targets_.back()) ++(target.met(result) ? tally_.met : tally_.missed);
    if (const auto best = public_us(result.of, result.call))
      ++(result.full.us <= *best * kPublicSpread ? tally_.faster : tally_.slower);
  }

  const Options& options_;
  cudaStream_t stream_ = nullptr;
  Block block_;
  DeviceCopy copy_;
  Host host_;
  Machine machine_;
  Tally tally_;
  std::vector<Result> results_;
  std::vector<std::vector<Target>> targets_;
};

/// The groups with the rows that the filter leaves.
std::vector<Group> chosen_groups(const Options& options) {
  const std::regex filter(options.filter);
  std::vector<Group> out;
  for (Group group : all_groups(options.quick)) {
    std::erase_if(group.rows, [&](const Row& row) { return !std::regex_search(name_of(group.of, row), filter); });
    if (!group.rows.empty()) out.push_back(group);
  }
  return out;
}

int run(int count, char** arguments) {
  Options options;
  for (int i = 0; i < count; ++i) {
    const std::string argument = arguments[i];
    options.command += (i == 0 ? "" : " ") + argument;
    if (i == 0) continue;
    if (argument == "--help") return std::fputs(kUsage, stdout) < 0;
    if (argument == "--quick" || argument == "--list") {
      (argument == "--quick" ? options.quick : options.list) = true;
    } else if ((argument == "--filter" || argument == "--json") && i + 1 < count) {
      options.command += std::string(" ") + arguments[i + 1];
      (argument == "--filter" ? options.filter : options.json) = arguments[i + 1];
      ++i;
    } else {
      std::fputs(kUsage, stderr);
      return 2;
    }
  }
  const std::vector<Group> groups = chosen_groups(options);
  if (options.list) {
    for (const Group& group : groups)
      for (const Row& row : group.rows) std::puts(name_of(group.of, row).c_str());
    return 0;
  }
  find_backend("cuda");  // says why it cannot run here
  return Bench(options).run(groups);
}

}  // namespace
}  // namespace binmoe::bench

int main(int count, char** arguments) {
  try {
    return binmoe::bench::run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_cuda: %s\n", error.what());
    return 1;
  }
}
