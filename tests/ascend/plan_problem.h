// Plans on the model against the reference: a case, the two runs, the comparison. For plan_kernels_test.cc.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ascend/model/run_plan.h"
#include "backend.h"
#include "numeric.h"

namespace binmoe::ascend {
namespace {

using vector_core::Machine;

constexpr DropPolicy kPolicies[] = {DropPolicy::token_order, DropPolicy::choice_order, DropPolicy::by_weight};
constexpr IdType kIdTypes[] = {IdType::i8, IdType::u8, IdType::i16, IdType::u16, IdType::i32, IdType::i64};
constexpr DType kPriorities[] = {DType::f32, DType::bf16, DType::f16};
constexpr int64_t kUb = 192 * 1024 - 256 - 8 * 1024;
constexpr int64_t kSmallUb = 24 * 1024;  // many blocks, expert tiles and groups with few assignments

enum class Routing { random, masked_often, one_expert, all_masked, round_robin };

struct Case {
  Sizes sizes;
  IdType ids = IdType::i32;
  DropPolicy policy = DropPolicy::token_order;
  DType priority = DType::f32;
  Routing routing = Routing::random;
  int32_t programs = 7;
  int64_t ub = kUb;
  uint64_t seed = 1;
};

std::string describe(const Case& c) {
  return "T=" + std::to_string(c.sizes.tokens) + " K=" + std::to_string(c.sizes.top_k) +
         " E=" + std::to_string(c.sizes.num_experts) + " C=" + std::to_string(c.sizes.expert_capacity) + " " +
         name_of(c.ids) + " " + name_of(c.policy) + " priority " + name_of(c.priority) + " routing " +
         std::to_string(static_cast<int>(c.routing)) + " programs " + std::to_string(c.programs) + " UB " +
         std::to_string(c.ub) + " seed " + std::to_string(c.seed);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  int64_t below(int64_t limit) {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<int64_t>(((z ^ (z >> 31)) >> 1) % static_cast<uint64_t>(limit));
  }

 private:
  uint64_t state_;
};

bool is_signed(IdType type) {
  return type != IdType::u8 && type != IdType::u16;
}

int64_t largest_id(IdType type) {
  const int64_t bits = size_of(type) * 8;
  return bits == 64 ? INT64_MAX : (int64_t{1} << (bits - is_signed(type))) - 1;
}

/// Arrays of exact size on the heap: a sanitizer sees the first byte past them.
class Bytes {
 public:
  explicit Bytes(int64_t bytes) : data_(new unsigned char[static_cast<size_t>(bytes)]) {}
  unsigned char* data() const { return data_.get(); }

 private:
  std::unique_ptr<unsigned char[]> data_;
};

Bytes encode_ids(const std::vector<int64_t>& ids, IdType type) {
  Bytes out(static_cast<int64_t>(ids.size()) * size_of(type));
  const auto size = static_cast<size_t>(size_of(type));
  for (size_t i = 0; i < ids.size(); ++i) std::memcpy(out.data() + i * size, &ids[i], size);  // little-endian
  return out;
}

std::vector<int64_t> make_ids(const Case& c, Random& random) {
  const int64_t experts = std::min<int64_t>(c.sizes.num_experts, std::min<int64_t>(largest_id(c.ids), INT32_MAX) + 1);
  std::vector<int64_t> ids(static_cast<size_t>(c.sizes.assignments()));
  int64_t a = 0;
  for (int64_t& id : ids) {
    id = random.below(experts);
    if (c.routing == Routing::one_expert) id = experts - 1;
    if (c.routing == Routing::round_robin) id = a++ % experts;
    const bool is_masked =
        c.routing == Routing::all_masked || random.below(c.routing == Routing::masked_often ? 2 : 10) == 0;
    if (is_signed(c.ids) && is_masked && c.routing != Routing::round_robin) id = -1;
  }
  return ids;
}

/// Few different values, so that there are ties; both zeros, both infinities, subnormals, NaN of both signs.
float make_priority(Random& random) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kSpecial[] = {0.0f, -0.0f, kInfinity, -kInfinity, 1e-40f, -1e-40f, 6e-8f, -6e-8f};
  const int64_t choice = random.below(20);
  if (choice == 0) return std::copysign(std::numeric_limits<float>::quiet_NaN(), random.below(2) == 0 ? 1.0f : -1.0f);
  if (choice <= 3) return kSpecial[random.below(8)];
  const auto value = static_cast<float>(random.below(choice < 10 ? 4 : 100000)) / 1024.0f;
  return random.below(2) == 0 ? value : -value;
}

Bytes make_priorities(int64_t count, DType type, Random& random) {
  Bytes out(count * size_of(type));
  for (int64_t i = 0; i < count; ++i) numeric::store(out.data(), type, i, make_priority(random));
  return out;
}

/// Six arrays; what a plan does not write shows.
struct Arrays {
  explicit Arrays(const Sizes& s)
      : indices(static_cast<size_t>(s.assignments()), -77),
        bin_ids(indices),
        rows(indices),
        bins(static_cast<size_t>(s.num_experts), -77),
        tokens(bins),
        kept(bins) {}
  PlanView view(const Sizes& s) {
    return {s, indices.data(), bin_ids.data(), rows.data(), bins.data(), tokens.data(), kept.data()};
  }

  std::vector<int32_t> indices, bin_ids, rows, bins, tokens, kept;
};

testing::AssertionResult same(const char* name, const std::vector<int32_t>& actual,
                              const std::vector<int32_t>& expected) {
  for (size_t i = 0; i < actual.size(); ++i)
    if (actual[i] != expected[i])
      return testing::AssertionFailure() << name << "[" << i << "] is " << actual[i] << ", not " << expected[i];
  return testing::AssertionSuccess();
}

void expect_same(const Arrays& actual, const Arrays& expected) {
  EXPECT_TRUE(same("bins", actual.bins, expected.bins));
  EXPECT_TRUE(same("tokens_per_expert", actual.tokens, expected.tokens));
  EXPECT_TRUE(same("kept_per_expert", actual.kept, expected.kept));
  EXPECT_TRUE(same("indices", actual.indices, expected.indices));
  EXPECT_TRUE(same("bin_ids", actual.bin_ids, expected.bin_ids));
  EXPECT_TRUE(same("row_of_assignment", actual.rows, expected.rows));
}

Soc soc_of(const Case& c) {
  return {"test", "A2", c.programs, kUb, c.ub, "none"};
}

vector_core::Profile profile_of(const Soc& soc) {
  vector_core::Profile profile;
  profile.vector_cores = soc.vector_cores;
  profile.ub_bytes = soc.ub_limit_bytes;
  return profile;
}

/// The budget of the launch of that name.
int64_t planned_bytes(const PlanTiling& plan, const std::string& kernel) {
  for (const PlanLaunch& launch : plan.launches)
    if (launch.kernel == kernel) return launch.ub_bytes;
  return -1;
}

void expect_exact_budgets(const Machine& machine, const PlanTiling& plan) {
  size_t launches = 0;
  for (const PlanLaunch& launch : plan.launches) launches += static_cast<size_t>(launch.launches);
  EXPECT_EQ(machine.launches().size(), launches);
  for (const vector_core::Launch& launch : machine.launches()) {
    EXPECT_EQ(launch.ub_high_water, planned_bytes(plan, launch.kernel)) << launch.kernel;
    EXPECT_LE(launch.ub_high_water, plan.ub_limit_bytes) << launch.kernel;
  }
}

/// Run `ids` on the model. The reference sees `reference_ids`, as int64; they differ where an id is out of range.
void check(const Case& c, const std::vector<int64_t>& ids, const std::vector<int64_t>& reference_ids, Random& random) {
  SCOPED_TRACE(describe(c));
  const int64_t count = c.sizes.assignments();
  const Bytes id_bytes = encode_ids(ids, c.ids), reference_bytes = encode_ids(reference_ids, IdType::i64);
  const bool by_weight = c.policy == DropPolicy::by_weight;
  const Bytes priorities = make_priorities(by_weight ? count : 0, c.priority, random);
  PlanJob job;
  job.policy = c.policy;
  if (by_weight) job.priority = {priorities.data(), count, c.priority};
  Arrays expected(c.sizes), actual(c.sizes);
  job.ids = {reference_bytes.data(), count, IdType::i64};
  job.out = expected.view(c.sizes);
  const Resources resources{default_executor(), "", nullptr, 0};
  ASSERT_FALSE(reference_backend().operations->plan(job, resources).has_value());

  const Soc soc = soc_of(c);
  Machine machine(profile_of(soc));
  job.ids = {id_bytes.data(), count, c.ids};
  job.out = actual.view(c.sizes);
  try {
    run_plan(machine, soc, job);
    for (const char* output :
         {"indices", "bin_ids", "row_of_assignment", "bins", "tokens_per_expert", "kept_per_expert"})
      machine.expect_written_once(output);
  } catch (const vector_core::ModelFault& fault) {
    FAIL() << fault.what();
  }
  expect_same(actual, expected);
  expect_exact_budgets(machine, plan_tiling(request_of(soc, job)));
}

void check(const Case& c) {
  Random random(c.seed);
  const std::vector<int64_t> ids = make_ids(c, random);
  check(c, ids, ids, random);
}

/// Cases in every policy, with priorities in turn; until one fails.
void check_policies(Case c) {
  for (const DropPolicy policy : kPolicies) {
    c.policy = policy;
    c.priority = kPriorities[c.seed % 3];
    check(c);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace binmoe::ascend
