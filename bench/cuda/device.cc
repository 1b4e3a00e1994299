#include "bench/cuda/device.h"

#include <algorithm>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>

namespace binmoe::bench {
namespace {

constexpr size_t kCopyBytes = size_t{4} << 30;
constexpr int kCopies = 11;

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

class Event {
 public:
  Event() { check_cuda(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Microseconds between the events around `work` on the stream. Waits.
template <class Work>
double stream_us(cudaStream_t stream, const Work& work) {
  const Event begin, end;
  check_cuda(cudaEventRecord(begin, stream));
  work();
  check_cuda(cudaEventRecord(end, stream));
  check_cuda(cudaEventSynchronize(end));
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, begin, end));
  return 1e3 * static_cast<double>(milliseconds);
}

/// The nodes that the next launch on a capturing stream would follow.
void add_frontier(cudaStream_t stream, std::set<cudaGraphNode_t>& nodes) {
  cudaStreamCaptureStatus status{};
  const cudaGraphNode_t* frontier = nullptr;
  const cudaGraphEdgeData* data = nullptr;
  size_t count = 0;
  check_cuda(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &frontier, &data, &count));
  nodes.insert(frontier, frontier + count);
}

/// Turn the programmatic edges that leave one of `nodes` into ordinary ones.
void make_full(cudaGraph_t graph, const std::set<cudaGraphNode_t>& nodes) {
  size_t count = 0;
  check_cuda(cudaGraphGetNodes(graph, nullptr, &count));  // of a chain: more than edges
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> data(count);
  check_cuda(cudaGraphGetEdges(graph, from.data(), to.data(), data.data(), &count));
  for (size_t i = 0; i < count; ++i) {
    if (data[i].type != cudaGraphDependencyTypeProgrammatic || !nodes.contains(from[i])) continue;
    check_cuda(cudaGraphRemoveDependencies(graph, &from[i], &to[i], &data[i], 1));
    const cudaGraphEdgeData ordinary{};
    check_cuda(cudaGraphAddDependencies(graph, &from[i], &to[i], &ordinary, 1));
  }
}

class CallGraph {
 public:
  CallGraph(cudaStream_t stream, const Steps& steps, int64_t sets, int64_t calls, Edges edges) : stream_(stream) {
    std::set<cudaGraphNode_t> ends;
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    try {
      for (int64_t i = 0; i < calls; ++i)
        for (const auto& step : steps) {
          step(i % sets);
          add_frontier(stream, ends);
        }
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      throw;
    }
    check_cuda(cudaStreamEndCapture(stream, &graph));
    if (edges == Edges::full) make_full(graph, ends);
    const cudaError_t result = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(result);
  }
  ~CallGraph() { cudaGraphExecDestroy(graph_); }
  CallGraph(const CallGraph&) = delete;
  CallGraph& operator=(const CallGraph&) = delete;

  double replay_us() const {
    return stream_us(stream_, [&] { check_cuda(cudaGraphLaunch(graph_, stream_)); });
  }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
};

int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

void check_cuda(cudaError_t result, const std::source_location& place) {
  if (result == cudaSuccess) return;
  throw std::runtime_error(std::string(place.file_name()) + ":" + std::to_string(place.line()) + ": " +
                           cudaGetErrorName(result) + ": " + cudaGetErrorString(result));
}

Block::Block(size_t bytes) : bytes_(bytes) {
  check_cuda(cudaMalloc(reinterpret_cast<void**>(&data_), bytes));
}

Block::~Block() {
  cudaFree(data_);
}

DeviceCopy::DeviceCopy(cudaStream_t stream) : stream_(stream), from_(kCopyBytes), to_(kCopyBytes) {
  check_cuda(cudaMemsetAsync(from_.data(), 0x5a, kCopyBytes, stream_));
  check_cuda(cudaMemsetAsync(to_.data(), 0xa5, kCopyBytes, stream_));
  bytes_per_us();  // warm-up
}

double DeviceCopy::bytes_per_us() const {
  std::vector<double> times;
  for (int i = 0; i < kCopies; ++i)
    times.push_back(stream_us(stream_, [&] {
      check_cuda(cudaMemcpyAsync(to_.data(), from_.data(), kCopyBytes, cudaMemcpyDeviceToDevice, stream_));
    }));
  return 2.0 * static_cast<double>(kCopyBytes) / quantile(times, 0.5);
}

Timing time_calls(cudaStream_t stream, const Steps& steps, int64_t sets, Edges edges) {
  constexpr int64_t kCalls = 24;
  constexpr double kReplayUs = 2000;  // so that the start of a replay, a few us, weighs nothing
  constexpr double kTotalUs = 200000;
  int64_t calls = rounded_up(kCalls, sets);
  auto graph = std::make_unique<CallGraph>(stream, steps, sets, calls, edges);
  graph->replay_us();
  double replay_us = graph->replay_us();
  if (replay_us < kReplayUs) {
    const double wanted = static_cast<double>(calls) * kReplayUs / std::max(replay_us, 1.0);
    calls = rounded_up(static_cast<int64_t>(wanted), sets);
    graph = std::make_unique<CallGraph>(stream, steps, sets, calls, edges);
    graph->replay_us();
    replay_us = graph->replay_us();
  }
  const int replays = std::clamp(static_cast<int>(kTotalUs / replay_us), 8, 30);
  std::vector<double> times;
  for (int i = 0; i < replays; ++i) times.push_back(graph->replay_us() / static_cast<double>(calls));
  return {quantile(times, 0.5), quantile(times, 0.25), quantile(times, 0.75)};
}

}  // namespace binmoe::bench
