#include "ascend/model/run_plan.h"

#include "ascend/kernels/plan_count.h"
#include "ascend/kernels/plan_place.h"
#include "ascend/kernels/plan_radix.h"
#include "ascend/kernels/plan_scan.h"
#include "ascend/model/bind.h"

namespace binmoe::ascend {
namespace {

using namespace binmoe_ascend;
using vector_core::Machine;
using vector_core::Role;

constexpr int64_t kWord = sizeof(int32_t);

/// Call function<Id>() with the kernels' type of the ids.
template <class Function>
void with_id_type(IdType type, const Function& function) {
  switch (type) {
    case IdType::i8:
      return function.template operator()<int8_t>();
    case IdType::u8:
      return function.template operator()<uint8_t>();
    case IdType::i16:
      return function.template operator()<int16_t>();
    case IdType::u16:
      return function.template operator()<uint16_t>();
    case IdType::i32:
      return function.template operator()<int32_t>();
    case IdType::i64:
      return function.template operator()<int64_t>();
  }
}

struct Tables {
  GM_ADDR counts, bases, starts, sums;
};

Tables bind_tables(Machine& machine, const std::string& pass, const PlanTile& tile) {
  const PlanTables bytes = plan_tables(tile);
  const auto bind = [&](const char* name, int64_t size) {
    return machine.bind((pass + name).c_str(), nullptr, size, Role::workspace);
  };
  return {bind(" counts", bytes.counts), bind(" bases", bytes.bases), bind(" starts", bytes.starts),
          bind(" sums", bytes.sums)};
}

/// Three arrays of one entry for each expert.
struct Counts {
  GM_ADDR bins, tokens, kept;
};

/// The first three launches of a counting pass.
template <class Reader>
void count_and_scan(Machine& machine, int32_t programs, const std::string& suffix, const PlanTile& tile, GM_ADDR input,
                    const Tables& tables, const Counts& out) {
  launch<PlanCount<Reader>>(machine, ("plan_count" + suffix).c_str(), programs, tile, input, tables.counts);
  launch<PlanBases>(machine, ("plan_bases" + suffix).c_str(), programs, tile, tables.counts, tables.bases, tables.sums);
  launch<PlanScan>(machine, ("plan_scan" + suffix).c_str(), programs, tile, tables.bases, tables.sums, tables.starts,
                   out.bins, out.tokens, out.kept);
}

/// Records sorted by weight; their address.
GM_ADDR sort_by_weight(Machine& machine, const PlanTiling& plan, const PlanJob& job, GM_ADDR ids) {
  const int64_t bytes = plan.records.positions * kRecordWords * kWord;
  GM_ADDR records = machine.bind("records", nullptr, bytes, Role::workspace);
  GM_ADDR sorted = machine.bind("records sorted", nullptr, bytes, Role::workspace);
  const GM_ADDR priority =
      machine.bind("priority", job.priority.data, job.priority.count * size_of(job.priority.type), Role::input);
  with_id_type(job.ids.type, [&]<class Id>() {
    launch<PlanRecords<Id>>(machine, "plan_records", plan.num_programs, plan.records, ids, priority, records);
  });
  const Tables tables = bind_tables(machine, "digits", plan.digits);
  const auto bind_unread = [&](const char* name) {
    return machine.bind(name, nullptr, kDigits * kWord, Role::workspace);
  };
  const Counts unread = {bind_unread("digits bins"), bind_unread("digits tokens"), bind_unread("digits kept")};
  for (int32_t pass = 0; pass < plan.digit_passes; ++pass) {
    PlanTile tile = plan.digits;
    tile.key_shift = pass * kDigitBits;
    count_and_scan<RecordReader<true>>(machine, plan.num_programs, "_digits", tile, records, tables, unread);
    launch<PlanPlaceRecords>(machine, "plan_place_digits", plan.num_programs, tile, records, tables.counts,
                             tables.bases, tables.starts, sorted);
    std::swap(records, sorted);
  }
  return records;
}

}  // namespace

PlanRequest request_of(const Soc& soc, const PlanJob& job) {
  return {&soc, job.out.sizes, job.ids.type, job.policy, job.priority.type};
}

void run_plan(Machine& machine, const PlanTiling& plan, const PlanJob& job) {
  const int64_t assignments = job.out.sizes.assignments() * kWord, experts = job.out.sizes.num_experts * kWord;
  const GM_ADDR ids = machine.bind("expert_ids", job.ids.data, job.ids.count * size_of(job.ids.type), Role::input);
  const GM_ADDR indices = machine.bind("indices", job.out.indices, assignments, Role::output);
  const GM_ADDR bin_ids = machine.bind("bin_ids", job.out.bin_ids, assignments, Role::output);
  const GM_ADDR rows = machine.bind("row_of_assignment", job.out.row_of_assignment, assignments, Role::output);
  const Counts counts = {machine.bind("bins", job.out.bins, experts, Role::output),
                         machine.bind("tokens_per_expert", job.out.tokens_per_expert, experts, Role::output),
                         machine.bind("kept_per_expert", job.out.kept_per_expert, experts, Role::output)};
  const Tables tables = bind_tables(machine, "experts", plan.experts);
  const auto place = [&]<class Reader>(GM_ADDR input) {
    count_and_scan<Reader>(machine, plan.num_programs, "", plan.experts, input, tables, counts);
    launch<PlanPlace<Reader>>(machine, "plan_place", plan.num_programs, plan.experts, input, tables.counts,
                              tables.bases, tables.starts, counts.bins, indices, bin_ids, rows);
  };
  if (job.policy == DropPolicy::by_weight)
    place.operator()<RecordReader<false>>(sort_by_weight(machine, plan, job, ids));
  else
    with_id_type(job.ids.type, [&]<class Id>() { place.template operator()<IdReader<Id>>(ids); });
}

void run_plan(Machine& machine, const Soc& soc, const PlanJob& job) {
  run_plan(machine, plan_tiling(request_of(soc, job)), job);
}

}  // namespace binmoe::ascend
