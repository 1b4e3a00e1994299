// One check per operation: the oracle's answer once, then every variant against it.
#include <algorithm>

#include "problem.h"

namespace test {
namespace {

bool has_nan(const oracle::Matrix& values) {
  return std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
}

/// The expected bytes; a NaN in them would mean that the fences of Problem leak into the oracle.
std::vector<unsigned char> expected_bytes(const oracle::Matrix& values, DType type) {
  EXPECT_FALSE(has_nan(values)) << "the oracle gave a NaN";
  return encoded(values, type);
}

bool failed() {
  return testing::Test::HasFailure();
}

/// The same gradients from every variant of a backend: the first one's bytes, per backend and dw dtype.
class SameBits {
 public:
  void look(const Variant& variant, const Numbers& dw) {
    if (variant.backend->by_name_only) return;  // the model's order of a sum depends on its tiles
    for (const Entry& entry : seen_) {
      if (entry.backend != variant.backend || entry.type != dw.weights().type) continue;
      EXPECT_EQ(entry.bytes == dw.packed(), true) << "dw has other bits than on [" << entry.name << "]";
      return;
    }
    seen_.push_back({variant.backend, dw.weights().type, variant.name, dw.packed()});
  }

 private:
  struct Entry {
    const Backend* backend;
    DType type;
    std::string name;
    std::vector<unsigned char> bytes;
  };
  std::vector<Entry> seen_;
};

}  // namespace

void check_plan(const Problem& p) {
  const Sizes& s = p.c.sizes;
  for (const Variant& variant : variants_taking({p.c.policy == DropPolicy::by_weight ? p.c.weight_type : DType::f32})) {
    SCOPED_TRACE(variant.name);
    Numbers room(3 * (s.assignments() + s.num_experts), DType::f32, Memory::Use::output);  // six arrays, guarded
    auto* array = static_cast<int32_t*>(room.gradients().data);
    const int64_t n = s.assignments(), e = s.num_experts;
    const PlanView out = {s, array, array + n, array + 2 * n, array + 3 * n, array + 3 * n + e, array + 3 * n + 2 * e};
    plan(p.id_array.view(), p.c.policy, p.priority_view(), out, variant.context());
    EXPECT_TRUE(same_plan(out, p.plan));
    EXPECT_TRUE(room.surroundings_intact()) << "bytes outside the plan were written";
    const auto fault = check(out);
    EXPECT_FALSE(fault.has_value()) << describe(*fault);
    const Bins bins = {out.indices, out.bin_ids, out.bins[e - 1], out.bins, e};
    EXPECT_TRUE(same_plan(make_plan_from_bins(bins, s, variant.context()), p.plan)) << "from bins";
    if (failed()) return;
  }
}

void check_gather(const Problem& p) {
  const DType type = p.c.row_type;
  const auto plain = expected_bytes(oracle::gather(p.plan, p.x.values(), {}, p.c.hidden, type), type);
  const auto weighted =
      expected_bytes(oracle::gather(p.plan, p.x.values(), p.weights.values(), p.c.hidden, type), type);
  for (const Variant& variant : variants_taking({p.c.row_type, p.c.weight_type})) {
    SCOPED_TRACE(variant.name);
    for (const bool with_weights : {false, true}) {
      Tensor y = p.expert_rows_out();
      gather(p.plan_view(), p.x.view(), with_weights ? p.weights.weights() : Weights{}, y.view(), variant.context());
      EXPECT_TRUE(same_rows(y, with_weights ? weighted : plain)) << (with_weights ? "weighted" : "unweighted");
    }
    if (failed()) return;
  }
}

void check_scatter(const Problem& p) {
  const DType type = p.c.row_type;
  const auto plain = expected_bytes(oracle::scatter(p.plan, p.y.values(), {}, p.c.hidden, type), type);
  const auto weighted =
      expected_bytes(oracle::scatter(p.plan, p.y.values(), p.weights.values(), p.c.hidden, type), type);
  for (const Variant& variant : variants_taking({p.c.row_type, p.c.weight_type})) {
    SCOPED_TRACE(variant.name);
    for (const bool with_weights : {false, true}) {
      Tensor out = p.token_rows_out();
      scatter(p.plan_view(), p.y.view(), with_weights ? p.weights.weights() : Weights{}, out.view(), variant.context());
      EXPECT_TRUE(same_rows(out, with_weights ? weighted : plain)) << (with_weights ? "weighted" : "unweighted");
    }
    if (failed()) return;
  }
}

void check_wgrad(const Problem& p) {
  const oracle::Dots dots = oracle::wgrad(p.plan, p.y.values(), p.grad.values(), p.c.hidden);
  SameBits same_bits;
  for (const Variant& variant : variants_taking({p.c.row_type, p.c.weight_type})) {
    SCOPED_TRACE(variant.name);
    for (const DType dw_type : gradient_types(p.c)) {
      Numbers dw = p.gradients_out(dw_type);
      wgrad(p.plan_view(), p.y.view(), p.grad.view(), dw.gradients(), variant.context());
      EXPECT_TRUE(within_bound(dw, dots, p.plan, p.c.hidden, p.c.row_type)) << "dw in " << name_of(dw_type);
      same_bits.look(variant, dw);
    }
    if (failed()) return;
  }
}

void check_scatter_backward(const Problem& p) {
  const DType type = p.c.row_type;
  const auto plain = expected_bytes(oracle::gather(p.plan, p.grad.values(), {}, p.c.hidden, type), type);
  const auto weighted =
      expected_bytes(oracle::gather(p.plan, p.grad.values(), p.weights.values(), p.c.hidden, type), type);
  const oracle::Dots dots = oracle::wgrad(p.plan, p.y.values(), p.grad.values(), p.c.hidden);
  SameBits same_bits;
  for (const Variant& variant : variants_taking({p.c.row_type, p.c.weight_type})) {
    SCOPED_TRACE(variant.name);
    for (const bool with_weights : {false, true}) {
      const Weights weights = with_weights ? p.weights.weights() : Weights{};
      Tensor alone = p.expert_rows_out();
      scatter_backward(p.plan_view(), {}, p.grad.view(), weights, alone.view(), {}, variant.context());
      EXPECT_TRUE(same_rows(alone, with_weights ? weighted : plain)) << "dy without dw; weights: " << with_weights;
      for (const DType dw_type : gradient_types(p.c)) {
        Tensor dy = p.expert_rows_out();
        Numbers dw = p.gradients_out(dw_type), dw_alone = p.gradients_out(dw_type);
        scatter_backward(p.plan_view(), p.y.view(), p.grad.view(), weights, dy.view(), dw.gradients(),
                         variant.context());
        EXPECT_TRUE(same_rows(dy, with_weights ? weighted : plain)) << "dy with dw; weights: " << with_weights;
        EXPECT_TRUE(within_bound(dw, dots, p.plan, p.c.hidden, type)) << "dw in " << name_of(dw_type);
        wgrad(p.plan_view(), p.y.view(), p.grad.view(), dw_alone.gradients(), variant.context());
        same_bits.look(variant, dw);
        same_bits.look(variant, dw_alone);
      }
    }
    if (failed()) return;
  }
}

void check_gather_backward(const Problem& p) {
  const DType type = p.c.row_type;
  const auto plain = expected_bytes(oracle::scatter(p.plan, p.y.values(), {}, p.c.hidden, type), type);
  const auto weighted =
      expected_bytes(oracle::scatter(p.plan, p.y.values(), p.weights.values(), p.c.hidden, type), type);
  const oracle::Dots dots = oracle::wgrad(p.plan, p.y.values(), p.x.values(), p.c.hidden);
  SameBits same_bits;
  for (const Variant& variant : variants_taking({p.c.row_type, p.c.weight_type})) {
    SCOPED_TRACE(variant.name);
    for (const bool with_weights : {false, true}) {
      const Weights weights = with_weights ? p.weights.weights() : Weights{};
      Tensor alone = p.token_rows_out();
      gather_backward(p.plan_view(), p.y.view(), weights, {}, alone.view(), {}, variant.context());
      EXPECT_TRUE(same_rows(alone, with_weights ? weighted : plain)) << "dx without dw; weights: " << with_weights;
      Tensor dx = p.token_rows_out();
      Numbers dw = p.gradients_out(gradient_types(p.c).back());
      gather_backward(p.plan_view(), p.y.view(), weights, p.x.view(), dx.view(), dw.gradients(), variant.context());
      EXPECT_TRUE(same_rows(dx, with_weights ? weighted : plain)) << "dx with dw; weights: " << with_weights;
      EXPECT_TRUE(within_bound(dw, dots, p.plan, p.c.hidden, type));
      same_bits.look(variant, dw);
    }
    if (failed()) return;
  }
}

}  // namespace test
