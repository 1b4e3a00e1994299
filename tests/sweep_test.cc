// Oracle tests: every operation on every variant over the sizes of tests/data/README.md.
#include "problem.h"

namespace test {
namespace {

void sweep_all(const std::vector<Case>& cases) {
  sweep(cases, check_plan);
  for (const Check check : kMoverChecks)
    if (!testing::Test::HasFailure()) sweep(cases, check);
}

TEST(Sweep, one_and_zero_in_turn_and_all_together) {
  std::vector<Case> cases = {{.sizes = {1, 1, 1, 1}, .hidden = 1}};
  for (const int value : {0, 1}) {
    cases.push_back({.sizes = {value, 3, 4, 5}});
    cases.push_back({.sizes = {6, 3, 4, value}});
    cases.push_back({.sizes = {6, 3, 4, 5}, .hidden = value});
    cases.push_back({.sizes = {value, 1, 1, value}, .hidden = value});
  }
  cases.push_back({.sizes = {6, 1, 4, 5}});
  cases.push_back({.sizes = {6, 3, 1, 5}});
  cases.push_back({.sizes = {6, 3, 4, 5}, .routing = Routing::all_masked});
  cases.push_back({.sizes = {6, 3, 4, 5}});  // an ordinary call after them
  sweep_all(cases);
}

TEST(Sweep, counts_of_assignments_around_powers_of_two) {
  std::vector<Case> cases;
  for (const int count : {1, 31, 32, 33, 127, 129, 255, 257, 1023, 1024, 1025})
    for (const Routing routing : {Routing::all_last, Routing::all_first, Routing::round_robin})
      for (const int experts : {1, 7}) {
        cases.push_back({.sizes = {count, 1, experts, count / 2 + 1}, .hidden = 5, .routing = routing});
        cases.push_back({.sizes = {1, count, experts, count}, .hidden = 3, .routing = routing});
      }
  sweep_all(cases);
}

TEST(Sweep, many_experts_and_huge_capacities) {
  std::vector<Case> cases;
  for (const int tokens : {3, 700}) {
    cases.push_back({.sizes = {tokens, 2, 1, 65535}, .hidden = 3});
    cases.push_back({.sizes = {tokens, 2, 1, 65536}, .hidden = 3});
    cases.push_back({.sizes = {tokens, 2, 65536, 1}, .hidden = 3});
    cases.push_back({.sizes = {tokens, 2, 64, 1025}, .hidden = 3});
  }
  cases.push_back({.sizes = {66000, 1, 1, 65535}, .hidden = 1, .routing = Routing::all_first});
  cases.push_back({.sizes = {33000, 2, 1, 65536}, .hidden = 1, .routing = Routing::all_first});
  if (!kThorough) cases.resize(4);
  sweep_all(cases);
}

TEST(Sweep, every_listed_number_of_experts) {
  std::vector<Case> cases;
  for (const int experts : {2, 5, 16, 127, 128, 129, 256, 257, 300, 512, 1023, 1024, 1025, 2048, 4096})
    cases.push_back({.sizes = {211, 3, experts, 3}, .hidden = 4});
  sweep_all(cases);
}

TEST(Sweep, every_listed_number_of_choices) {
  std::vector<Case> cases;
  for (const int top_k : {1, 2, 3, 5, 6, 7, 8, 9, 10, 14, 33, 129})
    for (const DropPolicy policy : kPolicies)
      cases.push_back({.sizes = {37, top_k, 11, 2 * top_k}, .hidden = 33, .policy = policy});
  sweep_all(cases);
}

TEST(Sweep, every_listed_hidden_size_in_every_dtype) {
  std::vector<Case> cases;
  for (const int hidden : {1, 7, 46, 1000, 2880, 7169})
    for (const DType type : kFloats) cases.push_back({.sizes = {9, 3, 4, 6}, .hidden = hidden, .row_type = type});
  if (!kThorough) cases.resize(16);
  sweep_all(cases);
}

TEST(Sweep, hidden_sizes_around_vectors_at_every_alignment_and_gap) {
  std::vector<Case> cases;
  for (const int hidden : {15, 16, 17, 63, 64, 65, 129})
    for (const DType type : kFloats)
      for (const int64_t gap : {0, 1, 13, 64})
        for (const int64_t offset : {int64_t{0}, size_of(type), int64_t{1}})
          cases.push_back(
              {.sizes = {7, 2, 3, 6}, .hidden = hidden, .row_type = type, .gap = gap, .offset_bytes = offset});
  sweep_all(cases);
}

TEST(Sweep, every_row_dtype_with_every_weight_dtype_id_type_and_policy) {
  std::vector<Case> cases;
  for (const DType rows : kFloats)
    for (const DType weights : kFloats)
      for (const IdType ids : kIdTypes)
        for (const DropPolicy policy : kPolicies)
          if (weights != DType::f64 || rows == DType::f64)
            cases.push_back({.sizes = {23, 3, 5, 9},
                             .hidden = 21,
                             .row_type = rows,
                             .weight_type = weights,
                             .id_type = ids,
                             .policy = policy,
                             .seed = 10 + cases.size()});
  sweep_all(cases);
}

TEST(Sweep, work_large_enough_for_several_threads) {
  std::vector<Case> cases;
  for (const DType type : kFloats)
    for (const int64_t gap : {0, 24})
      cases.push_back({.sizes = {401, 4, 16, 96}, .hidden = 515, .row_type = type, .gap = gap});
  if (!kThorough) cases = {cases[0], cases[5]};
  sweep_all(cases);
}

}  // namespace
}  // namespace test
