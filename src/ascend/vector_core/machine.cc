#include "machine.h"

#include <algorithm>
#include <stdexcept>

namespace binmoe::vector_core {

Machine::Machine(const Profile& profile)
    : profile_(profile), memory_(std::make_unique<GlobalMemory>()), core_(std::make_unique<Core>(profile, *memory_)) {}

Machine::~Machine() = default;

GM_ADDR Machine::bind(const char* name, const void* data, int64_t bytes, Role role, bool defined) {
  Tensor tensor;
  tensor.name = name;
  tensor.bytes = bytes;
  tensor.role = role;
  tensor.all_defined = defined || role == Role::input;
  tensor.host = static_cast<uint8_t*>(const_cast<void*>(data));  // an input is never written: see tensor_of
  if (!data && bytes > 0) {
    if (role == Role::input) throw std::invalid_argument("input " + tensor.name + " has no data");
    tensor.owned.reset(new uint8_t[static_cast<size_t>(bytes)]);
    tensor.host = tensor.owned.get();
  }
  return bind_tensor(std::move(tensor));
}

GM_ADDR Machine::bind_without_memory(const char* name, int64_t bytes, Role role, bool defined) {
  Tensor tensor;
  tensor.name = name;
  tensor.bytes = bytes;
  tensor.role = role;
  tensor.all_defined = defined || role == Role::input;
  return bind_tensor(std::move(tensor));
}

GM_ADDR Machine::bind_tensor(Tensor tensor) {
  if (tensor.bytes < 0) throw std::invalid_argument("tensor " + tensor.name + " has a negative size");
  if (memory_->find(tensor.name)) throw std::invalid_argument("tensor " + tensor.name + " is bound already");
  return reinterpret_cast<GM_ADDR>(memory_->bind(std::move(tensor)));
}

const Tensor& Machine::tensor(const std::string& name) const {
  const Tensor* found = memory_->find(name);
  if (!found) throw std::invalid_argument("no tensor " + name + " is bound");
  return *found;
}

uint8_t* Machine::host(const std::string& name) const {
  return tensor(name).host;
}

void Machine::begin_launch(const char* kernel, int32_t num_programs) {
  Launch launch;
  launch.kernel = kernel;
  launch.num_programs = num_programs;
  launches_.push_back(std::move(launch));
  memory_->begin_launch();
  core_->begin(launches_.back().kernel.c_str(), -1, num_programs);
  if (num_programs < 1 || num_programs > 65535)
    core_->fault(rule::kLaunch, 0, std::to_string(num_programs) + " programs; a launch has 1 to 65535");
}

void Machine::end_program() {
  core_->end();
  Launch& launch = launches_.back();
  launch.ub_high_water = std::max(launch.ub_high_water, core_->used_bytes());
  launch.gm_read_bytes += core_->stats().of(Pipe::mte2).bytes;
  launch.gm_written_bytes += core_->stats().of(Pipe::mte3).bytes;
  launch.cores.push_back(core_->stats());
  launch.traces.push_back(core_->trace());
}

void Machine::end_launch() {
  if (const auto clash = memory_->end_launch()) core_->fault_of(*clash);
  launches_.back().shared_lines = memory_->shared_lines();
}

Estimate Machine::estimate(const ReplayOptions& options) const {
  Estimate sum;
  for (const Launch& launch : launches_) sum += vector_core::estimate(profile_, launch, options);
  return sum;
}

std::vector<ByteRange> Machine::written(const std::string& name) const {
  return merged(tensor(name).written);
}

void Machine::expect_written_once(const std::string& name) const {
  expect_written_once(name, {{0, tensor(name).bytes}});
}

void Machine::expect_written_once(const std::string& name, const std::vector<ByteRange>& ranges) const {
  const Tensor& of = tensor(name);
  const auto fault = [&](int64_t begin, int64_t end, const char* how) {
    ModelFault thrown(std::string("[") + rule::kNotWritten + "] bytes [" + std::to_string(begin) + ", " +
                      std::to_string(end) + ") of " + name + " were written " + how);
    thrown.rule = rule::kNotWritten;
    thrown.buffer = name;
    thrown.begin = begin;
    thrown.end = end;
    throw thrown;
  };
  std::vector<ByteRange> writes = of.written;
  std::sort(writes.begin(), writes.end(), [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  const std::vector<ByteRange> once = merged(writes);
  for (const ByteRange& range : merged(ranges)) {
    int64_t reached = range.begin;
    for (const ByteRange& write : once) {
      if (write.end <= reached) continue;
      if (write.begin > reached) break;
      reached = write.end;
    }
    if (reached < range.end) {
      int64_t next = range.end;
      for (const ByteRange& write : once)
        if (write.begin > reached) next = std::min(next, write.begin);
      fault(reached, next, "never");
    }
    int64_t end = INT64_MIN;
    for (const ByteRange& write : writes) {
      const int64_t begin = std::max(write.begin, range.begin), stop = std::min({write.end, end, range.end});
      if (begin < stop) fault(begin, stop, "more than once");
      end = std::max(end, write.end);
    }
  }
}

}  // namespace binmoe::vector_core
