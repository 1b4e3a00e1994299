// binmoe_c.h over the C++ interface: views translated, exceptions turned into codes.
#include <cstdio>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>

#include "binmoe/ascend.h"
#include "binmoe/binmoe.h"
#include "binmoe/binmoe_c.h"

namespace {

using namespace binmoe;

thread_local std::string last_error;
thread_local Fault last_fault;

int32_t fail(int32_t code, const std::string& message, const Fault& fault = {}) {
  try {
    last_error = message;
  } catch (const std::bad_alloc&) {
    last_error.clear();
  }
  last_fault = fault;
  return code;
}

int32_t code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument:
      return BINMOE_INVALID_ARGUMENT;
    case ErrorKind::invalid_data:
      return BINMOE_INVALID_DATA;
    case ErrorKind::unsupported:
      return BINMOE_UNSUPPORTED;
    case ErrorKind::out_of_memory:
      return BINMOE_OUT_OF_MEMORY;
    case ErrorKind::device:
      return BINMOE_DEVICE;
  }
  return BINMOE_INVALID_ARGUMENT;
}

template <class Function>
int32_t guarded(const Function& function) {
  try {
    function();
    return BINMOE_OK;
  } catch (const Error& error) {
    return fail(code_of(error.kind()), error.what(), error.fault());
  } catch (const std::bad_alloc&) {
    return fail(BINMOE_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {  // a fault that a model found in its kernels
    return fail(BINMOE_INTERNAL, error.what());
  }
}

template <class T>
const T& required(const T* pointer, const char* name) {
  if (pointer == nullptr) throw Error(ErrorKind::invalid_argument, "c", std::string(name) + " is null");
  return *pointer;
}

Sizes sizes_of(const binmoe_sizes& s) {
  return {s.tokens, s.top_k, s.num_experts, s.expert_capacity};
}

PlanView plan_of(const binmoe_plan_arrays* plan) {
  const auto& p = required(plan, "the plan");
  return {sizes_of(p.sizes),   p.indices,         p.bin_ids, p.row_of_assignment, p.bins,
          p.tokens_per_expert, p.kept_per_expert, p.status};
}

Bins bins_of(const binmoe_bins* bins) {
  const auto& b = required(bins, "the bins");
  return {b.indices, b.bin_ids, b.count, b.bins, b.num_experts};
}

DType dtype_of(int32_t code) {
  if (code < BINMOE_F32 || code > BINMOE_BYTES)
    throw Error(ErrorKind::invalid_argument, "c", std::to_string(code) + " is no dtype");
  return static_cast<DType>(code);
}

DropPolicy policy_of(int32_t code) {
  if (code < BINMOE_TOKEN_ORDER || code > BINMOE_BY_WEIGHT)
    throw Error(ErrorKind::invalid_argument, "c", std::to_string(code) + " is no drop policy");
  return static_cast<DropPolicy>(code);
}

Rows rows_of(const binmoe_rows* rows) {
  if (rows == nullptr) return {};
  return {rows->data, rows->rows, rows->cols, rows->stride, dtype_of(rows->dtype), rows->element_bytes};
}

WeightGradients weights_of(const binmoe_array* array) {
  if (array == nullptr) return {};
  return {array->data, array->count, dtype_of(array->type)};
}

Ids ids_of(const binmoe_array* array) {
  const auto& ids = required(array, "expert_ids");
  if (ids.type < BINMOE_I8 || ids.type > BINMOE_I64)
    throw Error(ErrorKind::invalid_argument, "c", std::to_string(ids.type) + " is no id type");
  return {ids.data, ids.count, static_cast<IdType>(ids.type)};
}

Memory memory_of(int32_t code) {
  if (code != BINMOE_HOST && code != BINMOE_CUDA)
    throw Error(ErrorKind::invalid_argument, "c", std::to_string(code) + " is no memory");
  return static_cast<Memory>(code);
}

class ForeignExecutor final : public Executor {
 public:
  explicit ForeignExecutor(const binmoe_context& context) : context_(context) {}
  int concurrency() const override { return context_.concurrency < 1 ? 1 : context_.concurrency; }
  void parallel_for(int64_t chunks, void (*body)(void*, int64_t), void* argument) override {
    context_.parallel_for(context_.parallel_state, chunks, body, argument);
  }

 private:
  const binmoe_context& context_;
};

/// A C context as a C++ one. It must outlive the call that uses it.
class Borrowed {
 public:
  explicit Borrowed(const binmoe_context* context) {
    if (context == nullptr) return;
    if (context->backend != nullptr) context_.backend = &find_backend(context->backend);
    context_.options = context->options;
    context_.workspace = context->workspace;
    context_.workspace_bytes = context->workspace_bytes;
    context_.memory = memory_of(context->memory);
    context_.stream = context->stream;
    if (context->parallel_for != nullptr) context_.executor = &executor_.emplace(*context);
  }
  operator const Context&() const { return context_; }

 private:
  Context context_;
  std::optional<ForeignExecutor> executor_;
};

binmoe_fault fault_of(const Fault& fault) {
  return {fault.check, fault.position, fault.value, fault.limit};
}

template <class Function>
int32_t checked(binmoe_fault* out, const Function& find_fault) {
  return guarded([&] {
    if (out != nullptr) *out = {};
    const std::optional<Fault> fault = find_fault();
    if (!fault) return;
    if (out != nullptr) *out = fault_of(*fault);
    throw Error("check", *fault);
  });
}

template <class Enum>
Enum named(int32_t code, Enum last, const char* what) {
  if (code < 0 || code > static_cast<int32_t>(last))
    throw Error(ErrorKind::invalid_argument, "c", std::to_string(code) + " is no " + what);
  return static_cast<Enum>(code);
}

ascend::TileRequest request_of(const binmoe_tile_request* request) {
  using namespace ascend;
  const auto& r = required(request, "the request");
  TileRequest out;
  out.soc = &find_soc(&required(r.soc, "the SoC's name"));
  out.family = named(r.family, Family::triton, "kernel family");
  if (r.row_copy != BINMOE_ROW_COPY_BY_ESTIMATE) out.row_copy = named(r.row_copy, RowCopy::index_select, "row copy");
  out.op = named(r.op, Op::scatter_backward, "operation");
  if (r.order != BINMOE_ORDER_BY_ESTIMATE) out.order = named(r.order, Order::expert, "order");
  out.rows = dtype_of(r.rows);
  if (r.weights != BINMOE_NO_WEIGHTS) out.weights = dtype_of(r.weights);
  out.dw = dtype_of(r.dw);
  out.policy = policy_of(r.policy);
  out.tokens = r.tokens;
  out.hidden_size = r.hidden_size;
  out.expert_capacity = r.expert_capacity;
  out.num_experts = r.num_experts;
  out.top_k = r.top_k;
  return out;
}

binmoe_tile tile_of(const ascend::TilePlan& plan) {
  binmoe_tile out{};
  out.order = static_cast<int32_t>(plan.order);
  out.row_copy = plan.request.row_copy ? static_cast<int32_t>(*plan.request.row_copy) : BINMOE_ROW_COPY_BY_ESTIMATE;
  out.num_programs = plan.num_programs;
  out.items = plan.items;
  out.items_per_block = plan.items_per_block;
  out.sub_block_size = plan.sub_block_size;
  out.block_x = plan.block_x;
  out.ub_bytes = plan.ub_bytes;
  out.ub_limit_bytes = plan.ub_limit_bytes;
  out.estimate_us = plan.estimate_us;
  if (plan.buffers.size() > BINMOE_MAX_TILE_BUFFERS) throw std::logic_error("a tile plan has too many buffers");
  for (const ascend::TileBuffer& buffer : plan.buffers) {
    binmoe_tile_buffer& to = out.buffers[out.num_buffers++];
    std::snprintf(to.name, sizeof to.name, "%s", buffer.name.c_str());
    to.bytes = buffer.bytes;
    to.count = buffer.count;
  }
  return out;
}

bool in_table(int32_t index) {
  return index >= 0 && index < binmoe_backend_count();
}

}  // namespace

const char* binmoe_version(void) {
  return version();
}
const char* binmoe_last_error(void) {
  return last_error.c_str();
}
binmoe_fault binmoe_last_fault(void) {
  return fault_of(last_fault);
}

int32_t binmoe_backend_count(void) {
  return static_cast<int32_t>(backends().size());
}
const char* binmoe_backend_name(int32_t index) {
  return in_table(index) ? backends()[static_cast<size_t>(index)].name : nullptr;
}
const char* binmoe_backend_unsupported(int32_t index) {
  return in_table(index) ? backends()[static_cast<size_t>(index)].unsupported : "there is no such backend";
}

int32_t binmoe_plan(const binmoe_array* expert_ids, int32_t policy, const binmoe_array* priority,
                    const binmoe_plan_arrays* out, const binmoe_context* context) {
  return guarded(
      [&] { plan(ids_of(expert_ids), policy_of(policy), weights_of(priority), plan_of(out), Borrowed(context)); });
}

int32_t binmoe_plan_from_bins(const binmoe_bins* bins, const binmoe_plan_arrays* out, const binmoe_context* context) {
  return guarded([&] { plan_from_bins(bins_of(bins), plan_of(out), Borrowed(context)); });
}

int32_t binmoe_plan_workspace_bytes(const binmoe_sizes* sizes, int32_t policy, int32_t priority_dtype,
                                    const binmoe_context* context, size_t* bytes) {
  return guarded([&] {
    required(bytes, "bytes");
    *bytes = plan_workspace_bytes(sizes_of(required(sizes, "sizes")), policy_of(policy), dtype_of(priority_dtype),
                                  Borrowed(context));
  });
}

int32_t binmoe_check(const binmoe_plan_arrays* plan, const binmoe_context* context, binmoe_fault* fault) {
  return checked(fault, [&] { return check(plan_of(plan), Borrowed(context)); });
}

int32_t binmoe_check_bins(const binmoe_bins* bins, const binmoe_sizes* sizes, const binmoe_context* context,
                          binmoe_fault* fault) {
  return checked(fault,
                 [&] { return check_bins(bins_of(bins), sizes_of(required(sizes, "sizes")), Borrowed(context)); });
}

int32_t binmoe_gather(const binmoe_plan_arrays* plan, const binmoe_rows* x, const binmoe_array* weights,
                      const binmoe_rows* y, const binmoe_context* context) {
  return guarded([&] { gather(plan_of(plan), rows_of(x), weights_of(weights), rows_of(y), Borrowed(context)); });
}

int32_t binmoe_scatter(const binmoe_plan_arrays* plan, const binmoe_rows* y, const binmoe_array* weights,
                       const binmoe_rows* out, const binmoe_context* context) {
  return guarded([&] { scatter(plan_of(plan), rows_of(y), weights_of(weights), rows_of(out), Borrowed(context)); });
}

int32_t binmoe_wgrad(const binmoe_plan_arrays* plan, const binmoe_rows* y, const binmoe_rows* grad,
                     const binmoe_array* dw, const binmoe_context* context) {
  return guarded([&] { wgrad(plan_of(plan), rows_of(y), rows_of(grad), weights_of(dw), Borrowed(context)); });
}

int32_t binmoe_scatter_backward(const binmoe_plan_arrays* plan, const binmoe_rows* y, const binmoe_rows* grad,
                                const binmoe_array* weights, const binmoe_rows* dy, const binmoe_array* dw,
                                const binmoe_context* context) {
  return guarded([&] {
    scatter_backward(plan_of(plan), rows_of(y), rows_of(grad), weights_of(weights), rows_of(dy), weights_of(dw),
                     Borrowed(context));
  });
}

int32_t binmoe_gather_backward(const binmoe_plan_arrays* plan, const binmoe_rows* dy, const binmoe_array* weights,
                               const binmoe_rows* x, const binmoe_rows* dx, const binmoe_array* dw,
                               const binmoe_context* context) {
  return guarded([&] {
    gather_backward(plan_of(plan), rows_of(dy), weights_of(weights), rows_of(x), rows_of(dx), weights_of(dw),
                    Borrowed(context));
  });
}

int32_t binmoe_expert_capacity(double factor, int64_t tokens, int32_t top_k, int32_t num_experts, int32_t multiple,
                               int32_t* capacity) {
  return guarded([&] {
    required(capacity, "capacity");
    *capacity = expert_capacity(factor, tokens, top_k, num_experts, multiple);
  });
}

int32_t binmoe_tile_plan(const binmoe_tile_request* request, binmoe_tile* out) {
  return guarded([&] {
    required(out, "the tile plan");
    *out = tile_of(ascend::tile_plan(request_of(request)));
  });
}
