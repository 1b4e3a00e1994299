// Operations on device arrays between guard zones, against the oracle. The suites Small and Unwritten are what
// compute-sanitizer runs (scripts/cuda.sh).
#include "cuda/on_device.h"

namespace test {
namespace {

class Small : public Cuda {};
class Unwritten : public Cuda {};
class DeviceMemory : public Cuda {};

/// A few of every form that the operations take: rows of 16-byte vectors and of bytes, one choice and many.
std::vector<Case> small_cases() {
  std::vector<Case> out;
  for (const int32_t top_k : {1, 2, 3, 4, 8, 9})
    for (const int64_t hidden : {7, 64, 264})
      out.push_back({.sizes = {17, top_k, 12, 4 * top_k}, .hidden = hidden, .row_type = DType::bf16});
  for (const DType type : kFloats) {
    out.push_back({.sizes = {33, 4, 5, 20}, .hidden = 128, .row_type = type});
    out.push_back({.sizes = {33, 4, 5, 20}, .hidden = 33, .row_type = type, .gap = 3, .offset_bytes = size_of(type)});
  }
  // Many tokens: the kernels of large batches, with rows of 32 and 64 bytes.
  for (const int32_t top_k : {1, 2, 4, 8, 9})
    out.push_back({.sizes = {2200, top_k, 16, 130 * top_k}, .hidden = 16, .row_type = DType::bf16});
  out.push_back({.sizes = {1100, 8, 16, 600}, .hidden = 16, .row_type = DType::f32});
  out.push_back({.sizes = {5, 8, 1100, 2}, .hidden = 16, .row_type = DType::bf16});
  out.push_back({.sizes = {300, 2, 3, 70}, .hidden = 8, .id_type = IdType::i64, .policy = DropPolicy::choice_order});
  out.push_back({.sizes = {300, 4, 7, 70},
                 .hidden = 8,
                 .weight_type = DType::bf16,
                 .id_type = IdType::u8,
                 .policy = DropPolicy::by_weight});
  return out;
}

TEST_F(Small, every_operation_gives_the_oracles_bits_and_writes_nothing_else) {
  sweep_on_device(small_cases());
}

TEST_F(Unwritten, empty_rows_of_y_and_a_fresh_workspace_are_not_read) {  // initcheck fails it if they are
  sweep_on_device(small_cases(), Upload::used_rows);
}

TEST_F(Small, empty_sizes_write_all_that_there_is) {
  std::vector<Case> cases;
  for (const int value : {0, 1}) {
    cases.push_back({.sizes = {value, 3, 4, 5}});
    cases.push_back({.sizes = {6, 3, 4, value}});
    cases.push_back({.sizes = {6, 3, 4, 5}, .hidden = value});
    cases.push_back({.sizes = {value, 1, 1, value}, .hidden = value});
  }
  cases.push_back({.sizes = {6, 3, 4, 5}, .routing = Routing::all_masked});
  sweep_on_device(cases);
}

TEST_F(DeviceMemory, models_at_a_few_tokens) {
  std::vector<Case> cases;
  for (const DType type : {DType::bf16, DType::f32}) {
    cases.push_back({.sizes = {128, 8, 256, 8}, .hidden = 7168, .row_type = type});
    cases.push_back({.sizes = {128, 2, 8, 40}, .hidden = 4096, .row_type = type});
    cases.push_back({.sizes = {128, 4, 128, 5}, .hidden = 2880, .row_type = type});
    cases.push_back({.sizes = {128, 8, 128, 10}, .hidden = 2048, .row_type = type});
    cases.push_back({.sizes = {128, 1, 128, 2}, .hidden = 5120, .row_type = type});
  }
  sweep_on_device(cases);
}

TEST_F(DeviceMemory, more_tokens_than_one_wave_of_blocks) {
  std::vector<Case> cases;
  for (const int32_t top_k : {1, 2, 4, 8})
    for (const int64_t gap : {0, 8})
      cases.push_back({.sizes = {3001, top_k, 32, 120 * top_k}, .hidden = 136, .row_type = DType::bf16, .gap = gap});
  for (const Routing routing : {Routing::all_first, Routing::all_last, Routing::all_masked})
    cases.push_back({.sizes = {1500, 4, 32, 300}, .hidden = 136, .row_type = DType::bf16, .routing = routing});
  sweep_on_device(cases);
}

TEST_F(DeviceMemory, long_rows_in_every_dtype) {
  std::vector<Case> cases;
  for (const DType type : kFloats)
    for (const int64_t hidden : {7169, 16384, 40001})
      cases.push_back({.sizes = {5, 3, 3, 4}, .hidden = hidden, .row_type = type});
  cases.push_back({.sizes = {3, 8, 9, 3}, .hidden = 131072, .row_type = DType::bf16});
  sweep_on_device(cases);
}

TEST_F(DeviceMemory, every_alignment_and_row_distance) {
  std::vector<Case> cases;
  for (const DType type : {DType::bf16, DType::f32})
    for (const int32_t top_k : {1, 2, 4})
      for (const int64_t offset : {0, 1, 2, 4, 8, 16})
        for (const int64_t gap : {0, 1, 2, 4})
          cases.push_back(
              {.sizes = {19, top_k, 5, 6}, .hidden = 96, .row_type = type, .gap = gap, .offset_bytes = offset});
  sweep_on_device(cases);
}

TEST_F(DeviceMemory, more_experts_and_rows_than_a_grid_dimension_or_shared_memory_holds) {
  sweep_on_device({{.sizes = {300, 2, 65536, 1}, .hidden = 3},
                   {.sizes = {300, 2, 60000, 2}, .hidden = 8, .row_type = DType::bf16},
                   {.sizes = {700, 8, 65536, 1}, .hidden = 8, .row_type = DType::bf16},
                   {.sizes = {50, 2, 3, 65537}, .hidden = 3},
                   {.sizes = {70001, 1, 2, 65537}, .hidden = 1, .routing = Routing::all_first}});
}

TEST_F(DeviceMemory, rows_of_bytes_of_any_size_are_copied) {
  const Problem p(Case{.sizes = {40, 3, 6, 25}});
  const Stream stream;
  const OnDevice d(p, stream);
  Random random(5);
  for (const int32_t element_bytes : {1, 3, 5, 16, 24})
    for (const int64_t cols : {1, 7, 32}) {
      SCOPED_TRACE("element_bytes=" + std::to_string(element_bytes) + " cols=" + std::to_string(cols));
      Tensor x({40, cols, DType::bytes, element_bytes, 2, 1}, Memory::Use::input);
      for (int64_t t = 0; t < 40; ++t)
        for (int64_t i = 0; i < cols * element_bytes; ++i) x.row(t)[i] = static_cast<unsigned char>(random.bits());
      const Tensor out({p.c.sizes.expert_rows(), cols, DType::bytes, element_bytes, 1, 3}, Memory::Use::output);
      const DeviceTensor x_there(x, DeviceBytes::Use::input), y(out, DeviceBytes::Use::output);
      gather(d.plan.view(), x_there.view(), {}, y.view(), d.context);
      std::vector<unsigned char> expected(static_cast<size_t>(out.shape().rows * cols * element_bytes), 0);
      for (size_t a = 0; a < p.plan.row_of_assignment.size(); ++a)
        if (const int32_t row = p.plan.row_of_assignment[a]; row >= 0)
          std::copy_n(x.row(static_cast<int64_t>(a) / 3), cols * element_bytes,
                      expected.begin() + row * cols * element_bytes);
      ASSERT_TRUE(same_device_rows(y, expected));
    }
}

TEST_F(DeviceMemory, one_row_that_all_tokens_share) {
  Case c = {.sizes = {60, 4, 5, 50}, .hidden = 64, .row_type = DType::bf16};
  const Problem p(c);
  const Stream stream;
  const OnDevice d(p, stream);
  Tensor x({1, c.hidden, c.row_type}, Memory::Use::input);
  for (int64_t h = 0; h < c.hidden; ++h) x.set(0, h, static_cast<double>(h) - 20);
  const DeviceTensor x_there(x, DeviceBytes::Use::input), y = d.expert_rows_out();
  ConstRows shared = x_there.view();
  shared.rows = c.sizes.tokens;
  shared.stride = 0;
  gather(d.plan.view(), shared, {}, y.view(), d.context);
  oracle::Matrix all;
  for (int64_t t = 0; t < c.sizes.tokens; ++t)
    for (int64_t h = 0; h < c.hidden; ++h) all.push_back(x.get(0, h));
  EXPECT_TRUE(same_device_rows(y, encoded(oracle::gather(p.plan, all, {}, c.hidden, c.row_type), c.row_type)));
}

}  // namespace
}  // namespace test
