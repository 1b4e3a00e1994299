#include "support.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <sstream>
#include <stdexcept>

namespace test {
namespace {

/// What stands in guard zones and gaps at a byte's place in the allocation.
unsigned char pattern(int64_t position) {
  return static_cast<unsigned char>(0xa5 ^ (position * 37));
}

std::string shown(const unsigned char* element, DType type, int64_t bytes) {
  std::ostringstream out;
  if (type != DType::bytes) {
    out.precision(17);
    out << oracle::value_at(element, 0, type) << " ";
  }
  out << "(0x" << std::hex;
  for (int64_t i = bytes - 1; i >= 0; --i) {
    const char* digits = "0123456789abcdef";
    out << digits[element[i] / 16] << digits[element[i] % 16];
  }
  out << ")";
  return out.str();
}

bool both_nan(const unsigned char* a, const unsigned char* b, DType type) {
  return type != DType::bytes && std::isnan(oracle::value_at(a, 0, type)) && std::isnan(oracle::value_at(b, 0, type));
}

std::vector<std::string> settings_of(const Backend& backend) {
  if (std::string(backend.name) == "ascend-model") {
    if (!kThorough) return {"order=expert"};
    return {"order=token", "order=expert", "soc=950_957x"};
  }
  std::vector<std::string> out;
  for (const BackendOption& option : backend_options(backend)) {
    if (option.key != "target") continue;
    for (const std::string& value : option.values)
      for (const char* stream : {"", ",stream_bytes=0"}) out.push_back("target=" + value + stream);
  }
  if (out.empty()) out.push_back("");
  return out;
}

std::vector<Variant> make_variants() {
  static const std::unique_ptr<Executor> pools[] = {make_thread_pool(1), make_thread_pool(2), make_thread_pool(3)};
  std::vector<Variant> out;
  const char* only = std::getenv("BINMOE_TEST_BACKEND");
  for (const Backend& backend : backends()) {
    if (backend.unsupported != nullptr) continue;
    if (only != nullptr && std::strcmp(only, backend.name) != 0) continue;
    const bool threads = std::strcmp(backend.name, "cpu") == 0;  // the others use none: backend_test.cc
    for (const std::string& setting : settings_of(backend))
      for (int pool = 0; pool < (threads ? 3 : 1); ++pool)
        out.push_back({std::string(backend.name) + (setting.empty() ? "" : " " + setting) +
                           " threads=" + std::to_string(pool + 1),
                       setting, &backend, pools[pool].get()});
  }
  if (out.empty()) throw std::runtime_error("BINMOE_TEST_BACKEND names no backend that runs here");
  return out;
}

}  // namespace

const std::vector<Variant>& variants() {
  static const std::vector<Variant> made = make_variants();
  return made;
}

std::vector<Variant> variants_taking(std::initializer_list<DType> types) {
  std::vector<Variant> out;
  for (const Variant& variant : variants()) {
    bool takes = true;
    for (const DType type : types) takes = takes && variant.backend->takes(type);
    if (takes) out.push_back(variant);
  }
  return out;
}

uint64_t Random::bits() {  // splitmix64
  uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double Random::number() {
  const double fraction = 1.0 + static_cast<double>(below(1 << 20)) * 0x1p-20;
  return std::ldexp(below(2) == 0 ? fraction : -fraction, static_cast<int>(below(7)) - 4);
}

Memory::Memory(int64_t bytes, int64_t offset, Use use)
    : bytes_(bytes),
      offset_(offset),
      total_(kGuard + offset + bytes + (use == Use::output ? kGuard : 0)),
      start_(static_cast<unsigned char*>(::operator new[](static_cast<size_t>(total_), std::align_val_t{64}))) {
  for (int64_t i = 0; i < kGuard + offset_; ++i) start_[static_cast<size_t>(i)] = pattern(i);
  for (int64_t i = kGuard + offset_ + bytes_; i < total_; ++i) start_[static_cast<size_t>(i)] = pattern(i);
}

bool Memory::guards_intact() const {
  for (int64_t i = 0; i < total_; ++i) {
    if (i == kGuard + offset_) i += bytes_;
    if (i < total_ && start_[static_cast<size_t>(i)] != pattern(i)) return false;
  }
  return true;
}

Tensor::Tensor(const Shape& shape, Memory::Use use)
    : shape_(shape),
      memory_(shape.rows == 0 || shape.cols == 0
                  ? 0
                  : ((shape.rows - 1) * (shape.cols + shape.gap) + shape.cols) *
                        (shape.type == DType::bytes ? shape.element_bytes : size_of(shape.type)),
              shape.offset, use) {
  if (memory_.bytes() == 0) return;
  std::memset(memory_.data(), 0xff, static_cast<size_t>(memory_.bytes()));
  if (use == Memory::Use::input) return;
  const int64_t gap = shape_.gap * element_size();
  for (int64_t r = 0; r + 1 < shape_.rows; ++r)
    for (int64_t i = 0; i < gap; ++i) row(r + 1)[i - gap] = pattern(r * 7 + i);
}

oracle::Matrix Tensor::values() const {
  oracle::Matrix out;
  out.reserve(static_cast<size_t>(shape_.rows * shape_.cols));
  for (int64_t r = 0; r < shape_.rows; ++r)
    for (int64_t c = 0; c < shape_.cols; ++c) out.push_back(get(r, c));
  return out;
}

std::vector<unsigned char> Tensor::packed() const {
  std::vector<unsigned char> out;
  const int64_t bytes = shape_.cols * element_size();
  out.reserve(static_cast<size_t>(shape_.rows * bytes));
  for (int64_t r = 0; r < shape_.rows && bytes > 0; ++r) out.insert(out.end(), row(r), row(r) + bytes);
  return out;
}

std::vector<unsigned char> Tensor::all_bytes() const {
  return {memory_.data(), memory_.data() + memory_.bytes()};
}

bool Tensor::surroundings_intact() const {
  const int64_t gap = memory_.bytes() == 0 ? 0 : shape_.gap * element_size();
  for (int64_t r = 0; r + 1 < shape_.rows; ++r)
    for (int64_t i = 0; i < gap; ++i)
      if (row(r + 1)[i - gap] != pattern(r * 7 + i)) return false;
  return memory_.guards_intact();
}

std::vector<unsigned char> encoded(const oracle::Matrix& values, DType type) {
  std::vector<unsigned char> out(values.size() * static_cast<size_t>(size_of(type)));
  for (size_t i = 0; i < values.size(); ++i) oracle::put(out.data(), static_cast<int64_t>(i), type, values[i]);
  return out;
}

testing::AssertionResult same_rows(const Tensor& actual, const std::vector<unsigned char>& expected) {
  const Tensor::Shape& s = actual.shape();
  const int64_t size = actual.element_size(), row_bytes = s.cols * size;
  if (static_cast<int64_t>(expected.size()) != s.rows * row_bytes)
    return testing::AssertionFailure() << "the test expects " << expected.size() << " bytes of " << s.rows * row_bytes;
  int64_t mismatches = 0;
  std::ostringstream first;
  for (int64_t r = 0; r < s.rows && row_bytes > 0; ++r) {
    const unsigned char* wanted = expected.data() + r * row_bytes;
    if (std::memcmp(actual.row(r), wanted, static_cast<size_t>(row_bytes)) == 0) continue;
    for (int64_t c = 0; c < s.cols; ++c) {
      const unsigned char *got = actual.row(r) + c * size, *want = wanted + c * size;
      if (std::memcmp(got, want, static_cast<size_t>(size)) == 0 || both_nan(got, want, s.type)) continue;
      if (mismatches++ == 0)
        first << "first at row " << r << ", column " << c << ": expected " << shown(want, s.type, size) << ", got "
              << shown(got, s.type, size);
    }
  }
  if (mismatches > 0)
    return testing::AssertionFailure() << mismatches << " of " << s.rows * s.cols << " elements differ; "
                                       << first.str();
  if (!actual.surroundings_intact())
    return testing::AssertionFailure() << "bytes outside the rows were written (guard zone or gap between rows)";
  return testing::AssertionSuccess();
}

testing::AssertionResult within_bound(const Numbers& dw, const oracle::Dots& dots, const oracle::Plan& plan,
                                      int64_t hidden, DType rows) {
  int64_t mismatches = 0;
  std::ostringstream first;
  first.precision(17);
  for (size_t a = 0; a < dots.exact.size(); ++a) {
    const double got = dw.get(static_cast<int64_t>(a));
    const long double bound = oracle::wgrad_bound(dots.exact[a], dots.magnitude[a], hidden, rows, dw.weights().type);
    const bool good =
        plan.row_of_assignment[a] < 0 ? got == 0 && !std::signbit(got) : std::fabs(got - dots.exact[a]) <= bound;
    if (good) continue;
    if (mismatches++ == 0)
      first << "first at assignment " << a << " (row " << plan.row_of_assignment[a] << "): expected " << dots.exact[a]
            << " within " << bound << ", got " << got;
  }
  if (mismatches > 0)
    return testing::AssertionFailure() << mismatches << " of " << dots.exact.size() << " gradients are wrong; "
                                       << first.str();
  if (!dw.surroundings_intact()) return testing::AssertionFailure() << "bytes outside dw were written";
  return testing::AssertionSuccess();
}

testing::AssertionResult same_array(const char* name, const int32_t* actual, const std::vector<int32_t>& expected) {
  size_t mismatches = 0, first = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (actual[i] == expected[i]) continue;
    if (mismatches++ == 0) first = i;
  }
  if (mismatches == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << name << ": " << mismatches << " of " << expected.size()
                                     << " entries differ; first at " << first << ": expected " << expected[first]
                                     << ", got " << actual[first];
}

testing::AssertionResult same_plan(const ConstPlanView& actual, const oracle::Plan& expected) {
  const ConstPlanView wanted = view_of(expected);
  const struct {
    const char* name;
    const int32_t* actual;
    const std::vector<int32_t>& expected;
  } arrays[] = {
      {"indices", actual.indices, expected.indices},
      {"bin_ids", actual.bin_ids, expected.bin_ids},
      {"row_of_assignment", actual.row_of_assignment, expected.row_of_assignment},
      {"bins", actual.bins, expected.bins},
      {"tokens_per_expert", actual.tokens_per_expert, expected.tokens_per_expert},
      {"kept_per_expert", actual.kept_per_expert, expected.kept_per_expert},
  };
  if (!(actual.sizes == wanted.sizes)) return testing::AssertionFailure() << "the sizes differ";
  for (const auto& array : arrays)
    if (auto result = same_array(array.name, array.actual, array.expected); !result) return result;
  return testing::AssertionSuccess();
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

testing::AssertionResult refuses(const std::function<void()>& call, const std::string& operation,
                                 const std::string& part) {
  const std::string text = refusal(call);
  if (text.rfind("[" + operation + "] ", 0) == 0 && text.find(part) != std::string::npos)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected \"[" << operation << "] ... " << part << "\", got \"" << text << "\"";
}

ConstPlanView view_of(const oracle::Plan& plan) {
  return {plan.sizes,       plan.indices.data(),           plan.bin_ids.data(),        plan.row_of_assignment.data(),
          plan.bins.data(), plan.tokens_per_expert.data(), plan.kept_per_expert.data()};
}

}  // namespace test
