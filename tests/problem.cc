#include "problem.h"

#include <cstring>
#include <sstream>

namespace test {
namespace {

std::vector<int64_t> route(const Case& c, Random& random) {
  const Sizes& s = c.sizes;
  const int64_t last = std::min<int64_t>(s.num_experts - 1, largest_id(c.id_type));
  const bool masks = c.id_type != IdType::u8 && c.id_type != IdType::u16;
  std::vector<int64_t> ids;
  for (int64_t a = 0; a < s.assignments(); ++a) {
    switch (c.routing) {
      case Routing::random:  // a third goes to two experts, so that some overflow; one in nine is masked
        if (masks && random.below(9) == 0)
          ids.push_back(-1);
        else
          ids.push_back(random.below(3) == 0 ? random.below(2) * last : random.below(last + 1));
        break;
      case Routing::all_last:
        ids.push_back(last);
        break;
      case Routing::all_first:
        ids.push_back(0);
        break;
      case Routing::round_robin:
        ids.push_back(a % (last + 1));
        break;
      case Routing::all_masked:
        ids.push_back(-1);
        break;
    }
  }
  return ids;
}

double priority_number(Random& random) {
  switch (random.below(8)) {
    case 0:
      return std::numeric_limits<double>::quiet_NaN();
    case 1:
      return 0.0;
    case 2:
      return -0.0;
    case 3:
      return random.below(2) == 0 ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
    case 4:
      return static_cast<double>(random.below(3)) * 0.25;  // ties
    default:
      return random.number();
  }
}

const char* name_of_routing(Routing routing) {
  const char* names[] = {"random", "all_last", "all_first", "round_robin", "all_masked"};
  return names[static_cast<int>(routing)];
}

}  // namespace

std::string describe(const Case& c) {
  std::ostringstream out;
  out << "case: tokens=" << c.sizes.tokens << " top_k=" << c.sizes.top_k << " num_experts=" << c.sizes.num_experts
      << " expert_capacity=" << c.sizes.expert_capacity << " hidden_size=" << c.hidden
      << " rows=" << name_of(c.row_type) << " weights=" << name_of(c.weight_type) << " ids=" << name_of(c.id_type)
      << " policy=" << name_of(c.policy) << " routing=" << name_of_routing(c.routing) << " gap=" << c.gap
      << " offset_bytes=" << c.offset_bytes << " seed=" << c.seed;
  return out.str();
}

int64_t largest_id(IdType type) {
  const bool is_unsigned = type == IdType::u8 || type == IdType::u16;
  const int64_t digits = 8 * size_of(type) - (is_unsigned ? 0 : 1);
  return digits >= 63 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << digits) - 1;
}

IdArray::IdArray(const std::vector<int64_t>& ids, IdType type, int64_t offset)
    : count_(static_cast<int64_t>(ids.size())),
      type_(type),
      memory_(count_ * size_of(type), offset, Memory::Use::input) {
  const auto size = static_cast<size_t>(size_of(type));
  for (size_t i = 0; i < ids.size(); ++i) std::memcpy(memory_.data() + i * size, &ids[i], size);  // little-endian
}

Problem::Problem(const Case& made_from)
    : c(made_from),
      ids([&] {
        Random random(c.seed);
        return route(c, random);
      }()),
      id_array(ids, c.id_type, c.offset_bytes),
      priority(c.sizes.assignments(), c.weight_type, Memory::Use::input, c.offset_bytes),
      weights(c.sizes.assignments(), c.weight_type, Memory::Use::input, c.offset_bytes),
      x(shape(c.sizes.tokens), Memory::Use::input),
      grad(shape(c.sizes.tokens), Memory::Use::input),
      y(shape(c.sizes.expert_rows()), Memory::Use::input) {
  Random random(c.seed + 1000);
  for (int64_t a = 0; a < c.sizes.assignments(); ++a) priority.set(a, priority_number(random));
  plan = oracle::plan_of(oracle::buckets(ids, c.sizes, c.policy, priority.values()), c.sizes);
  // Everything begins as NaN; only what may have influence gets a number.
  std::vector<bool> used(static_cast<size_t>(c.sizes.tokens));
  for (int64_t a = 0; a < c.sizes.assignments(); ++a) {
    const int32_t row = plan.row_of_assignment[static_cast<size_t>(a)];
    if (row < 0) continue;
    used[static_cast<size_t>(a / c.sizes.top_k)] = true;
    weights.set(a, random.number());
    for (int64_t h = 0; h < c.hidden; ++h) y.set(row, h, random.number());
  }
  for (int64_t t = 0; t < c.sizes.tokens; ++t) {
    if (!used[static_cast<size_t>(t)]) continue;
    for (int64_t h = 0; h < c.hidden; ++h) {
      x.set(t, h, random.number());
      grad.set(t, h, random.number());
    }
  }
}

Numbers Problem::gradients_out(DType type) const {
  return Numbers(c.sizes.assignments(), type, Memory::Use::output, c.offset_bytes);
}

std::vector<DType> gradient_types(const Case& c) {
  if (c.row_type == DType::f64) return {DType::f64, DType::f32};
  if (c.weight_type == DType::f32) return {DType::f32};
  return {DType::f32, c.weight_type};
}

void sweep(const std::vector<Case>& cases, Check check) {
  for (const Case& c : cases) {
    SCOPED_TRACE(describe(c));
    check(Problem(c));
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace test
