// The mover kernels on the vector-core model against the reference backend: the same bits, each output byte written
// once, no byte read more often than the operation needs, and UB budgets exact to the byte.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "mover_problem.h"

namespace test {
namespace {

using ascend::Soc;
using vector_core::Machine;

constexpr int64_t kUb = 192 * 1024 - 256 - 8 * 1024;
constexpr int64_t kSubBlock = 32;  // positions of a sub-block in expert order

using Values = MoverProblem::Values;

/// dw within H * 2^-24 * sum |y * grad| of the exact dot, rounded once; +0 without a row.
testing::AssertionResult within_bound(const MoverProblem& p, const Numbers& dw) {
  const oracle::Format format = oracle::format_of(p.c.dw);
  const auto size = static_cast<size_t>(size_of(p.c.dw));
  const std::vector<unsigned char> bytes = dw.packed();
  for (int64_t a = 0; a < p.c.sizes.assignments(); ++a) {
    const int32_t row = p.plan.row_of_assignment()[static_cast<size_t>(a)];
    const double actual = dw.get(a);
    if (row < 0) {
      for (size_t i = 0; i < size; ++i)
        if (bytes[static_cast<size_t>(a) * size + i] != 0)
          return testing::AssertionFailure() << "dw[" << a << "] is " << actual << ", but the assignment has no row";
      continue;
    }
    double exact = 0, magnitude = 0;
    for (int64_t h = 0; h < p.c.hidden; ++h) {
      const double product = p.y.get(row, h) * p.grad.get(a / p.c.sizes.top_k, h);
      exact += product;
      magnitude += std::fabs(product);
    }
    const double bound = static_cast<double>(p.c.hidden) * 0x1p-24 * magnitude;
    if (!(actual >= oracle::rounded(exact - bound, format) && actual <= oracle::rounded(exact + bound, format)))
      return testing::AssertionFailure() << "dw[" << a << "] is " << actual << ", not " << exact << " +- " << bound;
  }
  return testing::AssertionSuccess();
}

struct Reads {
  const char* tensor;
  int64_t bytes;
};

/// What must be read, and is read once: live rows, and the maps of assignments. Expert order reads the row of a token
/// for each of its kept rows.
std::vector<Reads> needed_reads(const MoverProblem& p, Mover mover, const ascend::MoverPlan& plan) {
  const Sizes& s = p.c.sizes;
  const int64_t used = p.used * p.row_bytes(), kept = p.kept * p.row_bytes(),
                weight = size_of(p.c.weights.value_or(DType::f32));
  const Reads map = {"row_of_assignment", s.assignments() * 4};
  const Reads weights = {"weights", p.c.weights ? s.assignments() * weight : 0};
  switch (mover) {
    case Mover::gather_by_token:
      return {{"x", used}, map, weights};
    case Mover::gather_by_expert:
      return {{"x", kept},
              {"indices", p.plan.count() * 4},
              {"weights", p.c.weights ? p.kept * weight * plan.mover.num_tiles : 0}};
    case Mover::scatter:
      return {{"y", kept}, map, weights};
    case Mover::wgrad:
      return {{"y", kept}, {"grad", used}, map};
    case Mover::scatter_backward:
      return {{"y", kept}, {"grad", used}, map, weights};
  }
  return {};
}

void check_figures(const Machine& machine, const MoverProblem& p, Mover mover, const ascend::MoverPlan& plan,
                   const MoverOutput& output) {
  ASSERT_EQ(machine.launches().size(), 1u);
  EXPECT_EQ(machine.launches()[0].ub_high_water, plan.ub_bytes);
  EXPECT_LE(plan.ub_bytes, plan.ub_limit_bytes);
  EXPECT_EQ(machine.launches()[0].cores.size(), static_cast<size_t>(plan.num_programs));
  for (const Reads& reads : needed_reads(p, mover, plan))
    EXPECT_EQ(machine.read_bytes(reads.tensor), reads.bytes) << "bytes read of " << reads.tensor;
  if (output.rows) {
    EXPECT_EQ(machine.written(output.rows_name), row_ranges(output));
    EXPECT_EQ(machine.written_bytes(output.rows_name), output.rows->shape().rows * p.row_bytes());
  }
}

void check(const MoverProblem& p, Mover mover, const Soc& soc) {
  SCOPED_TRACE(std::string(name_of(mover)) + " on " + soc.name + ": " + describe(p.c));
  MoverOutput expected = run_on_reference(p, mover), actual = empty_output(p, mover);
  const ascend::MoverPlan plan = ascend::mover_plan(request_of(p, mover, soc));
  Machine machine(ascend::profile_of(soc));
  try {
    run_on_model(machine, plan, p, mover, actual);
    expect_written_once(machine, actual);
  } catch (const vector_core::ModelFault& fault) {
    FAIL() << fault.what();
  }
  if (actual.rows) {
    EXPECT_TRUE(same_rows(*actual.rows, expected.rows->packed()));
  }
  if (actual.dw) {
    EXPECT_TRUE(within_bound(p, *actual.dw));
    EXPECT_TRUE(actual.dw->surroundings_intact());
  }
  check_figures(machine, p, mover, plan, actual);
}

void check_movers(const MoverCase& c, const std::vector<int32_t>& ids, const Soc& soc) {
  const MoverProblem p(c, ids);
  for (const Mover mover : kMovers) {
    check(p, mover, soc);
    if (testing::Test::HasFailure()) return;
  }
}

void check_movers(const MoverCase& c, const Soc& soc) {
  Random random(c.seed);
  check_movers(c, random_ids(c.sizes, random), soc);
}

/// A case for each seed in turn: dtypes, weights and gaps go round.
MoverCase varied(const Sizes& sizes, uint64_t seed) {
  MoverCase c;
  c.sizes = sizes;
  c.seed = seed;
  c.rows = kDeviceFloats[seed % 3];
  if (seed / 3 % 2 == 1) c.weights = kDeviceFloats[seed / 6 % 3];
  c.dw = kDeviceFloats[seed / 2 % 3];
  c.gap = seed % 4 == 3 ? 5 : 0;
  return c;
}

TEST(Movers, equal_the_reference_for_every_dtype_of_rows_weights_and_dw) {
  uint64_t seed = 0;
  for (const DType rows : kDeviceFloats)
    for (int weights = -1; weights < 3; ++weights)
      for (const DType dw : kDeviceFloats)
        for (const int64_t gap : {0, 1, 18}) {
          MoverCase c;
          c.sizes = {61, 3, 5, 29};
          c.rows = rows;
          if (weights >= 0) c.weights = kDeviceFloats[weights];
          c.dw = dw;
          c.gap = gap;
          c.seed = ++seed;
          check_movers(c, small_chip(3, kUb));
          if (HasFailure()) return;
        }
}

TEST(Movers, equal_the_reference_on_every_chip) {
  uint64_t seed = 0;
  for (const Soc& soc : ascend::socs())
    for (int i = 0; i < 3; ++i) {
      check_movers(varied({700, 2, 11, 120}, ++seed), soc);
      if (HasFailure()) return;
    }
}

TEST(Movers, take_rows_of_any_length) {
  uint64_t seed = 0;
  for (const int64_t hidden : {1, 2, 7, 46, 127, 128, 2880, 7169, 20001})
    for (const DType rows : kDeviceFloats)
      for (const bool weighted : {false, true})
        for (const int64_t gap : {0, 3}) {
          MoverCase c = varied({5, 3, 4, 3}, ++seed);
          c.hidden = hidden;
          c.rows = rows;
          c.gap = gap;
          c.weights.reset();
          if (weighted) c.weights = kDeviceFloats[seed % 3];
          check_movers(c, small_chip(2, kUb));
          if (HasFailure()) return;
        }
}

TEST(Movers, take_rows_without_columns) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    MoverCase c = varied({20, 2, 3, 4}, seed);
    c.hidden = 0;
    check_movers(c, small_chip(2, kUb));
    if (HasFailure()) return;
  }
}

TEST(Movers, take_any_number_of_choices) {
  uint64_t seed = 0;
  for (const int32_t top_k : {1, 2, 3, 8, 9, 33, 129, 300})
    for (const int64_t tokens : {1, 2, 9, 40})
      for (int i = 0; i < 3; ++i) {
        if (tokens * top_k > 1500) continue;
        MoverCase c = varied({tokens, top_k, 7, static_cast<int32_t>(tokens * top_k / 8 + 1)}, ++seed);
        c.hidden = i == 2 ? 700 : 46;
        check_movers(c, small_chip(2, i == 1 ? 40 * 1024 : kUb));
        if (HasFailure()) return;
      }
}

TEST(Movers, cut_at_a_capacity_that_is_one_short_met_or_one_over) {
  uint64_t seed = 0;
  for (const int64_t count : {1, 31, 32, 33, 64})
    for (int32_t capacity = static_cast<int32_t>(count) - 1; capacity <= count + 1; ++capacity)
      for (int i = 0; i < 6; ++i) {
        const MoverCase c = varied({count * 2, 2, 4, capacity}, ++seed);
        Random random(seed);
        check_movers(c, counted_ids(c.sizes, {count, count, count, count}, random), small_chip(2, kUb));
        if (HasFailure()) return;
      }
}

TEST(Movers, change_the_expert_at_every_place_of_a_sub_block) {
  uint64_t seed = 0;
  for (int64_t first = 0; first <= kSubBlock; ++first)
    for (int64_t second = first; second <= kSubBlock; ++second) {
      MoverCase c = varied({30, 3, 4, 100}, ++seed);
      c.sizes.expert_capacity = seed % 2 == 0 ? 100 : 7;  // dropped tails stand in the sub-block too
      c.hidden = 9;
      Random random(seed);
      const MoverProblem p(c, counted_ids(c.sizes, {first, second - first, 0, 80 - second}, random));
      check(p, Mover::gather_by_expert, small_chip(seed % 3 == 0 ? 1 : 2, kUb));
      if (HasFailure()) return;
    }
}

TEST(Movers, skip_empty_experts_between_full_ones) {
  uint64_t seed = 0;
  for (const int32_t capacity : {3, 20, 41})
    for (const std::vector<int64_t>& counts : {std::vector<int64_t>{0, 20, 0, 0, 20, 0},
                                               {20, 0, 0, 20, 0, 20},
                                               {0, 0, 0, 0, 0, 60},
                                               {60, 0, 0, 0, 0, 0},
                                               {1, 0, 1, 0, 0, 1}})
      for (int i = 0; i < 6; ++i) {
        const MoverCase c = varied({30, 2, 6, capacity}, ++seed);
        Random random(seed);
        check_movers(c, counted_ids(c.sizes, counts, random), small_chip(2, kUb));
        if (HasFailure()) return;
      }
}

TEST(Movers, take_more_capacity_than_tokens_no_capacity_no_tokens_and_only_masked_ones) {
  uint64_t seed = 0;
  for (const Sizes& sizes : {Sizes{9, 2, 3, 50}, Sizes{9, 2, 3, 0}, Sizes{0, 2, 3, 5}, Sizes{0, 1, 1, 0},
                             Sizes{1, 1, 1, 1}, Sizes{3, 1, 30, 40}, Sizes{40, 1, 2500, 1}})
    for (int i = 0; i < 6; ++i) {
      const MoverCase c = varied(sizes, ++seed);
      check_movers(c, small_chip(3, kUb));
      check_movers(c, std::vector<int32_t>(static_cast<size_t>(sizes.assignments()), -1), small_chip(3, kUb));
      if (HasFailure()) return;
    }
}

TEST(Movers, take_more_experts_than_are_staged_at_a_time) {
  uint64_t seed = 0;
  for (const int32_t experts : {1024, 1025, 4096, 4097, 8200, 30000})
    for (int i = 0; i < 4; ++i) {
      MoverCase c = varied({70, 2, experts, i % 2}, ++seed);
      c.hidden = 5;
      c.gap = 0;
      check_movers(c, small_chip(2, kUb));
      if (HasFailure()) return;
    }
}

TEST(Movers, take_tokens_around_the_borders_of_blocks) {
  uint64_t seed = 0;
  for (const int64_t border : {8, 16, 24, 32, 40, 48, 64, 80})  // 2 programs, blocks of 8 tokens
    for (int64_t tokens = border - 1; tokens <= border + 1; ++tokens)
      for (int i = 0; i < 3; ++i) {
        check_movers(varied({tokens, 2, 5, static_cast<int32_t>(tokens / 3)}, ++seed), small_chip(2, kUb));
        if (HasFailure()) return;
      }
}

TEST(Movers, equal_the_reference_in_random_cases_on_chips_of_any_size) {
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    Random random(seed);
    const auto top_k = static_cast<int32_t>(1 + random.below(random.below(5) == 0 ? 40 : 6));
    MoverCase c = varied({random.below(160 / top_k + 2), top_k, static_cast<int32_t>(1 + random.below(9)),
                          static_cast<int32_t>(random.below(30))},
                         seed);
    c.hidden = 1 + random.below(random.below(4) == 0 ? 3000 : 200);
    const int64_t ub = random.below(2) == 0 ? kUb : (48 + random.below(40)) * 1024;
    check_movers(c, random_ids(c.sizes, random, random.below(3) * 4),
                 small_chip(static_cast<int32_t>(1 + random.below(5)), ub));
    if (HasFailure()) return;
  }
}

/// Rows that are copied, and not computed, keep signalling NaN and every other pattern.
TEST(Movers, copy_rows_bit_by_bit_where_there_are_no_weights) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    MoverCase c = varied({40, 2, 3, 30}, seed);
    c.weights.reset();
    Random random(seed);
    const MoverProblem p(c, random_ids(c.sizes, random), Values::any_bits);
    const Soc soc = small_chip(2, kUb);
    for (const Mover mover : {Mover::gather_by_token, Mover::gather_by_expert, Mover::scatter_backward}) {
      SCOPED_TRACE(std::string(name_of(mover)) + ": " + describe(c));
      Machine machine(ascend::profile_of(soc));
      MoverOutput actual = empty_output(p, mover);
      run_on_model(machine, ascend::mover_plan(request_of(p, mover, soc)), p, mover, actual);
      EXPECT_EQ(actual.rows->packed(), run_on_reference(p, mover).rows->packed());
    }
  }
}

TEST(Movers, round_subnormal_numbers_and_overflows_as_the_reference_does) {
  for (uint64_t seed = 0; seed < 36; ++seed) {
    const MoverCase c = varied({40, 3, 3, 30}, seed);
    Random random(seed);
    const MoverProblem p(c, random_ids(c.sizes, random), Values::extremes);
    const Soc soc = small_chip(2, kUb);
    for (const Mover mover : {Mover::gather_by_token, Mover::gather_by_expert, Mover::scatter}) {
      check(p, mover, soc);
      if (HasFailure()) return;
    }
  }
}

TEST(Movers, give_the_same_gradients_on_every_number_of_programs) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    MoverCase c = varied({50, 3, 4, 30}, seed);
    c.hidden = 333;
    Random random(seed);
    const MoverProblem p(c, random_ids(c.sizes, random));
    for (const Mover mover : {Mover::wgrad, Mover::scatter_backward}) {
      std::vector<unsigned char> first;
      for (const int32_t programs : {1, 2, 5, 40}) {
        const Soc soc = small_chip(programs, kUb);
        Machine machine(ascend::profile_of(soc));
        MoverOutput actual = empty_output(p, mover);
        run_on_model(machine, ascend::mover_plan(request_of(p, mover, soc)), p, mover, actual);
        if (programs == 1) first = actual.dw->packed();
        EXPECT_EQ(actual.dw->packed(), first) << name_of(mover) << " on " << programs << ": " << describe(c);
      }
    }
  }
}

}  // namespace
}  // namespace test
