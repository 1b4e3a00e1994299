// Cases too large for `make test` (ctest label long): wider sweeps, and tensors past 2^31 elements.
#include <sys/sysinfo.h>

#include <fstream>

#include "problem.h"

namespace test {
namespace {

TEST(Long, wide_sweep_of_random_cases) {
  Random random(2024);
  const int count = kThorough ? 600 : 60;
  for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
    Case c;
    c.sizes = {random.below(120), static_cast<int32_t>(1 + random.below(9)), static_cast<int32_t>(1 + random.below(40)),
               static_cast<int32_t>(random.below(40))};
    c.hidden = random.below(300);
    c.row_type = kFloats[random.below(4)];
    c.weight_type = kFloats[random.below(4)];
    if (c.weight_type == DType::f64 && c.row_type != DType::f64) c.weight_type = DType::f16;
    c.id_type = kIdTypes[random.below(6)];
    c.policy = kPolicies[random.below(3)];
    c.gap = random.below(2) * random.below(70);
    c.offset_bytes = random.below(65);
    c.seed = random.bits() % 100000;
    SCOPED_TRACE(describe(c));
    const Problem p(c);
    check_plan(p);
    for (const Check check : kMoverChecks) check(p);
  }
}

TEST(Long, a_million_assignments_under_every_policy) {
  for (const DropPolicy policy : kPolicies)
    for (const int32_t experts : {8, 257, 4096}) {
      const Case c = {.sizes = {131072, 8, experts, 3000}, .hidden = 0, .policy = policy};
      if (c.sizes.expert_rows() > 13000000) continue;
      SCOPED_TRACE(describe(c));
      check_plan(Problem(c));
      if (testing::Test::HasFailure()) return;
    }
}

TEST(Long, wide_rows_of_many_tokens_in_every_dtype) {
  std::vector<Case> cases;
  for (const DType type : kFloats) cases.push_back({.sizes = {512, 4, 32, 80}, .hidden = 2880, .row_type = type});
  if (!kThorough) cases.resize(1);
  for (const Check check : kMoverChecks)
    if (!testing::Test::HasFailure()) sweep(cases, check);
}

int64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  int64_t kilobytes = 0;
  while (file >> word)
    if (word == "MemAvailable:" && file >> kilobytes) return kilobytes * 1024;
  return 0;
}

/// E = 2, C = 32769, H = 32768: the last rows of y lie past 2^31 elements. Six assignments: the first two and the last
/// row of each expert cannot be filled without C tokens, so the plan is given whole, with the edges used.
struct PastLimit {
  static constexpr int32_t kCapacity = 32769, kHidden = 32768;
  PastLimit() : sizes{2 * kCapacity, 1, 2, kCapacity} {
    std::vector<std::vector<int32_t>> bucket(2);
    for (int32_t a = 0; a < 2 * kCapacity; ++a) bucket[static_cast<size_t>(a % 2)].push_back(a);
    plan = oracle::plan_of(bucket, sizes);
  }
  Sizes sizes;
  oracle::Plan plan;
};

/// The bf16 that stands at (token, column): small integers, so that nothing is rounded.
uint16_t element(int64_t token, int64_t column) {
  const int64_t value = (token * 7 + column * 3) % 127 + 1;
  return static_cast<uint16_t>(oracle::encode(static_cast<double>(value), oracle::format_of(DType::bf16)));
}

TEST(Long, offsets_past_two_to_the_31_elements) {
  const PastLimit p;
  // x has one row that all tokens share (stride 0 is legal for inputs), so that only y is large.
  const int64_t elements = p.sizes.expert_rows() * PastLimit::kHidden;
  const int64_t wanted = elements * 2 + (int64_t{1} << 30);
  if (available_bytes() < wanted)
    GTEST_SKIP() << "needs " << wanted << " bytes of free memory, and there are " << available_bytes();
  if (!kThorough) GTEST_SKIP() << "runs without sanitizers and emulators only: it moves 4.3 GB for each variant";
  const auto y = std::make_unique<uint16_t[]>(static_cast<size_t>(elements));
  std::vector<uint16_t> x(PastLimit::kHidden), sums(PastLimit::kHidden);
  for (int64_t h = 0; h < PastLimit::kHidden; ++h) x[static_cast<size_t>(h)] = element(0, h);
  const ConstRows x_view = {x.data(), p.sizes.tokens, PastLimit::kHidden, 0, DType::bf16};
  const Rows y_view = {y.get(), p.sizes.expert_rows(), PastLimit::kHidden, PastLimit::kHidden, DType::bf16};
  for (const Variant& variant : variants()) {
    if (variant.name.find("threads=2") == std::string::npos && !variant.is_reference()) continue;
    SCOPED_TRACE(variant.name);
    std::fill_n(y.get(), elements, uint16_t{0xffff});
    gather(view_of(p.plan), x_view, {}, y_view, variant.context());
    int64_t wrong_rows = 0;
    for (int64_t r = 0; r < p.sizes.expert_rows(); ++r)
      wrong_rows += std::memcmp(y.get() + r * PastLimit::kHidden, x.data(), x.size() * 2) != 0;
    ASSERT_EQ(wrong_rows, 0) << "of " << p.sizes.expert_rows() << " rows after gather";
    // Two tokens read rows at both ends: a plan for scatter and wgrad that names the first and the very last row.
    const Sizes few = {2, 1, 2, PastLimit::kCapacity};
    oracle::Plan ends;
    ends.sizes = few;
    ends.indices = {0, 1};
    ends.bin_ids = {0, 1};
    ends.bins = {1, 2};
    ends.tokens_per_expert = {1, 1};
    ends.kept_per_expert = {1, 1};
    ends.row_of_assignment = {0, 2 * PastLimit::kCapacity - 1};
    for (int64_t h = 0; h < PastLimit::kHidden; ++h)
      y[static_cast<size_t>(elements - PastLimit::kHidden + h)] = element(5, h);
    Tensor out({2, PastLimit::kHidden, DType::bf16}, Memory::Use::output);
    scatter(view_of(ends), y_view, {}, out.view(), variant.context());
    int64_t wrong = 0;
    for (int64_t h = 0; h < PastLimit::kHidden; ++h) {
      wrong += oracle::bits_at(out.row(0), h, 2) != element(0, h);
      wrong += oracle::bits_at(out.row(1), h, 2) != element(5, h);
    }
    ASSERT_EQ(wrong, 0) << "elements after scatter";
    Tensor grad({2, PastLimit::kHidden, DType::bf16}, Memory::Use::input);
    for (int64_t h = 0; h < PastLimit::kHidden; ++h) {
      grad.set(0, h, 0.0);
      grad.set(1, h, h == PastLimit::kHidden - 1 ? 1.0 : 0.0);
    }
    Numbers dw(2, DType::f32, Memory::Use::output);
    wgrad(view_of(ends), y_view, grad.view(), dw.gradients(), variant.context());
    EXPECT_EQ(dw.get(0), 0.0);
    EXPECT_EQ(dw.get(1), oracle::decode(element(5, PastLimit::kHidden - 1), oracle::format_of(DType::bf16)));
  }
}

}  // namespace
}  // namespace test
