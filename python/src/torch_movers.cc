// plan, gather and scatter of ordinary torch tensors without torch's dispatcher, for decoding: contiguous, no gradient,
// nothing that looks on. It knows torch by Python's and DLPack's interfaces alone, so it is tied to no version. It
// returns None for whatever is not ordinary; then the caller takes the operator, which says what is wrong if something
// is.
#include "torch_movers.h"

#include <algorithm>
#include <array>
#include <optional>

#include "arguments.h"
#include "dlpack_exchange.h"
#include "huge_pages.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace binmoe::python {
namespace {

/// Thrown and caught here: the call is not ordinary. (A gradient and onlookers are met often, and without a throw.)
struct NotOrdinary {};

void require(bool ordinary) {
  if (!ordinary) throw NotOrdinary{};
}

nb::object checked(PyObject* result) {
  if (result == nullptr) PyErr_Clear();  // the operator will meet it again
  require(result != nullptr);
  return nb::steal(result);
}

int64_t integer(const nb::object& value) {
  const long long number = PyLong_AsLongLong(value.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw NotOrdinary{};
  }
  return number;
}

/// A name that is looked up in every call.
class Name {
 public:
  explicit Name(const char* text) : name_(PyUnicode_InternFromString(text)) {}
  nb::object of(nb::handle object) const { return checked(PyObject_GetAttr(object.ptr(), name_)); }
  nb::object call(nb::handle object) const { return checked(PyObject_CallMethodNoArgs(object.ptr(), name_)); }
  void set(nb::handle object, nb::handle value) const {
    const int failed = PyObject_SetAttr(object.ptr(), name_, value.ptr());
    if (failed != 0) PyErr_Clear();
    require(failed == 0);
  }

 private:
  PyObject* name_;
};

struct Names {
  Name dtype{"dtype"}, is_neg{"is_neg"}, known{"known"}, level{"_current_level"}, maps{"maps"},
      requires_grad{"requires_grad"}, sizes{"_sizes"};
};

const Names& names() {
  static const Names* const all = new Names;  // never freed: Python may be gone before static objects are
  return *all;
}

using Shape = std::array<int64_t, 3>;  // one with fewer dimensions ends with -1

/// A contiguous tensor of up to three dimensions.
struct TensorView {
  void* data;
  int device;  // -1: the host
  uint8_t type, bits;
  Shape shape;

  int rank() const { return static_cast<int>(std::find(shape.begin(), shape.end(), -1) - shape.begin()); }
  DType float_type() const {
    if (type == dlpack::kBfloat) return DType::bf16;
    require(type == dlpack::kFloat && bits >= 16);
    return bits == 16 ? DType::f16 : bits == 32 ? DType::f32 : DType::f64;
  }
  IdType id_type() const {
    const bool is_unsigned = type == dlpack::kUnsigned;
    require(is_unsigned ? bits <= 16 : type == dlpack::kInt);
    if (bits == 8) return is_unsigned ? IdType::u8 : IdType::i8;
    if (bits == 16) return is_unsigned ? IdType::u16 : IdType::i16;
    return bits == 32 ? IdType::i32 : IdType::i64;
  }
};

/// A plan whose block of maps was looked at.
struct KnownPlan {
  nb::object maps;
  PlanArgument argument;
  int device;
};

/// What torch offers to Python alone.
struct TorchFunctions {
  nb::tuple observers;  // true, or an object: something would see an operator
  nb::object forward_ad, is_grad_enabled, current_device, increment_version;
  nb::object empty_cpu, empty_cuda;  // of sizes, strides and dtype
  nb::object int32, uint8;           // dtypes
};

class TorchMovers {
 public:
  TorchMovers(nb::object plan, nb::dict policies, nb::tuple tensors, TorchFunctions functions)
      : plan_(std::move(plan)),
        policies_(std::move(policies)),
        tensors_(std::move(tensors)),
        torch_(std::move(functions)),
        exchange_(dlpack::exchange_of(tensors_[0])) {}

  /// No mode, transform, tracer or forward-mode differentiation would see an operator.
  bool unobserved() const {
    for (const nb::handle observer : torch_.observers) {
      const nb::object answer = checked(PyObject_CallNoArgs(observer.ptr()));
      const int truth = PyObject_IsTrue(answer.ptr());
      if (truth < 0) PyErr_Clear();
      if (truth != 0) return false;
    }
    return integer(names().level.of(torch_.forward_ad)) < 0;
  }

  nb::object plan(nb::handle ids, nb::handle num_experts, nb::handle expert_capacity, nb::handle policy,
                  nb::handle weights, nb::handle out) const {
    try {
      if (exchange_ == nullptr || !unobserved()) return nb::none();
      return make_plan(ids, num_experts, expert_capacity, policy, weights, out);
    } catch (const NotOrdinary&) {
      return nb::none();
    }
  }

  nb::object gather(nb::handle x, nb::handle plan, nb::handle weights, nb::handle out) const {
    return run(x, plan, weights, out, true);
  }

  nb::object scatter(nb::handle y, nb::handle plan, nb::handle weights, nb::handle out) const {
    return run(y, plan, weights, out, false);
  }

 private:
  nb::object run(nb::handle source, nb::handle plan, nb::handle weights, nb::handle out, bool gathers) const {
    try {
      if (exchange_ == nullptr || !unobserved() || needs_gradient({source, weights, out})) return nb::none();
      return move(source, plan, weights, out, gathers);
    } catch (const NotOrdinary&) {
      return nb::none();
    }
  }

  /// `source` is [T, H] and the result [E, C, H], or the other way round.
  nb::object move(nb::handle source, nb::handle plan, nb::handle weights, nb::handle out, bool gathers) const {
    const nb::object known_object = known(plan);
    const KnownPlan& known = *nb::inst_ptr<KnownPlan>(known_object);
    const auto [maps, tokens, top_k, num_experts, expert_capacity] = known.argument;
    const TensorView from = view_of(source, known.device);
    const DType type = from.float_type();
    require(from.rank() == (gathers ? 2 : 3));
    const int64_t cols = from.shape[gathers ? 1 : 2];
    const Shape experts{num_experts, expert_capacity, cols}, batch{tokens, cols, -1};
    require(gathers || from.shape == experts);
    const Weights w = weights.is_none() ? Weights{} : weights_of(weights, known.device, tokens, top_k);
    const Context context = context_of(place(known.device));
    const Shape& out_shape = gathers ? experts : batch;
    const nb::object result = out.is_none() ? new_rows(source, out_shape, known.device) : nb::borrow(out);
    const TensorView to = view_of(result, known.device);
    require(to.shape == out_shape && to.type == from.type && to.bits == from.bits);
    const Rows to_rows = rows(to, type, cols);
    if (out.is_none() && known.device < 0)
      advise_huge_pages(reinterpret_cast<Address>(to.data), static_cast<size_t>(to_rows.rows * cols * size_of(type)));
    const PlanView view = plan_of(gathers ? "gather" : "scatter", known.argument);
    {
      const nb::gil_scoped_release released;
      if (gathers)
        binmoe::gather(view, rows(from, type, cols), w, to_rows, context);
      else
        binmoe::scatter(view, rows(from, type, cols), w, to_rows, context);
    }
    if (!out.is_none()) torch_.increment_version(result);
    return result;
  }

  nb::object make_plan(nb::handle ids, nb::handle num_experts, nb::handle expert_capacity, nb::handle policy_name,
                       nb::handle weights, nb::handle out) const {
    require(PyLong_CheckExact(num_experts.ptr()) && PyLong_CheckExact(expert_capacity.ptr()));
    PyObject* policy_code = PyDict_GetItemWithError(policies_.ptr(), policy_name.ptr());
    if (policy_code == nullptr) PyErr_Clear();
    require(policy_code != nullptr);
    const auto policy = static_cast<DropPolicy>(integer(nb::borrow(policy_code)));
    const TensorView from = view_of(ids);
    const IdType type = from.id_type();
    require(from.rank() == 2);
    const auto [tokens, top_k, unused] = from.shape;
    PlanArgument argument{0, tokens, top_k, integer(nb::borrow(num_experts)), integer(nb::borrow(expert_capacity))};
    const int64_t length = block_length(argument);
    require(length > 0);
    const Weights priority = weights.is_none() ? Weights{} : weights_of(weights, from.device, tokens, top_k);
    nb::object result = nb::borrow(out);
    if (out.is_none()) {
      const nb::object maps = empty(from.device)(nb::make_tuple(length), nb::make_tuple(1), torch_.int32);
      result = plan_(maps, tokens, top_k, num_experts, expert_capacity);
    }
    const nb::object known_object = known(result);
    const KnownPlan& made = *nb::inst_ptr<KnownPlan>(known_object);
    std::get<0>(argument) = std::get<0>(made.argument);
    require(made.argument == argument && made.device == from.device);
    Context context = context_of(place(from.device));
    const PlanView view = plan_of("plan", argument);
    context.workspace_bytes = from.device < 0 ? 0 : workspace_bytes_of(view.sizes, policy, priority.type, context);
    nb::object workspace;
    if (context.workspace_bytes > 0) {
      workspace = empty(from.device)(nb::make_tuple(context.workspace_bytes), nb::make_tuple(1), torch_.uint8);
      context.workspace = view_of(workspace).data;
    }
    {
      const nb::gil_scoped_release released;
      binmoe::plan({from.data, tokens * top_k, type}, policy, priority, view, context);
    }
    if (!out.is_none()) torch_.increment_version(made.maps);
    return result;
  }

  bool is_tensor(nb::handle value) const {
    return std::any_of(tensors_.begin(), tensors_.end(), [&](nb::handle type) {
      return Py_TYPE(value.ptr()) == reinterpret_cast<PyTypeObject*>(type.ptr());
    });
  }

  bool needs_gradient(std::initializer_list<nb::handle> arguments) const {
    if (checked(PyObject_CallNoArgs(torch_.is_grad_enabled.ptr())).ptr() != Py_True) return false;
    return std::any_of(arguments.begin(), arguments.end(), [&](nb::handle value) {
      return is_tensor(value) && names().requires_grad.of(value).ptr() != Py_False;
    });
  }

  dlpack::Tensor raw_of(nb::handle tensor) const {
    dlpack::Tensor raw{};
    const bool failed = exchange_->tensor_from_object(tensor.ptr(), &raw) != 0;
    if (failed) PyErr_Clear();
    require(!failed);
    return raw;
  }

  TensorView view_of(nb::handle tensor, std::optional<int> device = std::nullopt) const {
    require(is_tensor(tensor) && names().is_neg.call(tensor).ptr() == Py_False);
    const dlpack::Tensor raw = raw_of(tensor);
    require(raw.lanes == 1 && raw.byte_offset == 0 && raw.rank >= 1 && raw.rank <= 3);
    require(raw.device_type == dlpack::kCpu || raw.device_type == dlpack::kCuda);
    TensorView view{raw.data, raw.device_type == dlpack::kCpu ? -1 : raw.device_id, raw.type, raw.bits, {-1, -1, -1}};
    require(view.device == device.value_or(view.device));
    int64_t stride = 1;
    for (int i = raw.rank - 1; i >= 0; --i) {
      require(raw.shape[i] <= 1 || raw.strides == nullptr || raw.strides[i] == stride);
      stride *= std::max<int64_t>(raw.shape[i], 1);
      view.shape[static_cast<size_t>(i)] = raw.shape[i];
    }
    require(raw.data != nullptr || std::count(raw.shape, raw.shape + raw.rank, 0) > 0);  // torch's lazy zeros
    return view;
  }

  Weights weights_of(nb::handle weights, int device, int64_t tokens, int64_t top_k) const {
    const TensorView view = view_of(weights, device);
    require(view.shape == Shape{tokens, top_k, -1} || view.shape == Shape{tokens * top_k, -1, -1});
    return {view.data, tokens * top_k, view.float_type()};
  }

  static bool is_block(const dlpack::Tensor& maps, const PlanArgument& argument) {
    const bool is_vector = maps.rank == 1 && (maps.strides == nullptr || maps.strides[0] == 1);
    return is_vector && maps.type == dlpack::kInt && maps.bits == 32 && maps.shape[0] == block_length(argument);
  }

  /// The plan's KnownPlan; made where its maps are not known.
  nb::object known(nb::handle plan) const {
    require(Py_TYPE(plan.ptr()) == reinterpret_cast<PyTypeObject*>(plan_.ptr()));
    nb::object kept = names().known.of(plan);
    const nb::object maps = names().maps.of(plan);
    if (nb::isinstance<KnownPlan>(kept) && nb::inst_ptr<KnownPlan>(kept)->maps.is(maps)) {
      const PlanArgument& argument = nb::inst_ptr<KnownPlan>(kept)->argument;
      const dlpack::Tensor now = raw_of(maps);  // set_() and the like change a tensor in its place
      if (reinterpret_cast<Address>(now.data) == std::get<0>(argument) && is_block(now, argument)) return kept;
    }
    const TensorView view = view_of(maps);
    const nb::object sizes = names().sizes.of(plan);
    require(PyTuple_Check(sizes.ptr()) && PyTuple_GET_SIZE(sizes.ptr()) == 4);
    const auto size = [&](Py_ssize_t i) { return integer(nb::borrow(PyTuple_GET_ITEM(sizes.ptr(), i))); };
    const PlanArgument argument{reinterpret_cast<Address>(view.data), size(0), size(1), size(2), size(3)};
    require(is_block(raw_of(maps), argument) && std::get<0>(argument) % alignof(int64_t) == 0);
    kept = nb::cast(KnownPlan{maps, argument, view.device});
    names().known.set(plan, kept);
    return kept;
  }

  static Rows rows(const TensorView& view, DType type, int64_t cols) {
    const int64_t count = view.rank() == 2 ? view.shape[0] : view.shape[0] * view.shape[1];
    return {view.data, count, cols, cols, type, 0};
  }

  /// Where a call for that device runs; not ordinary when it is not the current one.
  PlaceArgument place(int device) const {
    if (device < 0) return {static_cast<int>(Memory::host), 0};
    require(integer(checked(PyObject_CallNoArgs(torch_.current_device.ptr()))) == device);
    void* stream = nullptr;
    const bool failed = exchange_->current_stream(dlpack::kCuda, device, &stream) != 0;
    if (failed) PyErr_Clear();
    require(!failed);
    return {static_cast<int>(Memory::cuda), reinterpret_cast<Address>(stream)};
  }

  nb::object new_rows(nb::handle like, const Shape& shape, int device) const {
    const auto [first, second, third] = shape;
    const bool flat = third < 0;
    const nb::tuple sizes = flat ? nb::make_tuple(first, second) : nb::make_tuple(first, second, third);
    const int64_t cols = std::max<int64_t>(flat ? second : third, 1);
    const nb::tuple strides =
        flat ? nb::make_tuple(cols, 1) : nb::make_tuple(std::max<int64_t>(second, 1) * cols, cols, 1);
    return empty(device)(sizes, strides, names().dtype.of(like));
  }

  const nb::object& empty(int device) const { return device < 0 ? torch_.empty_cpu : torch_.empty_cuda; }

  nb::object plan_;
  nb::dict policies_;
  nb::tuple tensors_;
  TorchFunctions torch_;
  const dlpack::Exchange* exchange_;
};

}  // namespace

void bind_torch_movers(nb::module_& module) {
  nb::class_<KnownPlan>(module, "KnownPlan");
  const auto make = [](TorchMovers* place, nb::object plan, nb::dict policies, nb::tuple tensors, nb::dict torch) {
    const auto at = [&](const char* name) { return nb::object(torch[name]); };
    TorchFunctions functions{nb::cast<nb::tuple>(at("observers")),
                             at("forward_ad"),
                             at("is_grad_enabled"),
                             at("current_device"),
                             at("increment_version"),
                             at("empty_cpu"),
                             at("empty_cuda"),
                             at("int32"),
                             at("uint8")};
    new (place) TorchMovers(std::move(plan), std::move(policies), std::move(tensors), std::move(functions));
  };
  nb::class_<TorchMovers>(module, "TorchMovers", "plan, gather and scatter of torch tensors past the dispatcher.")
      .def("__init__", make, "plan"_a, "policies"_a, "tensors"_a, "torch"_a)
      .def("plan", &TorchMovers::plan, "ids"_a.none(), "num_experts"_a.none(), "expert_capacity"_a.none(),
           "policy"_a.none(), "weights"_a.none(), "out"_a.none())
      .def("unobserved",
           [](const TorchMovers& movers) {
             try {
               return movers.unobserved();
             } catch (const NotOrdinary&) {
               return false;
             }
           })
      .def("gather", &TorchMovers::gather, "x"_a.none(), "plan"_a.none(), "weights"_a.none(), "out"_a.none())
      .def("scatter", &TorchMovers::scatter, "y"_a.none(), "plan"_a.none(), "weights"_a.none(), "out"_a.none());
}

}  // namespace binmoe::python
