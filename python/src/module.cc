// binmoe._native: the operations on plain addresses, sizes and codes, without numpy's and torch's headers: a call with
// integers takes a tenth of a microsecond, one with DLPack arrays nine. Addresses are 0 where an argument is absent.
// Who calls it (arrays.py, torch/native.py) checks what only they can see: dimensions, devices, contiguous rows.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>

#include "arguments.h"
#include "binmoe/binmoe.h"
#include "huge_pages.h"
#include "openmp_executor.h"
#include "torch_movers.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace binmoe::python {
namespace {

void run_plan(const ArrayArgument& ids, int policy, const ArrayArgument& priority, const PlanArgument& out,
              Address workspace, size_t workspace_bytes, const PlaceArgument& place) {
  Context context = context_of(place);
  context.workspace = pointer(workspace);
  context.workspace_bytes = workspace_bytes;
  const auto& [address, count, type] = ids;
  const Ids view{pointer(address), count, static_cast<IdType>(type)};
  const PlanView out_view = plan_of("plan", out);
  const nb::gil_scoped_release released;
  plan(view, static_cast<DropPolicy>(policy), weights_of(priority), out_view, context);
}

size_t run_plan_workspace_bytes(const PlanArgument& out, int policy, int priority_type, const PlaceArgument& place) {
  return workspace_bytes_of(sizes_of("plan", out), static_cast<DropPolicy>(policy), static_cast<DType>(priority_type),
                            context_of(place));
}

void run_plan_from_bins(Address indices, Address bin_ids, int64_t count, Address bins, int64_t num_experts,
                        const PlanArgument& out, const PlaceArgument& place) {
  const auto map = [](Address address) { return static_cast<const int32_t*>(pointer(address)); };
  const Bins view{map(indices), map(bin_ids), count, map(bins), num_experts};
  const PlanView out_view = plan_of("plan_from_bins", out);
  const nb::gil_scoped_release released;
  plan_from_bins(view, out_view, context_of(place));
}

void run_check(const PlanArgument& plan, const PlaceArgument& place) {
  const PlanView view = plan_of("check", plan);
  const nb::gil_scoped_release released;
  if (const auto fault = check(view, context_of(place))) throw Error("check", *fault);
}

void run_gather(const PlanArgument& plan, const RowsArgument& x, const ArrayArgument& weights, const RowsArgument& y,
                const PlaceArgument& place) {
  const PlanView view = plan_of("gather", plan);
  const nb::gil_scoped_release released;
  gather(view, rows_of(x), weights_of(weights), rows_of(y), context_of(place));
}

void run_scatter(const PlanArgument& plan, const RowsArgument& y, const ArrayArgument& weights, const RowsArgument& out,
                 const PlaceArgument& place) {
  const PlanView view = plan_of("scatter", plan);
  const nb::gil_scoped_release released;
  scatter(view, rows_of(y), weights_of(weights), rows_of(out), context_of(place));
}

void run_wgrad(const PlanArgument& plan, const RowsArgument& y, const RowsArgument& grad, const ArrayArgument& dw,
               const PlaceArgument& place) {
  const PlanView view = plan_of("wgrad", plan);
  const nb::gil_scoped_release released;
  wgrad(view, rows_of(y), rows_of(grad), weights_of(dw), context_of(place));
}

void run_scatter_backward(const PlanArgument& plan, const RowsArgument& y, const RowsArgument& grad,
                          const ArrayArgument& weights, const RowsArgument& dy, const ArrayArgument& dw,
                          const PlaceArgument& place) {
  const PlanView view = plan_of("scatter_backward", plan);
  const nb::gil_scoped_release released;
  scatter_backward(view, rows_of(y), rows_of(grad), weights_of(weights), rows_of(dy), weights_of(dw),
                   context_of(place));
}

void run_gather_backward(const PlanArgument& plan, const RowsArgument& dy, const ArrayArgument& weights,
                         const RowsArgument& x, const RowsArgument& dx, const ArrayArgument& dw,
                         const PlaceArgument& place) {
  const PlanView view = plan_of("gather_backward", plan);
  const nb::gil_scoped_release released;
  gather_backward(view, rows_of(dy), weights_of(weights), rows_of(x), rows_of(dx), weights_of(dw), context_of(place));
}

int32_t run_expert_capacity(double factor, int64_t tokens, int64_t top_k, int64_t num_experts, int64_t multiple) {
  const auto narrowed = [](const char* name, int64_t value) { return narrow("expert_capacity", name, value); };
  return expert_capacity(factor, tokens, narrowed("top_k", top_k), narrowed("num_experts", num_experts),
                         narrowed("multiple", multiple));
}

/// Name, description, why unsupported, key=value options in force, properties of what it runs on.
using BackendEntry = std::tuple<std::string, std::string, std::optional<std::string>, std::vector<std::string>,
                                std::vector<std::tuple<std::string, std::string>>>;

std::vector<BackendEntry> backend_table() {
  std::vector<BackendEntry> entries;
  for (const Backend& backend : backends()) {
    BackendEntry entry{backend.name, backend.description, std::nullopt, {}, {}};
    if (backend.unsupported != nullptr) std::get<2>(entry) = backend.unsupported;
    for (const BackendOption& option : backend_options(backend))
      std::get<3>(entry).push_back(option.key + "=" + option.value);
    for (const BackendProperty& property : backend_properties(backend))
      std::get<4>(entry).emplace_back(property.name, property.value);
    entries.push_back(std::move(entry));
  }
  return entries;
}

/// The caller's mistakes are ValueError, whatever their kind; the machine's failures are not.
void translate(const std::exception_ptr& exception, void*) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    PyObject* type = PyExc_ValueError;
    if (error.kind() == ErrorKind::out_of_memory) type = PyExc_MemoryError;
    if (error.kind() == ErrorKind::unsupported || error.kind() == ErrorKind::device) type = PyExc_RuntimeError;
    PyErr_SetString(type, error.what());
  }
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "The operations on addresses, sizes and codes; see binmoe (numpy) and binmoe.torch.";
  nb::set_leak_warnings(false);  // a plan may live until the interpreter ends
  nb::register_exception_translator(translate);
  m.def("plan", run_plan, "ids"_a, "policy"_a, "priority"_a, "out"_a, "workspace"_a, "workspace_bytes"_a, "place"_a);
  m.def("plan_workspace_bytes", run_plan_workspace_bytes, "out"_a, "policy"_a, "priority_type"_a, "place"_a);
  m.def("plan_from_bins", run_plan_from_bins, "indices"_a, "bin_ids"_a, "count"_a, "bins"_a, "num_experts"_a, "out"_a,
        "place"_a);
  m.def("check", run_check, "plan"_a, "place"_a);
  m.def("gather", run_gather, "plan"_a, "x"_a, "weights"_a, "y"_a, "place"_a);
  m.def("scatter", run_scatter, "plan"_a, "y"_a, "weights"_a, "out"_a, "place"_a);
  m.def("wgrad", run_wgrad, "plan"_a, "y"_a, "grad"_a, "dw"_a, "place"_a);
  m.def("scatter_backward", run_scatter_backward, "plan"_a, "y"_a, "grad"_a, "weights"_a, "dy"_a, "dw"_a, "place"_a);
  m.def("gather_backward", run_gather_backward, "plan"_a, "dy"_a, "weights"_a, "x"_a, "dx"_a, "dw"_a, "place"_a);
  m.def("advise_huge_pages", advise_huge_pages, "address"_a, "bytes"_a, "Of fresh memory on the host, where large.");
  bind_torch_movers(m);
  m.def("expert_capacity", run_expert_capacity, "factor"_a, "tokens"_a, "top_k"_a, "num_experts"_a, "multiple"_a);
  m.def("backends", backend_table);
  m.def("version", version);
  m.def(
      "threads", [] { return openmp_executor().concurrency(); }, "Threads that an operation on the host may take.");
}

}  // namespace binmoe::python
