// Properties that hold for any routing, on every variant. rapidcheck prints the seed and the smallest counterexample.
#include <rapidcheck.h>

#include "problem.h"

namespace test {
namespace {

struct Routed {
  Sizes sizes;
  DropPolicy policy = DropPolicy::token_order;
  std::vector<int64_t> ids;
  std::vector<double> priority;
};

std::ostream& operator<<(std::ostream& out, const Routed& r) {
  out << "tokens=" << r.sizes.tokens << " top_k=" << r.sizes.top_k << " num_experts=" << r.sizes.num_experts
      << " expert_capacity=" << r.sizes.expert_capacity << " policy=" << name_of(r.policy) << " ids=";
  for (const int64_t id : r.ids) out << id << " ";
  return out;
}

Routed any_routing() {
  Routed r;
  r.sizes.top_k = *rc::gen::inRange(1, 6);
  r.sizes.num_experts = *rc::gen::inRange(1, 12);
  r.sizes.expert_capacity = *rc::gen::inRange(0, 12);
  r.policy = *rc::gen::elementOf(std::vector<DropPolicy>(std::begin(kPolicies), std::end(kPolicies)));
  r.sizes.tokens = *rc::gen::inRange(0, 60);
  const auto count = static_cast<size_t>(r.sizes.assignments());
  r.ids = *rc::gen::container<std::vector<int64_t>>(count, rc::gen::inRange<int64_t>(-1, r.sizes.num_experts));
  r.priority = *rc::gen::container<std::vector<double>>(
      count, rc::gen::map(rc::gen::inRange(-4, 5), [](int quarter) { return quarter / 4.0; }));
  return r;
}

Plan made(const Routed& r, const Variant& variant) {
  const IdArray ids(r.ids, IdType::i32);
  Numbers priority(r.sizes.assignments(), DType::f32, Memory::Use::input);
  for (size_t a = 0; a < r.priority.size(); ++a) priority.set(static_cast<int64_t>(a), r.priority[a]);
  return make_plan(ids.view(), r.sizes, r.policy, r.policy == DropPolicy::by_weight ? priority.weights() : Weights{},
                   variant.context());
}

/// Rows of small integers, so that every product and sum is exact.
Tensor integer_rows(int64_t rows, int64_t hidden, uint64_t seed) {
  Tensor out({rows, hidden, DType::f32}, Memory::Use::input);
  Random random(seed);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t h = 0; h < hidden; ++h) out.set(r, h, static_cast<double>(random.below(9) - 4));
  return out;
}

Numbers integer_weights(int64_t count, uint64_t seed) {
  Numbers out(count, DType::f32, Memory::Use::input);
  Random random(seed);
  for (int64_t a = 0; a < count; ++a) out.set(a, static_cast<double>(random.below(5) - 2));
  return out;
}

double dot(const Tensor& a, const Tensor& b) {
  const oracle::Matrix left = a.values(), right = b.values();
  double total = 0;
  for (size_t i = 0; i < left.size(); ++i) total += left[i] * right[i];
  return total;
}

template <class Property>
void holds(const char* description, const Property& property) {
  EXPECT_TRUE(rc::check(description, [&] {
    const Routed r = *rc::gen::exec(any_routing);
    RC_TAG(name_of(r.policy));
    for (const Variant& variant : variants()) property(r, variant);
  }));
}

TEST(Property, rows_and_assignments_are_inverse_maps) {
  holds("row_of_assignment and indices are inverse", [](const Routed& r, const Variant& variant) {
    const Plan plan = made(r, variant);
    int64_t rows = 0;
    for (int32_t e = 0; e < r.sizes.num_experts; ++e) {
      const auto i = static_cast<size_t>(e);
      const int32_t begin = plan.bins()[i] - plan.tokens_per_expert()[i];
      for (int32_t c = 0; c < plan.kept_per_expert()[i]; ++c, ++rows) {
        const int32_t a = plan.indices()[static_cast<size_t>(begin + c)];
        RC_ASSERT(plan.row_of_assignment()[static_cast<size_t>(a)] == e * r.sizes.expert_capacity + c);
        RC_ASSERT(r.ids[static_cast<size_t>(a)] == e);
      }
    }
    for (const int32_t row : plan.row_of_assignment()) rows -= row >= 0;
    RC_ASSERT(rows == 0);
  });
}

TEST(Property, kept_and_dropped_and_masked_are_all_assignments) {
  holds("kept + dropped + masked = T*K", [](const Routed& r, const Variant& variant) {
    const Plan plan = made(r, variant);
    const Load load = load_of(plan);
    RC_ASSERT(load.kept + load.dropped + load.masked == r.sizes.assignments());
    RC_ASSERT(load.kept + load.empty_rows == r.sizes.expert_rows());
    RC_ASSERT(load.kept + load.dropped == plan.count());
    RC_ASSERT(!check(plan).has_value());
  });
}

TEST(Property, gather_and_scatter_are_adjoint) {
  holds("<gather(x), y> = <x, scatter(y)>", [](const Routed& r, const Variant& variant) {
    const Plan plan = made(r, variant);
    const int64_t hidden = 19;
    const Tensor x = integer_rows(r.sizes.tokens, hidden, 1), y = integer_rows(r.sizes.expert_rows(), hidden, 2);
    const Numbers weights = integer_weights(r.sizes.assignments(), 3);
    for (const Weights& w : {Weights{}, weights.weights()}) {
      Tensor gathered(y.shape(), Memory::Use::output), scattered(x.shape(), Memory::Use::output);
      gather(plan, x.view(), w, gathered.view(), variant.context());
      scatter(plan, y.view(), w, scattered.view(), variant.context());
      RC_ASSERT(dot(gathered, y) == dot(x, scattered));
    }
  });
}

TEST(Property, wgrad_is_the_derivative_of_the_weighted_sum) {
  holds("sum w * wgrad(y, g) = <scatter(y, w), g>", [](const Routed& r, const Variant& variant) {
    const Plan plan = made(r, variant);
    const int64_t hidden = 19;
    const Tensor grad = integer_rows(r.sizes.tokens, hidden, 1), y = integer_rows(r.sizes.expert_rows(), hidden, 2);
    const Numbers weights = integer_weights(r.sizes.assignments(), 3);
    Numbers dw(r.sizes.assignments(), DType::f32, Memory::Use::output);
    Tensor out(grad.shape(), Memory::Use::output);
    wgrad(plan, y.view(), grad.view(), dw.gradients(), variant.context());
    scatter(plan, y.view(), weights.weights(), out.view(), variant.context());
    double total = 0;
    for (int64_t a = 0; a < r.sizes.assignments(); ++a) total += weights.get(a) * dw.get(a);
    RC_ASSERT(total == dot(out, grad));
  });
}

TEST(Property, under_token_order_later_tokens_never_change_earlier_ones) {
  holds("the rows of the first tokens do not depend on later ones", [](const Routed& any, const Variant& variant) {
    Routed whole = any;
    whole.policy = DropPolicy::token_order;
    const Plan full = made(whole, variant);
    Routed part = whole;
    part.sizes.tokens = whole.sizes.tokens / 2;
    part.ids.resize(static_cast<size_t>(part.sizes.assignments()));
    part.priority.resize(part.ids.size());
    const Plan early = made(part, variant);
    for (size_t a = 0; a < part.ids.size(); ++a) RC_ASSERT(early.row_of_assignment()[a] == full.row_of_assignment()[a]);
  });
}

TEST(Property, the_cut_keeps_the_best_by_weight) {
  holds("no dropped assignment outweighs a kept one of its expert", [](const Routed& any, const Variant& variant) {
    Routed r = any;
    r.policy = DropPolicy::by_weight;
    const Plan plan = made(r, variant);
    for (size_t a = 0; a < r.ids.size(); ++a)
      for (size_t b = 0; b < r.ids.size(); ++b)
        if (r.ids[a] >= 0 && r.ids[a] == r.ids[b] && plan.row_of_assignment()[a] >= 0 &&
            plan.row_of_assignment()[b] < 0)
          RC_ASSERT(r.priority[a] > r.priority[b] || (r.priority[a] == r.priority[b] && a < b));
  });
}

}  // namespace
}  // namespace test
