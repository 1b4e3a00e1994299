// How long a launch might take: its trace replayed with the profile's constants. An estimate, nothing measured.
#pragma once

#include <functional>
#include <string>

#include "profile.h"
#include "trace.h"

namespace binmoe::vector_core {

struct ReplayOptions {
  double scalar_factor = 1;  // times the costs of the scalar unit
  int32_t issue_queue = 0;   // instructions that may wait in one pipe's queue; 0: any number
};

struct Estimate {
  double seconds = 0;                            // the larger of the two below
  double core_seconds = 0;                       // the last core's end; a core runs its programs one after the other
  double memory_seconds = 0;                     // all bytes at the chip's bandwidth
  std::array<double, kPipes> busy_seconds = {};  // of the core that ends last
  int32_t slowest_core = 0;

  Estimate& operator+=(const Estimate& other);  // launches one after the other
};

/// One step of a pipe, in nanoseconds from the program's start.
struct Interval {
  Pipe pipe;
  Step step;
  double begin_ns;
  double end_ns;
};

/// Replay one program; its end in nanoseconds. `visit` may be empty.
///   Each pipe is an in-order queue. A step begins when its pipe is free, the scalar unit has issued it and the flag it
///   waits for has fired. A copy holds its pipe, and the port that MTE2 and MTE3 share, for its blocks' issue or its
///   bytes, whichever is longer; its flag fires one latency after that. The step that is ready first goes first.
double replay(const Profile& profile, const std::vector<Step>& trace, const ReplayOptions& options,
              std::array<double, kPipes>* busy_ns, const std::function<void(const Interval&)>& visit);

Estimate estimate(const Profile& profile, const Launch& launch, const ReplayOptions& options = {});

}  // namespace binmoe::vector_core
