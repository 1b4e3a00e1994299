// A job's tensors as the model's global memory.
#pragma once

#include "ascend/model/runner.h"
#include "layout.h"

namespace binmoe::ascend {

/// A tensor without data is for estimates: its values go nowhere.
inline GM_ADDR bind_tensor(vector_core::Machine& machine, const char* name, const void* data, int64_t bytes,
                           vector_core::Role role) {
  return data != nullptr ? machine.bind(name, data, bytes, role) : machine.bind_without_memory(name, bytes, role);
}

inline GM_ADDR bind_rows(vector_core::Machine& machine, const char* name, const ConstRows& rows,
                         vector_core::Role role) {
  const int64_t elements = rows.rows > 0 && rows.cols > 0 ? (rows.rows - 1) * rows.stride + rows.cols : 0;
  return bind_tensor(machine, name, rows.data, elements * rows.element_size(), role);
}

inline GM_ADDR bind_map(vector_core::Machine& machine, const char* name, const int32_t* map, int64_t count) {
  return machine.bind(name, map, count * static_cast<int64_t>(sizeof(int32_t)), vector_core::Role::input);
}

inline GM_ADDR bind_weights(vector_core::Machine& machine, const Weights& weights) {
  return bind_tensor(machine, "weights", weights.data, weights.count * size_of(weights.type), vector_core::Role::input);
}

inline GM_ADDR bind_gradients(vector_core::Machine& machine, const WeightGradients& dw) {
  return bind_tensor(machine, "dw", dw.data, dw.count * size_of(dw.type), vector_core::Role::output);
}

inline GM_ADDR bind_row_of_assignment(vector_core::Machine& machine, const ConstPlanView& plan) {
  return bind_map(machine, "row_of_assignment", plan.row_of_assignment, plan.sizes.assignments());
}

inline GM_ADDR bind_kept(vector_core::Machine& machine, const ConstPlanView& plan) {
  return bind_map(machine, "kept_per_expert", plan.kept_per_expert, plan.sizes.num_experts);
}

/// Call function<T>() with the kernels' type of a dtype.
template <class Function>
void with_row_type(DType type, const Function& function) {
  if (type == DType::f32)
    function.template operator()<float>();
  else if (type == DType::bf16)
    function.template operator()<bfloat16_t>();
  else
    function.template operator()<half>();
}

template <class Kernel, class... Arguments>
void launch(vector_core::Machine& machine, const char* name, int32_t num_programs, const Arguments&... arguments) {
  machine.launch(name, num_programs, [&] {
    Kernel kernel;
    kernel.Init(arguments...);
    kernel.Process();
  });
}

}  // namespace binmoe::ascend
