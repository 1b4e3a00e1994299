#include "bench/cuda/problem.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "bench/cuda/previous_kernel.h"
#include "bench/routing.h"

namespace binmoe::bench {
namespace {

constexpr size_t kRingBytes = 3 * size_t{60'000'000};  // three L2 caches of an H200
constexpr int64_t kFewestSets = 6, kWarmSets = 16;
constexpr uint64_t kWeightStream = 3, kMaskStream = 4;

bool makes_plan(Call call) {
  return is_plan(call) || call == Call::plan_gather;
}

bool reads_tokens(Call call) {
  return !is_plan(call) && call != Call::scatter;
}

bool reads_expert_rows(Call call) {
  return call == Call::scatter || call == Call::wgrad || call == Call::scatter_backward;
}

bool writes_dw(Call call) {
  return call == Call::wgrad || call == Call::scatter_backward;
}

DropPolicy policy_of(Call call) {
  if (call == Call::plan_choice_order) return DropPolicy::choice_order;
  return call == Call::plan_by_weight ? DropPolicy::by_weight : DropPolicy::token_order;
}

size_t aligned(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

[[noreturn]] void differ(Call call, const char* what) {
  throw std::runtime_error(std::string("bench: ") + name_of(call) + " gives another " + what + " than the host");
}

/// Six arrays behind each other, as layout_of counts them.
PlanView plan_at(char* start, const Sizes& sizes) {
  const auto n = static_cast<size_t>(sizes.assignments()), e = static_cast<size_t>(sizes.num_experts);
  auto* array = reinterpret_cast<int32_t*>(start);
  return {sizes, array, array + n, array + 2 * n, array + 3 * n, array + 3 * n + e, array + 3 * n + 2 * e};
}

size_t plan_bytes(const Sizes& sizes) {
  return static_cast<size_t>(3 * (sizes.assignments() + sizes.num_experts)) * sizeof(int32_t);
}

/// The same as the device has them: behind each other.
std::vector<char> packed(const Plan& plan) {
  std::vector<char> out(plan_bytes(plan.sizes()));
  const ConstPlanView from = plan.view();
  const PlanView to = plan_at(out.data(), plan.sizes());
  const auto n = static_cast<size_t>(plan.sizes().assignments()), e = static_cast<size_t>(plan.sizes().num_experts);
  std::copy_n(from.indices, n, to.indices);
  std::copy_n(from.bin_ids, n, to.bin_ids);
  std::copy_n(from.row_of_assignment, n, to.row_of_assignment);
  std::copy_n(from.bins, e, to.bins);
  std::copy_n(from.tokens_per_expert, e, to.tokens_per_expert);
  std::copy_n(from.kept_per_expert, e, to.kept_per_expert);
  return out;
}

/// The f32 weights of a set.
std::vector<char> weight_values(int64_t count) {
  const std::vector<char> pattern = make_pattern(DType::f32, kWeightStream);
  std::vector<char> out(static_cast<size_t>(count) * 4);
  for (size_t i = 0; i < out.size(); ++i) out[i] = pattern[i % pattern.size()];
  return out;
}

std::vector<double> pattern_values(DType dtype, uint64_t stream) {
  const std::vector<char> pattern = make_pattern(dtype, stream);
  const auto size = static_cast<size_t>(size_of(dtype));
  std::vector<double> out(pattern.size() / size);
  for (size_t i = 0; i < out.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, pattern.data() + i * size, size);
    if (dtype == DType::bf16) bits <<= 16;
    if (dtype == DType::f16) bits = (bits << 13) + 0x38000000u;  // normal numbers only
    float value;
    std::memcpy(&value, &bits, sizeof value);
    out[i] = static_cast<double>(value);
  }
  return out;
}

/// Of `count` elements of two repeated patterns, from elements a_begin and b_begin on.
double dot(const std::vector<double>& a, int64_t a_begin, const std::vector<double>& b, int64_t b_begin, size_t count) {
  size_t i = static_cast<size_t>(a_begin) % a.size(), j = static_cast<size_t>(b_begin) % b.size();
  double sum = 0;
  for (size_t n = 0; n < count; ++n) {
    sum += a[i] * b[j];
    i = i + 1 == a.size() ? 0 : i + 1;
    j = j + 1 == b.size() ? 0 : j + 1;
  }
  return sum;
}

void copy_in(char* to, const void* from, size_t bytes, cudaStream_t stream) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
  check_cuda(cudaStreamSynchronize(stream));
}

}  // namespace

const char* name_of(Call call) {
  constexpr const char* kNames[] = {"plan token_order", "plan choice_order", "plan by_weight", "gather",
                                    "gather weighted",  "scatter",           "wgrad",          "scatter backward",
                                    "plan + gather"};
  return kNames[static_cast<int>(call)];
}

bool is_plan(Call call) {
  return call == Call::plan_token_order || call == Call::plan_choice_order || call == Call::plan_by_weight;
}

std::vector<int32_t> make_ids(const Case& of) {
  const Sizes& s = of.sizes;
  const int32_t experts = of.routing == "few-experts" ? std::min(s.top_k + 1, s.num_experts) : s.num_experts;
  const Routing routing = of.routing == "zipf" ? Routing::zipf : Routing::uniform;
  std::vector<int32_t> ids = make_routing(routing, s.tokens, s.top_k, experts);
  if (of.routing == "half-masked")
    for (size_t a = 0; a < ids.size(); ++a)
      if (noise(kMaskStream, a) < 0.5) ids[a] = -1;
  return ids;
}

DeviceProblem::DeviceProblem(const Case& of, Host& host, const Block& block, cudaStream_t stream)
    : of_(of),
      host_(host),
      block_(block),
      stream_(stream),
      ids_(make_ids(of)),
      problem_(ids_, of.sizes, of.hidden_size, of.dtype),
      plan_(make_plan({ids_.data(), of.sizes.assignments()}, of.sizes)) {}

int64_t DeviceProblem::minimum_bytes(Call call) {
  switch (call) {
    case Call::gather:
      return problem_.minimum_bytes(Op::gather);
    case Call::gather_weighted:
      return problem_.minimum_bytes(Op::gather) + 4 * kept();
    case Call::scatter:
      return problem_.minimum_bytes(Op::scatter);
    case Call::wgrad:
      return problem_.minimum_bytes(Op::wgrad);
    case Call::scatter_backward:
      return problem_.minimum_bytes(Op::scatter_backward);
    case Call::plan_gather:
      return problem_.minimum_bytes(Op::plan) + problem_.minimum_bytes(Op::gather);
    default:
      return problem_.minimum_bytes(Op::plan);
  }
}

int64_t DeviceProblem::rows_out() const {
  return call_ == Call::scatter ? of_.sizes.tokens : of_.sizes.expert_rows();
}

DeviceProblem::Layout DeviceProblem::layout_of(Call call) const {
  const size_t assignments = static_cast<size_t>(of_.sizes.assignments()) * 4;  // ids are int32, weights f32
  const auto offset = static_cast<size_t>(of_.offset);
  const auto row = static_cast<size_t>(of_.hidden_size * size_of(of_.dtype));
  const size_t tokens = static_cast<size_t>(of_.sizes.tokens) * row;
  const size_t expert_rows = static_cast<size_t>(of_.sizes.expert_rows()) * row;
  const bool writes_rows = !is_plan(call) && call != Call::wgrad;
  size_t end = 0;
  const auto part = [&](bool wanted, size_t bytes, size_t shift = 0) {
    const size_t begin = end + shift;
    if (wanted) end = aligned(begin + bytes);
    return begin;
  };
  Layout out{};
  out.ids = part(true, assignments);
  out.weights = part(true, assignments);
  out.copy = part(true, end);
  out.plan = part(true, plan_bytes(of_.sizes));
  out.tokens = part(reads_tokens(call), tokens, offset);
  out.expert_rows = part(reads_expert_rows(call), expert_rows, offset);
  out.rows_out = part(writes_rows, call == Call::scatter ? tokens : expert_rows, offset);
  out.dw = part(writes_dw(call), assignments);
  out.workspace = part(makes_plan(call), workspace_bytes_);
  out.total = end;
  return out;
}

int64_t DeviceProblem::prepare(Call call, bool warm) {
  call_ = call;
  Context where = context(0);
  where.workspace = nullptr;
  workspace_bytes_ = makes_plan(call) ? plan_workspace_bytes(of_.sizes, policy_of(call), DType::f32, where) : 0;
  layout_ = layout_of(call);
  const auto room = static_cast<int64_t>(block_.bytes() / layout_.total);
  const auto ring = static_cast<int64_t>(kRingBytes / layout_.total) + 1;
  const int64_t sets = std::min(room, warm ? kWarmSets : std::max(kFewestSets, ring));
  if (sets < 2) throw std::runtime_error("bench: two sets do not fit; one has " + std::to_string(layout_.total));
  fill_first_set();
  for (int64_t set = 1; set < sets; ++set)
    check_cuda(cudaMemcpyAsync(at(set, 0), at(0, 0), layout_.total, cudaMemcpyDeviceToDevice, stream_));
  check_cuda(cudaStreamSynchronize(stream_));
  return sets;
}

void DeviceProblem::fill_first_set() {
  const size_t bytes = static_cast<size_t>(of_.sizes.assignments()) * 4;
  check_cuda(cudaMemsetAsync(at(0, 0), 0xff, layout_.total, stream_));
  copy_in(at(0, layout_.ids), ids_.data(), bytes, stream_);
  fill_rows(layout_.weights, 0, kWeightStream);
  check_cuda(cudaMemcpyAsync(at(0, layout_.copy), at(0, 0), layout_.copy, cudaMemcpyDeviceToDevice, stream_));
  if (!makes_plan(call_)) {
    const std::vector<char> plan = packed(plan_);
    copy_in(at(0, layout_.plan), plan.data(), plan.size(), stream_);
  }
  if (reads_tokens(call_)) fill_rows(layout_.tokens, of_.sizes.tokens, 1);
  if (reads_expert_rows(call_)) fill_rows(layout_.expert_rows, of_.sizes.expert_rows(), 2);
}

/// Rows of the case's dtype, or the weights: one period from the host, doubled on the device.
void DeviceProblem::fill_rows(size_t offset, int64_t rows, uint64_t stream) {
  const bool weights = stream == kWeightStream;
  const DType dtype = weights ? DType::f32 : of_.dtype;
  const int64_t count = weights ? of_.sizes.assignments() : rows * of_.hidden_size;
  const size_t bytes = static_cast<size_t>(count * size_of(dtype));
  const std::vector<char> pattern = make_pattern(dtype, stream);
  copy_in(at(0, offset), pattern.data(), std::min(bytes, pattern.size()), stream_);
  for (size_t have = pattern.size(); have < bytes; have *= 2)
    check_cuda(cudaMemcpyAsync(at(0, offset) + have, at(0, offset), std::min(have, bytes - have),
                               cudaMemcpyDeviceToDevice, stream_));
}

void DeviceProblem::poison(int64_t set) {
  if (makes_plan(call_)) check_cuda(cudaMemsetAsync(at(set, layout_.plan), 0xff, plan_bytes(of_.sizes), stream_));
  if (is_plan(call_)) return;
  const size_t begin = call_ == Call::wgrad ? layout_.dw : layout_.rows_out;
  check_cuda(cudaMemsetAsync(at(set, begin), 0xff, layout_.total - begin, stream_));
}

PlanView DeviceProblem::plan_view(int64_t set) const {
  return plan_at(at(set, layout_.plan), of_.sizes);
}

Rows DeviceProblem::rows_view(int64_t set, size_t offset, int64_t rows) const {
  return {at(set, offset), rows, of_.hidden_size, of_.hidden_size, of_.dtype};
}

Context DeviceProblem::context(int64_t set) const {
  Context out;
  out.memory = Memory::cuda;
  out.backend = &find_backend("cuda");
  out.stream = stream_;
  out.workspace = at(set, layout_.workspace);
  out.workspace_bytes = workspace_bytes_;
  return out;
}

void DeviceProblem::run_previous(int64_t set) {
  launch_previous(at(set, 0), at(set, layout_.copy), layout_.copy, stream_);
}

void DeviceProblem::run_plan(int64_t set, DropPolicy policy) {
  const int64_t count = of_.sizes.assignments();
  const Weights weights = {at(set, layout_.weights), count, DType::f32};
  plan({at(set, layout_.ids), count}, policy, policy == DropPolicy::by_weight ? weights : Weights{}, plan_view(set),
       context(set));
}

void DeviceProblem::run(int64_t set) {
  const Sizes& s = of_.sizes;
  const Weights weights = {at(set, layout_.weights), s.assignments(), DType::f32};
  const WeightGradients dw = {at(set, layout_.dw), s.assignments(), DType::f32};
  const Rows tokens = rows_view(set, layout_.tokens, s.tokens);
  const Rows expert_rows = rows_view(set, layout_.expert_rows, s.expert_rows());
  const Rows out = rows_view(set, layout_.rows_out, rows_out());
  switch (call_) {
    case Call::gather:
      return gather(plan_view(set), tokens, {}, out, context(set));
    case Call::gather_weighted:
      return gather(plan_view(set), tokens, weights, out, context(set));
    case Call::scatter:
      return scatter(plan_view(set), expert_rows, weights, out, context(set));
    case Call::wgrad:
      return wgrad(plan_view(set), expert_rows, tokens, dw, context(set));
    case Call::scatter_backward:
      return scatter_backward(plan_view(set), expert_rows, tokens, weights, out, dw, context(set));
    case Call::plan_gather:
      run_plan(set, DropPolicy::token_order);
      return gather(plan_view(set), tokens, {}, out, context(set));
    default:
      return run_plan(set, policy_of(call_));
  }
}

void DeviceProblem::verify(int64_t set) {
  check_cuda(cudaStreamSynchronize(stream_));
  if (makes_plan(call_)) verify_plan(set);
  if (is_plan(call_)) return;
  if (call_ != Call::wgrad) verify_rows(set);
  if (writes_dw(call_)) verify_dw(set);
}

void DeviceProblem::verify_plan(int64_t set) {
  const int64_t count = of_.sizes.assignments();
  const std::vector<char> priority = weight_values(count);
  const DropPolicy policy = policy_of(call_);
  const Weights weights = {priority.data(), count, DType::f32};
  const Plan expected = make_plan({ids_.data(), count}, of_.sizes, policy,
                                  policy == DropPolicy::by_weight ? weights : Weights{}, host_.context());
  std::vector<char> actual(plan_bytes(of_.sizes));
  check_cuda(cudaMemcpy(actual.data(), at(set, layout_.plan), actual.size(), cudaMemcpyDeviceToHost));
  if (actual != packed(expected)) differ(call_, "plan");
}

void DeviceProblem::verify_rows(int64_t set) {
  const Sizes& s = of_.sizes;
  const int64_t count = s.assignments(), elements = rows_out() * of_.hidden_size;
  const size_t bytes = static_cast<size_t>(elements * size_of(of_.dtype));
  char* expected = host_.expected.at_least(bytes);
  const std::vector<char> values = weight_values(count);
  const Weights weights = {values.data(), count, DType::f32};
  const Rows out = {expected, rows_out(), of_.hidden_size, of_.hidden_size, of_.dtype};
  if (call_ == Call::scatter) {
    const char* rows = host_.rows(2, s.expert_rows() * of_.hidden_size, of_.dtype);
    scatter(plan_, {rows, s.expert_rows(), of_.hidden_size, of_.hidden_size, of_.dtype}, weights, out, host_.context());
  } else {
    const char* rows = host_.rows(1, s.tokens * of_.hidden_size, of_.dtype);
    const bool plain = call_ == Call::gather || call_ == Call::plan_gather;
    gather(plan_, {rows, s.tokens, of_.hidden_size, of_.hidden_size, of_.dtype}, plain ? Weights{} : weights, out,
           host_.context());
  }
  char* actual = host_.actual.at_least(bytes);
  check_cuda(cudaMemcpy(actual, at(set, layout_.rows_out), bytes, cudaMemcpyDeviceToHost));
  if (!host_.same(expected, actual, bytes)) differ(call_, "row");
}

void DeviceProblem::verify_dw(int64_t set) {
  const int64_t count = of_.sizes.assignments(), hidden = of_.hidden_size;
  std::vector<float> actual(static_cast<size_t>(count));
  check_cuda(cudaMemcpy(actual.data(), at(set, layout_.dw), actual.size() * 4, cudaMemcpyDeviceToHost));
  const std::vector<double> tokens = pattern_values(of_.dtype, 1), rows = pattern_values(of_.dtype, 2);
  const double bound = static_cast<double>(hidden) * 0x1p-24;  // of the sum: all terms are positive
  std::atomic<bool> good = true;
  host_.in_parts(count, 256, [&](int64_t begin, int64_t end) {
    for (int64_t a = begin; a < end; ++a) {
      const int64_t row = plan_.row_of_assignment()[static_cast<size_t>(a)];
      const auto got = static_cast<double>(actual[static_cast<size_t>(a)]);
      const double want =
          row < 0 ? 0.0 : dot(tokens, a / of_.sizes.top_k * hidden, rows, row * hidden, static_cast<size_t>(hidden));
      if (!(std::abs(want - got) <= bound * want) || std::signbit(got)) good = false;
    }
  });
  if (!good) differ(call_, "weight gradient");
}

}  // namespace binmoe::bench
