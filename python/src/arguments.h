// From the integers of a Python call to the views of the library.
#pragma once

#include <cstdint>
#include <tuple>

#include "binmoe/binmoe.h"

namespace binmoe::python {

using Address = uintptr_t;
/// Address of the block of maps; tokens, top_k, num_experts, expert_capacity.
using PlanArgument = std::tuple<Address, int64_t, int64_t, int64_t, int64_t>;
/// Address, rows, cols, stride in elements, DType, bytes of an element (for DType::bytes).
using RowsArgument = std::tuple<Address, int64_t, int64_t, int64_t, int, int32_t>;
/// Address, count, DType or IdType.
using ArrayArgument = std::tuple<Address, int64_t, int>;
/// Memory, stream.
using PlaceArgument = std::tuple<int, Address>;

inline void* pointer(Address address) {
  return reinterpret_cast<void*>(address);
}

Sizes sizes_of(const char* operation, const PlanArgument& argument);

/// One block of int32 holds a plan: row_of_assignment, indices of T*K each, the status (three int64), bin_ids of T*K,
/// bins, tokens_per_expert, kept_per_expert of E each. binmoe/maps.py is the same for Python.
PlanView plan_of(const char* operation, const PlanArgument& argument);

/// Entries of that block; 0 for sizes that the library will refuse.
int64_t block_length(const PlanArgument& argument);

Rows rows_of(const RowsArgument& argument);

WeightGradients weights_of(const ArrayArgument& argument);

Context context_of(const PlaceArgument& place);

/// binmoe::plan_workspace_bytes; who calls binmoe.torch.plan has never heard of it, so its errors speak of the plan.
size_t workspace_bytes_of(const Sizes& sizes, DropPolicy policy, DType priority, const Context& context);

/// Errors: a value that does not fit.
int32_t narrow(const char* operation, const char* name, int64_t value);

}  // namespace binmoe::python
