#include "cuda/device.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace test {
namespace {

unsigned char pattern(int64_t position) {
  return static_cast<unsigned char>(0x5a ^ (position * 29));
}

std::vector<unsigned char> pattern_of(int64_t begin, int64_t end) {
  std::vector<unsigned char> out;
  for (int64_t i = begin; i < end; ++i) out.push_back(pattern(i));
  return out;
}

/// Why the backend cannot run here; empty when it can.
std::string reason_against_cuda() {
  for (const Backend& backend : backends())
    if (std::string(backend.name) == "cuda") return backend.unsupported == nullptr ? "" : backend.unsupported;
  return "the table has no backend cuda";
}

}  // namespace

void must(cudaError_t result, const std::source_location& place) {
  if (result == cudaSuccess) return;
  throw std::runtime_error(std::string(place.file_name()) + ":" + std::to_string(place.line()) + ": " +
                           cudaGetErrorName(result) + ": " + cudaGetErrorString(result));
}

void Cuda::SetUp() {
  const std::string reason = reason_against_cuda();
  if (reason.empty()) return;
  if (std::getenv("BINMOE_REQUIRE_CUDA") != nullptr) FAIL() << "BINMOE_REQUIRE_CUDA is set, but: " << reason;
  GTEST_SKIP() << "needs a GPU: " << reason;
}

Stream::Stream() {
  must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

Stream::~Stream() {
  cudaStreamDestroy(stream_);
}

Context device_context(cudaStream_t stream) {
  Context out;
  out.backend = &find_backend("cuda");
  out.memory = binmoe::Memory::cuda;
  out.stream = stream;
  return out;
}

DeviceBytes::DeviceBytes(int64_t bytes, int64_t offset, Use use)
    : bytes_(bytes), offset_(offset), total_(kGuard + offset + bytes + (use == Use::output ? kGuard : 0)) {
  void* start = nullptr;
  must(cudaMalloc(&start, static_cast<size_t>(total_)));
  start_.reset(static_cast<unsigned char*>(start));
  const int64_t begin = kGuard + offset_, end = begin + bytes_;
  const auto before = pattern_of(0, begin), behind = pattern_of(end, total_);
  must(cudaMemcpy(start, before.data(), before.size(), cudaMemcpyHostToDevice));
  if (!behind.empty()) must(cudaMemcpy(start_.get() + end, behind.data(), behind.size(), cudaMemcpyHostToDevice));
}

void DeviceBytes::put(const void* host, int64_t begin, int64_t count) const {
  if (count == 0) return;
  auto* to = static_cast<unsigned char*>(data()) + begin;
  must(cudaMemcpy(to, static_cast<const unsigned char*>(host) + begin, static_cast<size_t>(count),
                  cudaMemcpyHostToDevice));
  must(cudaDeviceSynchronize());  // a copy from pageable memory may return before it has arrived
}

void DeviceBytes::fetch(void* host) const {
  must(cudaDeviceSynchronize());  // cudaMemcpy does not wait for a Stream
  if (bytes_ > 0) must(cudaMemcpy(host, data(), static_cast<size_t>(bytes_), cudaMemcpyDeviceToHost));
}

std::vector<unsigned char> DeviceBytes::fetched() const {
  std::vector<unsigned char> out(static_cast<size_t>(bytes_));
  fetch(out.data());
  return out;
}

bool DeviceBytes::guards_intact() const {
  const int64_t begin = kGuard + offset_, end = begin + bytes_;
  std::vector<unsigned char> before(static_cast<size_t>(begin)), behind(static_cast<size_t>(total_ - end));
  must(cudaDeviceSynchronize());
  must(cudaMemcpy(before.data(), start_.get(), before.size(), cudaMemcpyDeviceToHost));
  if (!behind.empty()) must(cudaMemcpy(behind.data(), start_.get() + end, behind.size(), cudaMemcpyDeviceToHost));
  return before == pattern_of(0, begin) && behind == pattern_of(end, total_);
}

DeviceTensor::DeviceTensor(const Tensor& host, DeviceBytes::Use use)
    : shape_(host.shape()), bytes_(static_cast<int64_t>(host.all_bytes().size()), host.shape().offset, use) {
  put(host);
}

DeviceTensor::DeviceTensor(const Tensor& host, const std::vector<int64_t>& rows)
    : shape_(host.shape()),
      bytes_(static_cast<int64_t>(host.all_bytes().size()), host.shape().offset, DeviceBytes::Use::input) {
  const std::vector<unsigned char> all = host.all_bytes();
  const int64_t size = host.element_size();
  for (const int64_t r : rows) bytes_.put(all.data(), r * (shape_.cols + shape_.gap) * size, shape_.cols * size);
}

Rows DeviceTensor::view() const {
  return {bytes_.data(), shape_.rows, shape_.cols, shape_.cols + shape_.gap, shape_.type, shape_.element_bytes};
}

void DeviceTensor::put(const Tensor& host) const {
  const std::vector<unsigned char> all = host.all_bytes();
  bytes_.put(all.data());
}

Tensor DeviceTensor::fetched() const {
  Tensor out(shape_, Memory::Use::output);
  bytes_.fetch(out.row(0));
  return out;
}

testing::AssertionResult same_device_rows(const DeviceTensor& actual, const std::vector<unsigned char>& expected) {
  if (auto result = same_rows(actual.fetched(), expected); !result) return result;
  if (!actual.guards_intact()) return testing::AssertionFailure() << "bytes around the rows were written";
  return testing::AssertionSuccess();
}

DevicePlan::DevicePlan(const Sizes& sizes) : sizes_(sizes), status_(3 * 8, 0, DeviceBytes::Use::output) {
  for (int i = 0; i < 6; ++i) {
    const int64_t count = i < 3 ? sizes.assignments() : sizes.num_experts;
    const std::vector<unsigned char> poison(static_cast<size_t>(count) * 4, 0xc3);
    arrays_.emplace_back(count * 4, 0, DeviceBytes::Use::output);
    arrays_.back().put(poison.data());
  }
  const std::vector<unsigned char> poison(3 * 8, 0xc3);
  status_.put(poison.data());
}

DevicePlan::DevicePlan(const oracle::Plan& plan) : DevicePlan(plan.sizes) {
  put(plan);
}

PlanView DevicePlan::view() const {
  const auto array = [&](size_t i) { return static_cast<int32_t*>(arrays_[i].data()); };
  return {sizes_, array(0), array(1), array(2), array(3), array(4), array(5), static_cast<int64_t*>(status_.data())};
}

void DevicePlan::put(const oracle::Plan& plan) const {
  const std::vector<int32_t>* arrays[] = {&plan.indices, &plan.bin_ids,           &plan.row_of_assignment,
                                          &plan.bins,    &plan.tokens_per_expert, &plan.kept_per_expert};
  for (size_t i = 0; i < 6; ++i) arrays_[i].put(arrays[i]->data());
  const int64_t clean[] = {0, -1, 0};
  status_.put(clean);
}

oracle::Plan DevicePlan::fetched() const {
  oracle::Plan out;
  out.sizes = sizes_;
  std::vector<int32_t>* arrays[] = {&out.indices, &out.bin_ids,           &out.row_of_assignment,
                                    &out.bins,    &out.tokens_per_expert, &out.kept_per_expert};
  for (size_t i = 0; i < 6; ++i) {
    arrays[i]->resize(static_cast<size_t>(arrays_[i].bytes() / 4));
    arrays_[i].fetch(arrays[i]->data());
  }
  return out;
}

testing::AssertionResult DevicePlan::same(const oracle::Plan& expected) const {
  const oracle::Plan actual = fetched();
  if (auto result = same_plan(view_of(actual), expected); !result) return result;
  if (!guards_intact()) return testing::AssertionFailure() << "bytes around the plan's arrays were written";
  return testing::AssertionSuccess();
}

bool DevicePlan::guards_intact() const {
  bool intact = status_.guards_intact();
  for (const DeviceBytes& array : arrays_) intact = intact && array.guards_intact();
  return intact;
}

std::array<int64_t, 3> DevicePlan::status() const {
  std::array<int64_t, 3> out{};
  status_.fetch(out.data());
  return out;
}

std::vector<unsigned char> DevicePlan::all_bytes() const {
  std::vector<unsigned char> out = status_.fetched();
  for (const DeviceBytes& array : arrays_) {
    const auto bytes = array.fetched();
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

Workspace::Workspace(const Sizes& sizes, DropPolicy policy, DType priority_type, const Context& context, bool filled) {
  const auto bytes = static_cast<int64_t>(plan_workspace_bytes(sizes, policy, priority_type, context));
  if (bytes == 0) return;
  bytes_ = std::make_unique<DeviceBytes>(bytes, 0, DeviceBytes::Use::output);
  if (!filled) return;
  must(cudaMemset(bytes_->data(), 0xb7, static_cast<size_t>(bytes)));
  must(cudaDeviceSynchronize());
}

Context Workspace::with(const Context& context) const {
  Context out = context;
  if (bytes_ == nullptr) return out;
  out.workspace = bytes_->data();
  out.workspace_bytes = static_cast<size_t>(bytes_->bytes());
  return out;
}

CapturedGraph::CapturedGraph(cudaStream_t stream, const std::function<void()>& work) {
  cudaGraph_t graph = nullptr;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    throw;
  }
  must(cudaStreamEndCapture(stream, &graph));
  size_t count = 0;
  must(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  must(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    must(cudaGraphNodeGetType(node, &type));
    ++(type == cudaGraphNodeTypeKernel ? kernel_nodes_ : other_nodes_);
  }
  must(cudaGraphInstantiate(&executable_, graph, 0));
  must(cudaGraphDestroy(graph));
}

CapturedGraph::~CapturedGraph() {
  cudaGraphExecDestroy(executable_);
}

}  // namespace test
