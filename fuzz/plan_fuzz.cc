// Bytes become sizes, ids, weights, bins or a whole plan; every backend must agree, check must judge what is safe, and
// what check calls valid must be safe to move rows by.
#include <functional>
#include <optional>

#include "disagreement.h"

namespace {

using namespace binmoe;
using fuzz::Bytes;
using fuzz::Outcome;
using fuzz::Variant;

constexpr int64_t kMostAssignments = 2000, kMostRows = 4000;

std::vector<uint8_t> bytes_of(const ConstPlanView& plan) {
  std::vector<uint8_t> out;
  const auto add = [&](const int32_t* array, int64_t count) {
    const auto* begin = reinterpret_cast<const uint8_t*>(array);
    if (count > 0) out.insert(out.end(), begin, begin + 4 * count);
  };
  for (const int32_t* array : {plan.indices, plan.bin_ids, plan.row_of_assignment})
    add(array, plan.sizes.assignments());
  for (const int32_t* array : {plan.bins, plan.tokens_per_expert, plan.kept_per_expert})
    add(array, plan.sizes.num_experts);
  return out;
}

/// Run `call` on every variant; all must give the first one's outcome, bit for bit.
Outcome agreed(const char* what, const std::function<std::vector<uint8_t>(const Context&)>& call) {
  std::optional<Outcome> first;
  for (const Variant& variant : fuzz::variants()) {
    const Outcome now = fuzz::outcome_of([&] { return call(variant.context()); });
    if (!first) {
      first = now;
      continue;
    }
    if (variant.backend->by_name_only && now.error.find("does not take f64") != std::string::npos) continue;
    if (now.error != first->error)
      fuzz::fail(std::string(what) + ": reference says '" + first->error + "', " + variant.options + " '" + now.error +
                 "'");
    if (now.output != first->output) fuzz::fail(std::string(what) + ": other output with " + variant.options);
  }
  return *first;
}

/// Move rows by a valid plan: gather and scatter agree on all variants, wgrad on all of one backend.
void move_rows(Bytes& bytes, const ConstPlanView& plan) {
  const auto type = static_cast<DType>(bytes.byte() % 4);
  const int64_t hidden = bytes.byte() % 70, gap = bytes.byte() % 3;
  const int64_t size = size_of(type), stride = hidden + gap, offset = bytes.byte() % 3;
  const bool with_weights = bytes.byte() % 2 != 0;
  const auto length = [&](int64_t rows) { return static_cast<size_t>(rows * stride * size + offset); };
  std::vector<uint8_t> pattern = bytes.take(61);  // repeated: short inputs still give lively rows
  const auto filled = [&](size_t count) {
    std::vector<uint8_t> out(count);
    for (size_t i = 0; i < count; ++i) out[i] = static_cast<uint8_t>(pattern[i % 61] + i / 61);
    return out;
  };
  std::vector<uint8_t> x = filled(length(plan.sizes.tokens)), y = filled(length(plan.sizes.expert_rows()));
  const std::vector<uint8_t> weight_bytes = filled(static_cast<size_t>(plan.sizes.assignments() * 4));
  const Weights weights = with_weights ? Weights{weight_bytes.data(), plan.sizes.assignments(), DType::f32} : Weights{};
  const auto rows = [&](std::vector<uint8_t>& memory, int64_t count) {
    return Rows{memory.data() + offset, count, hidden, stride, type};
  };
  std::optional<std::vector<uint8_t>> gathered, scattered;
  std::vector<std::pair<const Backend*, std::vector<uint8_t>>> gradients;
  for (const Variant& variant : fuzz::variants()) {
    if (!variant.backend->takes(type)) continue;
    std::vector<uint8_t> y_out(y.size(), 0xff), out(x.size(), 0xff), dw(weight_bytes.size(), 0xff);
    gather(plan, rows(x, plan.sizes.tokens), weights, rows(y_out, plan.sizes.expert_rows()), variant.context());
    scatter(plan, rows(y, plan.sizes.expert_rows()), weights, rows(out, plan.sizes.tokens), variant.context());
    wgrad(plan, rows(y, plan.sizes.expert_rows()), rows(x, plan.sizes.tokens),
          {dw.data(), plan.sizes.assignments(), DType::f32}, variant.context());
    // The few bytes before the first row and in the gaps stay 0xff everywhere, so whole buffers compare.
    y_out.erase(y_out.begin(), y_out.begin() + offset);
    out.erase(out.begin(), out.begin() + offset);
    if (!gathered) gathered = y_out, scattered = out;
    if (!fuzz::same_elements(*gathered, y_out, type)) fuzz::fail("gather differs with " + variant.options);
    if (!fuzz::same_elements(*scattered, out, type)) fuzz::fail("scatter differs with " + variant.options);
    for (const auto& [backend, expected] : gradients)
      if (backend == variant.backend && !fuzz::same_elements(expected, dw, DType::f32))
        fuzz::fail("wgrad differs with " + variant.options);
    gradients.emplace_back(variant.backend, dw);
  }
}

Sizes sizes_from(Bytes& bytes) {
  Sizes s;
  s.tokens = bytes.size(64);
  s.top_k = bytes.size(10);
  s.num_experts = bytes.size(41);
  s.expert_capacity = bytes.size(21);
  return s;
}

bool small_enough(const Sizes& s) {
  return s.tokens >= 0 && s.top_k >= 1 && s.num_experts >= 1 && s.expert_capacity >= 0 &&
         s.tokens <= kMostAssignments && s.assignments() <= kMostAssignments && s.num_experts <= kMostRows &&
         s.expert_rows() <= kMostRows;
}

void require_sound(const ConstPlanView& plan) {
  if (const auto fault = check(plan)) fuzz::fail("check refuses a plan of ours: " + describe(*fault));
}

void fuzz_plan(Bytes& bytes) {
  const Sizes s = sizes_from(bytes);
  const auto id_type = static_cast<IdType>(bytes.byte() % 7);  // 6 is none
  const auto policy = static_cast<DropPolicy>(bytes.byte() % 4);
  const auto priority_type = static_cast<DType>(bytes.byte() % 6);
  if (!small_enough(s)) {  // must be refused, or be large but harmless: sizes only
    const Outcome outcome = fuzz::outcome_of([&] { return plan_workspace_bytes(s, policy), std::vector<uint8_t>(); });
    static_cast<void>(outcome);
    return;
  }
  const bool tame = bytes.byte() % 4 != 0;
  const auto count = static_cast<size_t>(s.assignments());
  const auto id_size = static_cast<size_t>(size_of(id_type) > 0 ? size_of(id_type) : 1);
  std::vector<uint8_t> ids = bytes.take(count * (tame ? 1 : id_size));
  if (tame) {  // most ids in range, or nothing interesting ever happens
    std::vector<uint8_t> wide(count * id_size);
    for (size_t a = 0; a < count; ++a) {
      const int64_t id = ids[a] == 255 ? -1 : ids[a] % s.num_experts;
      std::memcpy(wide.data() + a * id_size, &id, id_size);
    }
    ids = wide;
  }
  const auto weight_size = static_cast<size_t>(size_of(priority_type) > 0 ? size_of(priority_type) : 1);
  const std::vector<uint8_t> weights = bytes.take(count * weight_size);
  const Weights priority =
      policy == DropPolicy::by_weight ? Weights{weights.data(), s.assignments(), priority_type} : Weights{};
  Plan made;
  const Outcome outcome = agreed("plan", [&](const Context& context) {
    made = make_plan({ids.data(), s.assignments(), id_type}, s, policy, priority, context);
    return bytes_of(made);
  });
  if (!outcome.error.empty()) return;
  require_sound(made);
  move_rows(bytes, made);
}

void fuzz_bins(Bytes& bytes) {
  const Sizes s = sizes_from(bytes);
  if (!small_enough(s)) return;
  const int64_t count = bytes.byte();
  const std::vector<int32_t> bins = bytes.numbers(static_cast<size_t>(s.num_experts));
  const std::vector<int32_t> indices = bytes.numbers(static_cast<size_t>(count));
  const std::vector<int32_t> bin_ids = bytes.numbers(static_cast<size_t>(count));
  const bool with_ids = bytes.byte() % 2 != 0;
  const Bins given = {indices.data(), with_ids ? bin_ids.data() : nullptr, count, bins.data(), s.num_experts};
  const Outcome checked = fuzz::outcome_of([&] {
    if (const auto fault = check_bins(given, s)) throw Error("plan_from_bins", *fault);
    return std::vector<uint8_t>();
  });
  Plan made;
  const Outcome outcome = agreed("plan_from_bins", [&](const Context& context) {
    made = make_plan_from_bins(given, s, context);
    return bytes_of(made);
  });
  if (outcome.error.empty() != checked.error.empty())
    fuzz::fail("check_bins says '" + checked.error + "', plan_from_bins '" + outcome.error + "'");
  if (!outcome.error.empty()) return;
  require_sound(made);
  move_rows(bytes, made);
}

/// A whole plan from the input, made sound first so that single bytes spoil it.
void fuzz_check(Bytes& bytes) {
  const Sizes s = sizes_from(bytes);
  if (!small_enough(s)) return;
  std::vector<int64_t> ids(static_cast<size_t>(s.assignments()));
  for (int64_t& id : ids) id = bytes.byte() % (s.num_experts + 1) - 1;
  Plan made = make_plan({ids.data(), s.assignments(), IdType::i64}, s);
  const PlanView view = made.view();
  const int64_t entries = 3 * (s.assignments() + s.num_experts);
  for (int spoils = bytes.byte() % 4; spoils > 0; --spoils) {
    const int64_t position = (int64_t{bytes.byte()} * 256 + bytes.byte()) % entries;
    view.indices[position] = bytes.numbers(1)[0];  // the six arrays lie one behind the other
  }
  if (!check(view)) move_rows(bytes, view);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  switch (bytes.byte() % 3) {
    case 0:
      fuzz_plan(bytes);
      break;
    case 1:
      fuzz_bins(bytes);
      break;
    default:
      fuzz_check(bytes);
  }
  return 0;
}
