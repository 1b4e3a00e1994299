// binmoe demo: the main job on a recorded trace, each step timed and compared with the reference backend.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "array.h"
#include "commands.h"
#include "load.h"
#include "progress.h"

namespace binmoe::cli {
namespace {

constexpr CommandText kText = {"demo", "Run the main job on a recorded trace, checked against the reference backend.",
                               R"(Steps:
  plan, gather, an expert step (expert e scales its rows), scatter with the trace's weights;
  then backward: scatter-backward (dz, dw), the expert step's, gather-backward (dx).
  Rows are bf16 and made up from a counter; ids and weights are those of the trace.
  Every result must equal the reference backend's bit for bit; dw must lie within
  hidden_size * 2^-24 * sum |z*grad|. A time is the least of five runs.

Example:
  binmoe demo
  binmoe demo --data /usr/share/binmoe --trace mixtral-8x7b_github_rebuilt_layer15 --num-experts 8)"};

constexpr double kCapacityFactor = 1.25;
constexpr int kRuns = 5;

struct DemoOptions {
  std::string data = "data", trace = "flame-moe-290m_layer05";
  std::optional<int64_t> num_experts, hidden_size;
};

float to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t to_bf16(float value) {  // finite values only; nearest even
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/// bf16 rows in memory of their own.
struct Matrix {
  Matrix(const char* name, int64_t rows_, int64_t cols_) : array(make_array(name, DType::bf16, {rows_, cols_})) {
    std::memset(array.data.get(), 0xff, array.bytes);  // NaN: what is not written shows
  }
  Rows view() { return {array.data.get(), array.extent(0), array.extent(1), array.extent(1), DType::bf16, 0}; }
  uint16_t* values() { return reinterpret_cast<uint16_t*>(array.data.get()); }
  Array array;
};

/// Values in (-2, 2) from a counter: an odd multiplier spreads it, the top 8 bits are kept.
void fill(Matrix& matrix, uint32_t seed) {
  const int64_t count = matrix.array.extent(0) * matrix.array.extent(1);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t hash = (static_cast<uint32_t>(i) ^ seed << 24) * 2654435761U;
    matrix.values()[i] = to_bf16((static_cast<float>(hash >> 24) - 127.5F) / 64.0F);
  }
}

/// The expert step: z[e] = (1 + e/8) * y[e]. Linear, so it is its own backward.
void scale_by_expert(const Sizes& sizes, Matrix& from, Matrix& to) {
  const int64_t per_expert = sizes.expert_capacity * from.array.extent(1);
  for (int32_t e = 0; e < sizes.num_experts; ++e) {
    const float scale = 1.0F + static_cast<float>(e) / 8.0F;
    for (int64_t i = e * per_expert; i < (e + 1) * per_expert; ++i)
      to.values()[i] = to_bf16(scale * to_float(from.values()[i]));
  }
}

struct Step {
  std::string name;
  double us = 0;
  std::string verdict;  ///< empty = not checked
  bool sound = true;
};

class Demo {
 public:
  Demo(const DemoOptions& options, Common& common);
  void run();

 private:
  void time_step(const char* name, const std::function<void()>& work);
  void judge(bool sound, const char* verdict);
  /// Run `work` into a fresh matrix on the reference backend and compare bits.
  void compare(Matrix& got, const std::function<void(const Rows&)>& work);
  bool weight_gradients_sound(const std::vector<float>& dw, Matrix& z, Matrix& grad);
  void report() const;

  Common& common_;
  Context context_, reference_;
  Progress progress_;
  Array ids_, weights_array_;
  std::string trace_;
  Sizes sizes_;
  int64_t hidden_;
  Plan plan_;
  std::vector<Step> steps_;
};

Demo::Demo(const DemoOptions& options, Common& common)
    : common_(common), context_(common.context()), trace_(options.trace) {
  reference_.backend = &find_backend("reference");
  hidden_ = to_int32("--hidden-size", options.hidden_size.value_or(1024), 1);
  const auto file = [&](const char* suffix) {
    return std::filesystem::path(options.data) / "traces" / (options.trace + suffix);
  };
  if (!std::filesystem::exists(file("_ids.npy")))
    throw Failure(kBadData, file("_ids.npy").string() + ": there is no such trace; name the folder data with --data");
  ids_ = read_array(file("_ids.npy"));
  require_dimensions(ids_, 2, "[tokens, top_k]");
  sizes_.tokens = ids_.extent(0);
  sizes_.top_k = to_int32("top_k", ids_.extent(1), 1);
  sizes_.num_experts = to_int32("--num-experts", options.num_experts.value_or(64), 1);
  sizes_.expert_capacity = expert_capacity(kCapacityFactor, sizes_.tokens, sizes_.top_k, sizes_.num_experts);
  if (std::filesystem::exists(file("_weights.npy"))) {
    weights_array_ = read_array(file("_weights.npy"));
  } else {  // not recorded: every choice weighs the same
    weights_array_ = make_array("weights", DType::f32, {sizes_.tokens, sizes_.top_k});
    std::fill_n(reinterpret_cast<float*>(weights_array_.data.get()), sizes_.assignments(),
                1.0F / static_cast<float>(sizes_.top_k));
  }
}

void Demo::time_step(const char* name, const std::function<void()>& work) {
  progress_.step(name);
  double best = 0;
  for (int i = 0; i < kRuns; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
    best = i == 0 ? taken.count() : std::min(best, taken.count());
  }
  steps_.push_back({name, best, "", true});
}

void Demo::judge(bool sound, const char* verdict) {
  Step& step = steps_.back();
  step.sound = step.sound && sound;
  step.verdict += (step.verdict.empty() ? "" : "; ") + std::string(sound ? verdict : "DIFFERS from the reference");
}

void Demo::compare(Matrix& got, const std::function<void(const Rows&)>& work) {
  progress_.step("checking " + steps_.back().name);
  Matrix expected("reference", got.array.extent(0), got.array.extent(1));
  work(expected.view());
  judge(std::memcmp(expected.array.data.get(), got.array.data.get(), got.array.bytes) == 0,
        "equals the reference bit for bit");
}

bool Demo::weight_gradients_sound(const std::vector<float>& dw, Matrix& z, Matrix& grad) {
  for (int64_t a = 0; a < sizes_.assignments(); ++a) {
    const int64_t row = plan_.row_of_assignment()[static_cast<size_t>(a)];
    double exact = 0, magnitude = 0;
    for (int64_t h = 0; row >= 0 && h < hidden_; ++h) {
      const double product =
          double{to_float(z.values()[row * hidden_ + h])} * to_float(grad.values()[a / sizes_.top_k * hidden_ + h]);
      exact += product;
      magnitude += std::fabs(product);
    }
    const double bound = static_cast<double>(hidden_) * 0x1p-24 * magnitude;
    if (!(std::fabs(dw[static_cast<size_t>(a)] - exact) <= bound)) return false;
  }
  return true;
}

void Demo::run() {
  const Ids ids = ids_of(ids_);
  const Weights weights = weights_of(weights_array_, sizes_, false);
  const int64_t rows = sizes_.expert_rows(), tokens = sizes_.tokens;
  plan_ = Plan(sizes_);
  time_step("plan", [&] { plan(ids, DropPolicy::token_order, {}, plan_.view(), context_); });
  const Plan expected = make_plan(ids, sizes_, DropPolicy::token_order, {}, reference_);
  judge(std::ranges::equal(expected.indices(), plan_.indices()) && std::ranges::equal(expected.bins(), plan_.bins()) &&
            std::ranges::equal(expected.row_of_assignment(), plan_.row_of_assignment()) && !check(plan_),
        "equals the reference bit for bit");

  Matrix x("x", tokens, hidden_), y("y", rows, hidden_), z("z", rows, hidden_), out("out", tokens, hidden_);
  fill(x, 1);
  time_step("gather", [&] { gather(plan_, x.view(), {}, y.view(), context_); });
  compare(y, [&](const Rows& to) { gather(plan_, x.view(), {}, to, reference_); });
  time_step("expert step", [&] { scale_by_expert(sizes_, y, z); });
  time_step("scatter", [&] { scatter(plan_, z.view(), weights, out.view(), context_); });
  compare(out, [&](const Rows& to) { scatter(plan_, z.view(), weights, to, reference_); });

  Matrix grad("grad", tokens, hidden_), dz("dz", rows, hidden_), dx("dx", tokens, hidden_);
  std::vector<float> dw(static_cast<size_t>(sizes_.assignments()));
  const WeightGradients dw_view{dw.data(), sizes_.assignments(), DType::f32};
  fill(grad, 2);
  time_step("scatter-backward",
            [&] { scatter_backward(plan_, z.view(), grad.view(), weights, dz.view(), dw_view, context_); });
  compare(dz, [&](const Rows& to) { scatter_backward(plan_, {}, grad.view(), weights, to, {}, reference_); });
  judge(weight_gradients_sound(dw, z, grad), "dw within its bound");
  Matrix& dy = y;  // y is not needed any more
  time_step("expert backward", [&] { scale_by_expert(sizes_, dz, dy); });
  time_step("gather-backward", [&] { gather_backward(plan_, dy.view(), {}, {}, dx.view(), {}, context_); });
  compare(dx, [&](const Rows& to) { gather_backward(plan_, dy.view(), {}, {}, to, {}, reference_); });
  report();
}

void Demo::report() const {
  bool sound = true;
  std::string text = "trace " + trace_ + ", bf16 rows, hidden size " + std::to_string(hidden_) +
                     ", capacity factor 1.25\n" + load_text(plan_, DropPolicy::token_order) + "steps, backend " +
                     context_.backend->name + ", " + std::to_string(context_.executor->concurrency()) + " threads\n";
  nlohmann::ordered_json out = {{"trace", trace_}, {"backend", context_.backend->name}};
  for (const Step& step : steps_) {
    char line[160];
    std::snprintf(line, sizeof line, "  %-17s %10.0f us%s%s\n", step.name.c_str(), step.us,
                  step.verdict.empty() ? "" : "  ", step.verdict.c_str());
    text += line;
    sound = sound && step.sound;
    out["steps"].push_back(
        {{"step", step.name}, {"us", step.us}, {"checked", !step.verdict.empty()}, {"sound", step.sound}});
  }
  out["sound"] = sound;
  print(common_.json ? out.dump() + "\n" : text);
  if (!sound) throw Failure(kBadData, "demo: a step differs from the reference");
}

}  // namespace

void add_demo(CLI::App& app, Common& common) {
  const auto options = std::make_shared<DemoOptions>();
  CLI::App& command = add_command(app, common, kText);
  command.add_option("--data", options->data, "Folder that holds traces/ (default: data)")->type_name("DIR");
  command.add_option("--trace", options->trace, "Which trace (default: flame-moe-290m_layer05)")->type_name("NAME");
  add_number(command, "--num-experts", options->num_experts, "E of that trace (default: 64)");
  add_number(command, "--hidden-size", options->hidden_size, "H (default: 1024)");
  command.callback([options, &common] { Demo(*options, common).run(); });
}

}  // namespace binmoe::cli
