// tests/data/vectors.json: small cases with exact answers, made by an independent program. Bit for bit on every
// variant.
#include <fstream>
#include <nlohmann/json.hpp>

#include "problem.h"

namespace test {
namespace {

using nlohmann::json;

void flatten_into(const json& value, oracle::Matrix& out) {
  if (value.is_array())
    for (const json& part : value) flatten_into(part, out);
  else
    out.push_back(value.get<double>());
}

oracle::Matrix flattened(const json& value) {
  oracle::Matrix out;
  flatten_into(value, out);
  return out;
}

std::vector<int32_t> integers(const json& value) {
  return value.get<std::vector<int32_t>>();
}

DType dtype_named(const std::string& name) {
  for (const DType type : kFloats)
    if (name == name_of(type)) return type;
  throw std::runtime_error("vectors.json has an unknown dtype: " + name);
}

DropPolicy policy_named(const std::string& name) {
  for (const DropPolicy policy : kPolicies)
    if (name == name_of(policy)) return policy;
  throw std::runtime_error("vectors.json has an unknown policy: " + name);
}

/// One entry of the file, decoded.
struct Vector {
  explicit Vector(const json& entry)
      : fields(entry),
        sizes{entry["tokens"], entry["top_k"], entry["num_experts"], entry["expert_capacity"]},
        hidden(entry["hidden_size"]),
        type(dtype_named(entry["dtype"])),
        policy(policy_named(entry["policy"])) {
    for (const double id : flattened(entry["expert_ids"])) ids.push_back(static_cast<int64_t>(id));
    const json& p = entry["plan"];
    plan = {sizes,
            integers(p["indices"]),
            integers(p["bin_ids"]),
            integers(p["row_of_assignment"]),
            integers(p["bins"]),
            integers(p["tokens_per_expert"]),
            {}};
    for (const int32_t count : plan.tokens_per_expert)
      plan.kept_per_expert.push_back(std::min(count, sizes.expert_capacity));
    plan.indices.resize(static_cast<size_t>(sizes.assignments()), -1);
    plan.bin_ids.resize(static_cast<size_t>(sizes.assignments()), sizes.num_experts);
  }

  bool has(const char* field) const { return fields.contains(field); }
  Tensor rows(const char* field, int64_t count) const {
    const oracle::Matrix values = flattened(fields[field]);
    Tensor out({count, hidden, type}, Memory::Use::input);
    EXPECT_EQ(static_cast<int64_t>(values.size()), count * hidden) << field;
    for (int64_t i = 0; i < count * hidden; ++i) out.set(i / hidden, i % hidden, values[static_cast<size_t>(i)]);
    return out;
  }
  std::vector<unsigned char> bytes(const char* field) const { return encoded(flattened(fields[field]), type); }

  json fields;
  Sizes sizes;
  int64_t hidden;
  DType type;
  DropPolicy policy;
  std::vector<int64_t> ids;
  oracle::Plan plan;
};

const std::vector<Vector>& vectors() {
  static const std::vector<Vector> loaded = [] {
    std::ifstream file(BINMOE_VECTORS);
    std::vector<Vector> out;
    for (const json& entry : json::parse(file)) out.emplace_back(entry);
    return out;
  }();
  return loaded;
}

Numbers weights_of(const Vector& v) {
  const oracle::Matrix values = v.has("weights") ? flattened(v.fields["weights"]) : oracle::Matrix();
  Numbers out(static_cast<int64_t>(values.size()), DType::f32, Memory::Use::input);
  for (size_t i = 0; i < values.size(); ++i) out.set(static_cast<int64_t>(i), values[i]);
  return out;
}

/// y as the file gives it, or the binned rows that `gather` gives.
Tensor given_rows(const Vector& v) {
  return v.rows(v.has("y") ? "y" : "gather", v.sizes.expert_rows());
}

TEST(Vectors, the_file_holds_its_sixteen_cases) {
  EXPECT_EQ(vectors().size(), 16u);
}

TEST(Vectors, the_oracle_agrees_with_the_file) {
  for (const Vector& v : vectors()) {
    SCOPED_TRACE(v.fields["name"]);
    const oracle::Matrix weights = v.has("weights") ? flattened(v.fields["weights"]) : oracle::Matrix();
    const oracle::Plan plan = oracle::plan_of(oracle::buckets(v.ids, v.sizes, v.policy, weights), v.sizes);
    EXPECT_TRUE(same_plan(view_of(plan), v.plan));
    EXPECT_EQ(encoded(oracle::scatter(plan, given_rows(v).values(), weights, v.hidden, v.type), v.type),
              v.bytes("scatter"));
  }
}

TEST(Vectors, plan_gives_the_expected_maps) {
  for (const Vector& v : vectors())
    for (const Variant& variant : variants()) {
      SCOPED_TRACE(v.fields["name"].get<std::string>() + " on " + variant.name);
      const Numbers weights = weights_of(v);
      const Weights priority = v.policy == DropPolicy::by_weight ? weights.weights() : Weights{};
      const IdArray ids(v.ids, IdType::i64);
      EXPECT_TRUE(same_plan(make_plan(ids.view(), v.sizes, v.policy, priority, variant.context()), v.plan));
    }
}

TEST(Vectors, gather_gives_the_expected_rows) {
  for (const Vector& v : vectors())
    for (const Variant& variant : variants()) {
      SCOPED_TRACE(v.fields["name"].get<std::string>() + " on " + variant.name);
      for (const char* field : {"gather", "gather_weighted"}) {
        if (!v.has(field)) continue;
        const Tensor x = v.rows("x", v.sizes.tokens);
        const Numbers weights = weights_of(v);
        Tensor y({v.sizes.expert_rows(), v.hidden, v.type}, Memory::Use::output);
        gather(view_of(v.plan), x.view(), std::string(field) == "gather" ? Weights{} : weights.weights(), y.view(),
               variant.context());
        EXPECT_TRUE(same_rows(y, v.bytes(field))) << field;
      }
    }
}

TEST(Vectors, scatter_and_both_backwards_give_the_expected_sums) {
  for (const Vector& v : vectors())
    for (const Variant& variant : variants()) {
      SCOPED_TRACE(v.fields["name"].get<std::string>() + " on " + variant.name);
      const Tensor y = given_rows(v);
      const Numbers weights = weights_of(v);
      const Weights given = v.has("weights") ? weights.weights() : Weights{};
      Tensor out({v.sizes.tokens, v.hidden, v.type}, Memory::Use::output);
      scatter(view_of(v.plan), y.view(), given, out.view(), variant.context());
      EXPECT_TRUE(same_rows(out, v.bytes("scatter")));
      Tensor dx({v.sizes.tokens, v.hidden, v.type}, Memory::Use::output);
      gather_backward(view_of(v.plan), y.view(), given, {}, dx.view(), {}, variant.context());
      EXPECT_TRUE(same_rows(dx, v.bytes("scatter"))) << "dx of gather backward";
    }
}

TEST(Vectors, wgrad_gives_the_expected_gradients_alone_and_in_one_pass) {
  for (const Vector& v : vectors()) {
    if (!v.has("wgrad")) continue;
    for (const Variant& variant : variants()) {
      SCOPED_TRACE(v.fields["name"].get<std::string>() + " on " + variant.name);
      const Tensor y = given_rows(v), grad = v.rows("grad", v.sizes.tokens);
      const auto expected = encoded(flattened(v.fields["wgrad"]), DType::f32);
      Numbers alone(v.sizes.assignments(), DType::f32, Memory::Use::output);
      wgrad(view_of(v.plan), y.view(), grad.view(), alone.gradients(), variant.context());
      EXPECT_EQ(alone.packed(), expected);
      Numbers together(v.sizes.assignments(), DType::f32, Memory::Use::output);
      Tensor dy({v.sizes.expert_rows(), v.hidden, v.type}, Memory::Use::output);
      scatter_backward(view_of(v.plan), y.view(), grad.view(), {}, dy.view(), together.gradients(), variant.context());
      EXPECT_EQ(together.packed(), expected) << "in scatter backward";
    }
  }
}

}  // namespace
}  // namespace test
