// A job for the mover kernels: data in which whatever must have no influence is NaN, the reference backend's answer,
// and the run on the vector-core model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ascend/model/runner.h"
#include "support.h"

namespace test {

enum class Mover : uint8_t { gather_by_token, gather_by_expert, scatter, wgrad, scatter_backward };
constexpr Mover kMovers[] = {Mover::gather_by_token, Mover::gather_by_expert, Mover::scatter, Mover::wgrad,
                             Mover::scatter_backward};
/// What the kernels take, for rows, weights and dw.
constexpr DType kDeviceFloats[] = {DType::f32, DType::bf16, DType::f16};

const char* name_of(Mover mover);
ascend::Op op_of(Mover mover);

struct MoverCase {
  Sizes sizes;
  int64_t hidden = 46;
  DType rows = DType::bf16;
  std::optional<DType> weights;
  DType dw = DType::f32;
  int64_t gap = 0;  ///< elements behind each row of x and grad; of y twice, of outputs three times as many
  uint64_t seed = 1;
};
std::string describe(const MoverCase& c);

/// One in `masked_share` assignments is masked (0: none); a third goes to the first and the last expert.
std::vector<int32_t> random_ids(const Sizes& sizes, Random& random, int64_t masked_share = 9);
/// Expert e gets counts[e] assignments, at mixed places; the others are masked.
std::vector<int32_t> counted_ids(const Sizes& sizes, const std::vector<int64_t>& counts, Random& random);

/// Chip with few programs, so that small cases give each of them several blocks.
ascend::Soc small_chip(int32_t programs, int64_t ub_limit_bytes);

class MoverProblem {
 public:
  enum class Values { numbers, any_bits, extremes };
  MoverProblem(const MoverCase& made_from, const std::vector<int32_t>& ids, Values values = Values::numbers);

  MoverCase c;
  Plan plan;
  Tensor x, grad, y;
  Numbers weights;
  int64_t kept = 0;  ///< kept rows
  int64_t used = 0;  ///< tokens with a kept row

  Weights weights_view() const { return c.weights ? weights.weights() : Weights{}; }
  int64_t row_bytes() const { return c.hidden * size_of(c.rows); }

 private:
  void fill(Values values);
};

/// What a mover writes.
struct MoverOutput {
  std::optional<Tensor> rows;
  std::optional<Numbers> dw;
  const char* rows_name = "";  ///< of the tensor in the model
};
MoverOutput empty_output(const MoverProblem& p, Mover mover);

MoverOutput run_on_reference(const MoverProblem& p, Mover mover);

ascend::TileRequest request_of(const MoverProblem& p, Mover mover, const ascend::Soc& soc);
void run_on_model(vector_core::Machine& machine, const ascend::MoverPlan& plan, const MoverProblem& p, Mover mover,
                  MoverOutput& output);

/// The bytes that the rows of `output` take in its tensor.
std::vector<vector_core::ByteRange> row_ranges(const MoverOutput& output);
/// Throw ModelFault unless the launches wrote each byte of the output once.
void expect_written_once(const vector_core::Machine& machine, const MoverOutput& output);

}  // namespace test
