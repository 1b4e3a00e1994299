#include "estimate.h"

#include <algorithm>

namespace binmoe::vector_core {

namespace {

constexpr double kUnknown = -1;

/// A program's trace on the four pipes, in order of time.
class Replay {
 public:
  Replay(const Profile& profile, const std::vector<Step>& trace, const ReplayOptions& options)
      : profile_(profile), trace_(trace), options_(options) {
    uint32_t flags = 0;
    for (const Step& step : trace)
      if (step.kind == StepKind::set_flag) flags = std::max(flags, step.flag + 1);
    fired_.assign(flags, kUnknown);
  }

  double run(const std::function<void(const Interval&)>& visit) {
    for (;;) {
      size_t best = kPipes;
      double earliest = 0;
      for (size_t p = 0; p < kPipes; ++p) {
        const double start = p == kScalar ? scalar_start() : pipe_start(p);
        if (start == kUnknown || (best != kPipes && start >= earliest)) continue;
        best = p;
        earliest = start;
      }
      if (best == kPipes) break;
      const Step& step = best == kScalar ? trace_[next_] : *heads_[best].step;
      const double end = best == kScalar ? run_scalar(earliest) : run_pipe(best, earliest);
      if (visit && end > earliest) visit({static_cast<Pipe>(best), step, earliest, end});
    }
    return *std::max_element(done_.begin(), done_.end());
  }

  const std::array<double, kPipes>& busy() const { return busy_; }

 private:
  static constexpr size_t kScalar = index_of(Pipe::scalar);

  struct Issued {
    const Step* step;
    double time;
  };

  /// Fetch the pipe's oldest step into heads_; false if the scalar unit has issued none.
  bool fetch(size_t p) {
    if (heads_[p].step) return true;
    if (taken_[p] == issued_[p].size()) return false;
    heads_[p] = issued_[p][taken_[p]++];
    return true;
  }

  double pipe_start(size_t p) {
    if (!fetch(p)) return kUnknown;
    const Step& step = *heads_[p].step;
    double start = std::max(free_[p], heads_[p].time);
    switch (step.kind) {
      case StepKind::copy:
        return std::max(start, port_free_);
      case StepKind::wait_flag:
        return fired_[step.flag] == kUnknown ? kUnknown : std::max(start, fired_[step.flag]);
      case StepKind::barrier:
        return std::max(start, done_[p]);
      default:
        return start;
    }
  }

  double run_pipe(size_t p, double start) {
    const Step& step = *heads_[p].step;
    heads_[p].step = nullptr;
    started_[p].push_back(start);
    double end = start;
    if (step.kind == StepKind::copy) {
      end += std::max(step.amount * profile_.copy_issue_ns, step.extent / profile_.core_bytes_per_s * 1e9);
      port_free_ = end;
      done_[p] = end + profile_.latency_ns;
    } else if (step.kind == StepKind::vector) {
      end += (step.amount + step.extent * profile_.vector_fill_cycles) / profile_.vector_cycles_per_ns;
      done_[p] = end;
    } else if (step.kind == StepKind::set_flag) {
      fired_[step.flag] = std::max(start, done_[p]);
    }
    busy_[p] += end - start;
    free_[p] = end;
    return end;
  }

  /// When the scalar unit can take its next step; steps of other pipes it only issues.
  double scalar_start() const {
    if (next_ == trace_.size()) return kUnknown;
    const Step& step = trace_[next_];
    const size_t p = index_of(step.pipe);
    const double start = free_[kScalar];
    if (step.kind == StepKind::barrier_all) {
      for (size_t q = 1; q < kPipes; ++q)
        if (started_[q].size() < issued_[q].size()) return kUnknown;
      return std::max(start, *std::max_element(done_.begin(), done_.end()));
    }
    if (p == kScalar) {
      if (step.kind != StepKind::wait_flag) return start;
      return fired_[step.flag] == kUnknown ? kUnknown : std::max(start, fired_[step.flag]);
    }
    const size_t queue = static_cast<size_t>(options_.issue_queue);
    if (queue == 0 || issued_[p].size() < queue) return start;
    const size_t before = issued_[p].size() - queue;  // must have left the queue
    return before < started_[p].size() ? std::max(start, started_[p][before]) : kUnknown;
  }

  double run_scalar(double start) {
    const Step& step = trace_[next_++];
    double cost = profile_.scalar_call_ns;
    if (step.kind == StepKind::scalar)
      cost = step.amount * profile_.scalar_read_ns + step.extent * profile_.scalar_operation_ns;
    cost *= options_.scalar_factor;
    const double end = start + cost;
    busy_[kScalar] += cost;
    free_[kScalar] = done_[kScalar] = end;
    if (step.pipe != Pipe::scalar)
      issued_[index_of(step.pipe)].push_back({&step, end});
    else if (step.kind == StepKind::set_flag)
      fired_[step.flag] = end;
    return end;
  }

  const Profile& profile_;
  const std::vector<Step>& trace_;
  const ReplayOptions& options_;
  size_t next_ = 0;
  std::vector<double> fired_;
  std::array<std::vector<Issued>, kPipes> issued_;
  std::array<size_t, kPipes> taken_ = {};
  std::array<Issued, kPipes> heads_ = {};
  std::array<std::vector<double>, kPipes> started_;
  std::array<double, kPipes> free_ = {};
  std::array<double, kPipes> done_ = {};  // latency included
  std::array<double, kPipes> busy_ = {};
  double port_free_ = 0;
};

}  // namespace

double replay(const Profile& profile, const std::vector<Step>& trace, const ReplayOptions& options,
              std::array<double, kPipes>* busy_ns, const std::function<void(const Interval&)>& visit) {
  Replay replayed(profile, trace, options);
  const double end = replayed.run(visit);
  if (busy_ns) *busy_ns = replayed.busy();
  return end;
}

Estimate& Estimate::operator+=(const Estimate& other) {
  if (other.core_seconds > core_seconds) slowest_core = other.slowest_core;
  seconds += other.seconds;
  core_seconds += other.core_seconds;
  memory_seconds += other.memory_seconds;
  for (size_t p = 0; p < kPipes; ++p) busy_seconds[p] += other.busy_seconds[p];
  return *this;
}

Estimate estimate(const Profile& profile, const Launch& launch, const ReplayOptions& options) {
  std::vector<double> ends(static_cast<size_t>(profile.vector_cores), 0.0);
  std::vector<std::array<double, kPipes>> busy(ends.size(), std::array<double, kPipes>{});
  for (size_t program = 0; program < launch.traces.size(); ++program) {
    const size_t core = program % ends.size();
    std::array<double, kPipes> busy_ns;
    ends[core] += replay(profile, launch.traces[program], options, &busy_ns, {});
    for (size_t p = 0; p < kPipes; ++p) busy[core][p] += busy_ns[p];
  }
  Estimate out;
  const auto last = static_cast<size_t>(std::max_element(ends.begin(), ends.end()) - ends.begin());
  out.slowest_core = static_cast<int32_t>(last);
  out.core_seconds = ends[last] * 1e-9;
  for (size_t p = 0; p < kPipes; ++p) out.busy_seconds[p] = busy[last][p] * 1e-9;
  out.memory_seconds = static_cast<double>(launch.gm_read_bytes + launch.gm_written_bytes) / profile.gm_bytes_per_s;
  out.seconds = std::max(out.core_seconds, out.memory_seconds);
  return out;
}

}  // namespace binmoe::vector_core
