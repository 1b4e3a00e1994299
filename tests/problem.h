// A case made into data: ids, weights, rows and the oracle's plan; and one check per operation that runs a problem on
// every variant. Whatever must have no influence (design.md, "Who reads") holds NaN.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "support.h"

namespace test {

enum class Routing { random, all_last, all_first, round_robin, all_masked };

struct Case {
  Sizes sizes;
  int64_t hidden = 8;
  DType row_type = DType::f32;
  DType weight_type = DType::f32;
  IdType id_type = IdType::i32;
  DropPolicy policy = DropPolicy::token_order;
  Routing routing = Routing::random;
  int64_t gap = 0;           ///< row stride - hidden, in elements
  int64_t offset_bytes = 0;  ///< of rows, weights and ids from a 64-byte boundary
  uint64_t seed = 1;
};
std::string describe(const Case& c);

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
constexpr IdType kIdTypes[] = {IdType::i8, IdType::u8, IdType::i16, IdType::u16, IdType::i32, IdType::i64};
constexpr DropPolicy kPolicies[] = {DropPolicy::token_order, DropPolicy::choice_order, DropPolicy::by_weight};

/// The largest expert that `type` can name.
int64_t largest_id(IdType type);

/// expert_ids of any type at any alignment.
class IdArray {
 public:
  IdArray(const std::vector<int64_t>& ids, IdType type, int64_t offset = 0);
  Ids view() const { return {memory_.data(), count_, type_}; }

 private:
  int64_t count_;
  IdType type_;
  Memory memory_;
};

class Problem {
 public:
  explicit Problem(const Case& made_from);

  Case c;
  std::vector<int64_t> ids;
  IdArray id_array;
  Numbers priority;  ///< by_weight's; has ties, both zeros, infinities and NaN
  Numbers weights;
  Tensor x, grad, y;  ///< y is also the incoming gradient of gather's backward
  oracle::Plan plan;

  Weights priority_view() const { return c.policy == DropPolicy::by_weight ? priority.weights() : Weights{}; }
  ConstPlanView plan_view() const { return view_of(plan); }
  Tensor expert_rows_out() const { return Tensor(shape(c.sizes.expert_rows()), Memory::Use::output); }
  Tensor token_rows_out() const { return Tensor(shape(c.sizes.tokens), Memory::Use::output); }
  Numbers gradients_out(DType type) const;

 private:
  Tensor::Shape shape(int64_t rows) const { return {rows, c.hidden, c.row_type, 0, c.gap, c.offset_bytes}; }
};

// Each stops at the first failing variant. `plan` also looks at load_of, check and the owning Plan.
void check_plan(const Problem& p);
void check_gather(const Problem& p);
void check_scatter(const Problem& p);
void check_wgrad(const Problem& p);
void check_scatter_backward(const Problem& p);
void check_gather_backward(const Problem& p);

using Check = void (*)(const Problem&);
constexpr Check kMoverChecks[] = {check_gather, check_scatter, check_wgrad, check_scatter_backward,
                                  check_gather_backward};

/// Run `check` on each case, until one fails.
void sweep(const std::vector<Case>& cases, Check check);

/// The dw dtypes that rows of `type` are tried with.
std::vector<DType> gradient_types(const Case& c);

}  // namespace test
