// The words of docs/design.md, section 1, as types: sizes, dtypes, views of the caller's memory, faults and errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace binmoe {

/// Element types of rows and weights. `bytes` is for the unweighted gather only: elements of any fixed size.
enum class DType : uint8_t { f32, f64, bf16, f16, bytes };

/// Element types of expert_ids. An id is compared in its own width: int64 2^32 is out of range, not 0.
enum class IdType : uint8_t { i8, u8, i16, u16, i32, i64 };

/// Who keeps a row when an expert overflows. See design.md, section 2, "Order inside an expert".
enum class DropPolicy : uint8_t { token_order, choice_order, by_weight };

/// Bytes of one element; 0 for DType::bytes, whose size stands in the view.
constexpr int64_t size_of(DType type) {
  switch (type) {
    case DType::f32:
      return 4;
    case DType::f64:
      return 8;
    case DType::bf16:
      return 2;
    case DType::f16:
      return 2;
    case DType::bytes:
      return 0;
  }
  return 0;
}

constexpr int64_t size_of(IdType type) {
  switch (type) {
    case IdType::i8:
      return 1;
    case IdType::u8:
      return 1;
    case IdType::i16:
      return 2;
    case IdType::u16:
      return 2;
    case IdType::i32:
      return 4;
    case IdType::i64:
      return 8;
  }
  return 0;
}

/// "f32", "int16", "token_order": the names that the command line and the messages use.
const char* name_of(DType type);
const char* name_of(IdType type);
const char* name_of(DropPolicy policy);

/// A matrix of rows in the caller's memory. Rows are contiguous inside; any alignment.
///   stride         elements from one row to the next. Inputs: >= 0. Outputs of more than one row: >= cols.
///   element_bytes  size of one element; needed for DType::bytes only.
/// Default-constructed = absent, where an argument is optional.
template <class Pointer>
struct RowsOf {
  Pointer data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  DType type = DType::f32;
  int32_t element_bytes = 0;

  constexpr int64_t element_size() const { return type == DType::bytes ? element_bytes : size_of(type); }
  constexpr operator RowsOf<const void*>() const { return {data, rows, cols, stride, type, element_bytes}; }
};
using Rows = RowsOf<void*>;
using ConstRows = RowsOf<const void*>;

/// Router weights [tokens, top_k], indexed by assignment, contiguous. Null data = absent.
template <class Pointer>
struct WeightsOf {
  Pointer data = nullptr;
  int64_t count = 0;
  DType type = DType::f32;

  constexpr operator WeightsOf<const void*>() const { return {data, count, type}; }
};
using Weights = WeightsOf<const void*>;
using WeightGradients = WeightsOf<void*>;

/// The router's choice [tokens, top_k], contiguous; -1 = masked.
struct Ids {
  const void* data = nullptr;
  int64_t count = 0;
  IdType type = IdType::i32;
};

/// T, K, E and C of a plan. T*K and E*C stay below 2^31.
struct Sizes {
  int64_t tokens = 0;
  int32_t top_k = 1;
  int32_t num_experts = 1;
  int32_t expert_capacity = 0;

  constexpr int64_t assignments() const { return tokens * top_k; }
  constexpr int64_t expert_rows() const { return int64_t{num_experts} * expert_capacity; }
  friend constexpr bool operator==(const Sizes&, const Sizes&) = default;
};

/// A plan in the caller's memory. Words: design.md, section 1. N = bins[num_experts - 1].
template <class Pointer, class StatusPointer>
struct PlanOf {
  Sizes sizes;
  Pointer indices = nullptr;            ///< [T*K] the first N: assignments by expert; then -1
  Pointer bin_ids = nullptr;            ///< [T*K] the first N: their experts; then num_experts
  Pointer row_of_assignment = nullptr;  ///< [T*K] expert row, or -1
  Pointer bins = nullptr;               ///< [E] inclusive cumulative counts
  Pointer tokens_per_expert = nullptr;  ///< [E] before the cut
  Pointer kept_per_expert = nullptr;    ///< [E] after the cut
  /// [3] or null: how many ids were out of range and taken as masked, the first one's position, its value; 0, -1, 0
  /// when there is none. Only a device backend finds any: it cannot refuse without waiting.
  StatusPointer status = nullptr;

  constexpr operator PlanOf<const int32_t*, const int64_t*>() const {
    return {sizes, indices, bin_ids, row_of_assignment, bins, tokens_per_expert, kept_per_expert, status};
  }
};
using PlanView = PlanOf<int32_t*, int64_t*>;
using ConstPlanView = PlanOf<const int32_t*, const int64_t*>;

/// Sorted bins from elsewhere (MegaBlocks' `indices, bins`, with or without `bin_ids`).
struct Bins {
  const int32_t* indices = nullptr;  ///< [count] assignments by expert, in any order inside an expert
  const int32_t* bin_ids = nullptr;  ///< [count] or null
  int64_t count = 0;
  const int32_t* bins = nullptr;  ///< [num_experts]
  int64_t num_experts = 0;
};

/// The first thing that is wrong with data. `check` is one of a fixed set of names, listed in docs/errors.md.
struct Fault {
  const char* check = nullptr;
  int64_t position = 0;  ///< index into the array that the check names
  int64_t value = 0;     ///< what stands there
  int64_t limit = 0;     ///< the bound that it breaks, or the value that should stand there
};

/// One sentence: the array, the position, the value, the limit.
std::string describe(const Fault& fault);

enum class ErrorKind : uint8_t {
  invalid_argument,  ///< sizes, shapes, dtypes, overlap, null pointers
  invalid_data,      ///< what the arrays hold; fault() says where
  unsupported,       ///< an unknown or unsupported backend, option or dtype
  out_of_memory,     ///< what() gives the bytes wanted
  device,            ///< a call of the device's driver failed; what() names it and gives the driver's text
};

/// Thrown before any output is written (ErrorKind::device: some may be). what() begins with the operation: "[gather] x
/// has 512 rows, but ...".
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const char* operation, const std::string& message);
  Error(const char* operation, const Fault& fault);

  ErrorKind kind() const { return kind_; }
  const char* operation() const { return operation_; }
  /// fault().check is null unless kind() is invalid_data.
  const Fault& fault() const { return fault_; }

 private:
  ErrorKind kind_;
  const char* operation_;
  Fault fault_;
};

}  // namespace binmoe
