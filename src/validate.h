// Argument checks shared by the operations: sizes, shapes, dtypes, null pointers, overlap. All of them throw.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "binmoe/types.h"

namespace binmoe {

/// K >= 1, E >= 1, C >= 0, T >= 0; T*K and E*C below 2^31.
void validate_sizes(const char* operation, const Sizes& sizes);

/// validate_sizes, and no null array where there are entries.
void validate_plan(const char* operation, const ConstPlanView& plan);

/// Pointers, num_experts and count of bins from elsewhere; not their values.
void validate_bins(const char* operation, const Bins& bins, const Sizes& sizes);

void validate_ids(const char* operation, const Ids& ids, const Sizes& sizes);

/// rows x any cols, a row dtype, a stride that fits, bytes that can be addressed. `out`: rows must not overlap each
/// other.
void validate_rows(const char* operation, const char* name, const ConstRows& view, int64_t rows, bool out);

/// Two row views of one call share dtype and hidden size.
void validate_same(const char* operation, const char* name, const ConstRows& view, const char* other_name,
                   const ConstRows& other);

/// T*K weights of a float dtype that goes with the rows' dtype; absent is fine.
void validate_weights(const char* operation, const Weights& weights, const Sizes& sizes, DType row_type);

/// The weights that by_weight orders by: present then, absent with the other policies.
void validate_priority(const char* operation, const Weights& priority, DropPolicy policy, const Sizes& sizes);

void validate_weight_gradients(const char* operation, const Weights& dw, const Sizes& sizes);

/// Bytes [begin, end) of one argument.
struct Extent {
  const char* name;
  const char* begin;
  const char* end;
};
Extent extent_of(const char* name, const ConstRows& view);
Extent extent_of(const char* name, const Weights& weights);
Extent extent_of(const char* name, const Ids& ids);
Extent extent_of(const char* name, const int32_t* array, int64_t count);

std::array<Extent, 7> extents_of(const ConstPlanView& plan);

/// No output meets an input or another output.
void validate_disjoint(const char* operation, std::span<const Extent> outputs, std::span<const Extent> inputs);

Error out_of_memory(const char* operation, size_t bytes);

}  // namespace binmoe
