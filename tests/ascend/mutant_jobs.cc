#include "mutant_jobs.h"

#include <memory>

#include "ascend/model/run_plan.h"
#include "mover_problem.h"
#include "problem.h"

namespace test {
namespace {

using vector_core::Machine;
using vector_core::Mutation;

constexpr int64_t kUb = 192 * 1024 - 256 - 8 * 1024;

Observation observe(const Machine& machine) {
  Observation out;
  for (const vector_core::Launch& launch : machine.launches()) out.read_bytes.push_back(launch.gm_read_bytes);
  out.sites = machine.sites();
  return out;
}

Job mover_job(std::shared_ptr<const MoverProblem> p, Mover mover, const ascend::Soc& soc) {
  const auto run = [p, mover, soc](const Mutation* mutation) {
    Machine machine(ascend::profile_of(soc));
    if (mutation != nullptr) machine.mutate(*mutation);
    MoverOutput output = empty_output(*p, mover);
    run_on_model(machine, ascend::mover_plan(request_of(*p, mover, soc)), *p, mover, output);
    expect_written_once(machine, output);
    Observation seen = observe(machine);
    if (output.rows) seen.outputs.push_back(output.rows->all_bytes());
    if (output.dw) seen.outputs.push_back(output.dw->packed());
    return seen;
  };
  return {name_of(mover), describe(p->c) + " UB " + std::to_string(soc.ub_limit_bytes), run};
}

void add_movers(std::vector<Job>& jobs) {
  const std::optional<DType> no_weights;
  const struct {
    Sizes sizes;
    int64_t hidden, ub;
    int32_t programs;
  } shapes[] = {
      {{61, 3, 5, 17}, 46, kUb, 2},          // ragged last blocks, several blocks to a program, dropped assignments
      {{21, 11, 7, 40}, 333, 48 * 1024, 1},  // several slots to a token
      {{37, 2, 4, 9}, 5001, 64 * 1024, 2},   // tiles of columns
      {{70, 1, 1100, 1}, 20, kUb, 3},        // kept counts in two stages
      {{300, 2, 3, 8}, 20, kUb, 1},          // blocks of nothing but dropped tokens
      {{190, 2, 6, 40}, 20, kUb, 2},         // more blocks to a program than are staged
      {{64, 4, 6, 100}, 64, kUb, 4},         // nothing dropped, whole lines
  };
  uint64_t seed = 0;
  for (const auto& shape : shapes)
    for (const DType rows : {DType::f32, DType::bf16})
      for (const std::optional<DType>& weights : {no_weights, std::optional(DType::f32), std::optional(DType::f16)})
        for (const int64_t gap : {0, 3}) {
          MoverCase c;
          c.sizes = shape.sizes;
          c.hidden = shape.hidden;
          c.rows = rows;
          c.weights = weights;
          c.dw = gap > 0 ? DType::bf16 : DType::f32;
          c.gap = gap;
          c.seed = ++seed;
          Random random(c.seed);
          const auto p = std::make_shared<const MoverProblem>(c, random_ids(c.sizes, random));
          for (const Mover mover : kMovers) jobs.push_back(mover_job(p, mover, small_chip(shape.programs, shape.ub)));
        }
}

struct PlanCase {
  Sizes sizes;
  DropPolicy policy;
  IdType ids;
  DType priority;
  int32_t programs;
  int64_t ub;
};

/// -1 or out of range, which the kernels take for masked.
int64_t masked_id(const PlanCase& c, Random& random) {
  if (random.below(2) == 0) return -1;
  return c.ids == IdType::i64 ? (int64_t{1} << 32) + random.below(c.sizes.num_experts) : c.sizes.num_experts;
}

Job plan_job(const PlanCase& c, uint64_t seed) {
  Random random(seed);
  std::vector<int64_t> ids(static_cast<size_t>(c.sizes.assignments()));
  for (int64_t& id : ids) id = random.below(12) == 0 ? masked_id(c, random) : random.below(c.sizes.num_experts);
  const auto encoded_ids = std::make_shared<const IdArray>(ids, c.ids);
  const auto priority = std::make_shared<Numbers>(c.sizes.assignments(), c.priority, Memory::Use::input);
  for (int64_t a = 0; a < c.sizes.assignments(); ++a) priority->set(a, random.number());
  const auto run = [c, encoded_ids, priority](const Mutation* mutation) {
    const ascend::Soc soc = small_chip(c.programs, c.ub);
    Machine machine(ascend::profile_of(soc));
    if (mutation != nullptr) machine.mutate(*mutation);
    const auto assignments = static_cast<size_t>(c.sizes.assignments()) * 4;
    const auto experts = static_cast<size_t>(c.sizes.num_experts) * 4;
    std::vector<std::vector<unsigned char>> out;
    for (int i = 0; i < 6; ++i) out.emplace_back(i < 3 ? assignments : experts);
    const auto array = [&](size_t i) { return reinterpret_cast<int32_t*>(out[i].data()); };
    PlanJob job{
        encoded_ids->view(), c.policy, {}, {c.sizes, array(0), array(1), array(2), array(3), array(4), array(5)}};
    if (c.policy == DropPolicy::by_weight) job.priority = priority->weights();
    ascend::run_plan(machine, soc, job);
    for (const char* name : {"indices", "bin_ids", "row_of_assignment", "bins", "tokens_per_expert", "kept_per_expert"})
      machine.expect_written_once(name);
    Observation seen = observe(machine);
    seen.outputs = std::move(out);
    return seen;
  };
  return {std::string("plan ") + binmoe::name_of(c.policy), "case " + std::to_string(seed), run};
}

void add_plans(std::vector<Job>& jobs) {
  uint64_t seed = 0;
  const struct {
    Sizes sizes;
    int32_t programs;
    int64_t ub;
  } shapes[] = {
      {{300, 3, 20, 40}, 3, 24 * 1024},    // several blocks to a program
      {{1700, 1, 20, 60}, 1, 24 * 1024},   // several blocks of records to a program
      {{700, 4, 300, 2}, 1, 7008},         // several stages, chunks of experts and groups of blocks
      {{1000, 1, 3001, 1}, 3, 24 * 1024},  // experts placed in several tiles
      {{600, 4, 300, 2}, 1, 6016},         // an even number of groups
      {{500, 1, 1700, 1}, 1, 24 * 1024},  {{900, 1, 1700, 1}, 1, 24 * 1024},
      {{200, 1, 10017, 1}, 2, 24 * 1024}, {{200, 1, 4801, 1}, 2, 7008},  // and counted in several
      {{61, 3, 5, 17}, 2, kUb},
  };
  for (const auto& shape : shapes)
    for (const DropPolicy policy : kPolicies)
      for (const IdType ids : {IdType::i16, IdType::i32, IdType::i64})
        for (const DType priority : {DType::f32, DType::bf16, DType::f16})
          if (policy == DropPolicy::by_weight ? shape.ub > 8000 : priority == DType::f32)
            jobs.push_back(plan_job({shape.sizes, policy, ids, priority, shape.programs, shape.ub}, ++seed));
}

}  // namespace

std::vector<Job> all_jobs() {
  std::vector<Job> jobs;
  add_movers(jobs);
  add_plans(jobs);
  return jobs;
}

}  // namespace test
