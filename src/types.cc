#include "binmoe/types.h"

#include <string>

namespace binmoe {

const char* name_of(DType type) {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::bytes:
      return "bytes";
  }
  return "unknown";
}

const char* name_of(IdType type) {
  switch (type) {
    case IdType::i8:
      return "int8";
    case IdType::u8:
      return "uint8";
    case IdType::i16:
      return "int16";
    case IdType::u16:
      return "uint16";
    case IdType::i32:
      return "int32";
    case IdType::i64:
      return "int64";
  }
  return "unknown";
}

const char* name_of(DropPolicy policy) {
  switch (policy) {
    case DropPolicy::token_order:
      return "token_order";
    case DropPolicy::choice_order:
      return "choice_order";
    case DropPolicy::by_weight:
      return "by_weight";
  }
  return "unknown";
}

std::string describe(const Fault& fault) {
  const std::string_view check = fault.check;
  const std::string position = std::to_string(fault.position);
  const std::string value = std::to_string(fault.value);
  const std::string limit = std::to_string(fault.limit);
  const std::string suffix = " (check " + std::string(check) + ")";
  const auto element = [&](const char* array) { return std::string(array) + "[" + position + "] is " + value; };
  if (check == "expert_id_range") return element("expert_ids") + ", but must be in [-1, " + limit + ")" + suffix;
  if (check == "bins_nonnegative") return element("bins") + ", but must not be negative" + suffix;
  if (check == "bins_monotonic") return element("bins") + ", but the bin before it ends at " + limit + suffix;
  if (check == "bins_end") return element("bins") + ", but there are " + limit + " indices" + suffix;
  if (check == "bins_limit") return element("bins") + ", but there are only " + limit + " assignments" + suffix;
  if (check == "index_range") return element("indices") + ", but must be in [0, " + limit + ")" + suffix;
  if (check == "index_unique") return element("indices") + ", which stands at " + limit + " already" + suffix;
  const std::string array = check == "indices_tail" ? "indices" : check == "bin_ids_tail" ? "bin_ids" : fault.check;
  return element(array.c_str()) + ", but should be " + limit + suffix;
}

Error::Error(ErrorKind kind, const char* operation, const std::string& message)
    : std::runtime_error("[" + std::string(operation) + "] " + message), kind_(kind), operation_(operation) {}

Error::Error(const char* operation, const Fault& fault)
    : std::runtime_error("[" + std::string(operation) + "] " + describe(fault)),
      kind_(ErrorKind::invalid_data),
      operation_(operation),
      fault_(fault) {}

}  // namespace binmoe
