// The backend table, the choice of a backend, options, and proof that the backend asked for is the one that ran.
#include <cstdlib>

#include "problem.h"

namespace test {
namespace {

/// Runs inline and counts: every call, and those that could use a second thread.
class CountingExecutor final : public Executor {
 public:
  int concurrency() const override { return 2; }
  void parallel_for(int64_t chunks, void (*body)(void*, int64_t), void* argument) override {
    ++calls;
    split_calls += chunks > 1;
    for (int64_t i = 0; i < chunks; ++i) body(argument, i);
  }
  int calls = 0, split_calls = 0;
};

class ScopedBackend {
 public:
  explicit ScopedBackend(const char* value) { value == nullptr ? unsetenv(kName) : setenv(kName, value, 1); }
  ~ScopedBackend() { unsetenv(kName); }

 private:
  static constexpr const char* kName = "BINMOE_BACKEND";
};

const Backend* entry(const std::string& name) {
  for (const Backend& backend : backends())
    if (name == backend.name) return &backend;
  return nullptr;
}

/// The cpu backend, or null where it cannot run.
const Backend* cpu() {
  const Backend* found = entry("cpu");
  return found != nullptr && found->unsupported == nullptr ? found : nullptr;
}

TEST(Backends, the_table_lists_every_known_one_with_a_description) {
  ASSERT_EQ(backends().size(), 4u);
  EXPECT_STREQ(backends()[0].name, "cuda");
  EXPECT_EQ(backends()[0].memory, binmoe::Memory::cuda);
  EXPECT_STREQ(backends()[1].name, "cpu");
  EXPECT_STREQ(backends()[2].name, "reference");
  EXPECT_EQ(backends()[2].unsupported, nullptr);
  EXPECT_STREQ(backends()[3].name, "ascend-model");
  EXPECT_TRUE(backends()[3].by_name_only);
  for (const Backend& backend : backends()) EXPECT_GT(std::string(backend.description).size(), 3u);
}

TEST(Backends, one_is_found_by_its_name) {
  EXPECT_STREQ(find_backend("reference").name, "reference");
  EXPECT_TRUE(refuses([] { find_backend("gpu"); }, "backend",
                      "no backend is called 'gpu'; there are: cuda, cpu, reference, ascend-model"));
  EXPECT_TRUE(refuses([] { find_backend(""); }, "backend", "no backend is called ''"));
  EXPECT_TRUE(refuses([] { find_backend("referenc"); }, "backend", "no backend is called 'referenc'"));
}

TEST(Backends, the_environment_names_the_default) {
  {
    const ScopedBackend chosen("reference");
    EXPECT_STREQ(default_backend().name, "reference");
  }
  for (const char* unset : {static_cast<const char*>(nullptr), ""}) {
    const ScopedBackend chosen(unset);
    EXPECT_STREQ(default_backend().name, cpu() != nullptr ? "cpu" : "reference");
  }
  const ScopedBackend chosen("nonsense");
  EXPECT_TRUE(refuses([] { default_backend(); }, "backend",
                      "BINMOE_BACKEND: no backend is called 'nonsense'; there are: cuda, cpu, ref"));
}

TEST(Backends, one_of_device_memory_is_the_default_for_such_arrays_alone) {
  const Backend* cuda = entry("cuda");
  const ScopedBackend host_only("reference");
  if (cuda->unsupported == nullptr)
    EXPECT_EQ(&default_backend(binmoe::Memory::cuda), cuda);
  else
    EXPECT_TRUE(
        refuses([] { default_backend(binmoe::Memory::cuda); }, "backend", "the backend cuda cannot run here: "));
}

TEST(Backends, one_of_the_host_refuses_arrays_on_a_device) {
  const Problem p(Case{.sizes = {4, 2, 3, 2}});
  Tensor y = p.expert_rows_out();
  const auto before = y.all_bytes();
  Context context;
  context.backend = entry("reference");
  context.memory = binmoe::Memory::cuda;
  const std::string part = "the arrays are on a device, but the backend reference ";
  EXPECT_TRUE(refuses([&] { gather(p.plan_view(), p.x.view(), {}, y.view(), context); }, "gather", part));
  EXPECT_TRUE(refuses([&] { check(p.plan_view(), context); }, "check", part));
  EXPECT_EQ(y.all_bytes(), before);
}

TEST(Backends, a_plan_made_on_the_host_has_a_clean_status) {
  const Problem p(Case{.sizes = {4, 2, 3, 2}});
  for (const Variant& variant : variants()) {
    Plan made(p.c.sizes);
    int64_t status[] = {7, 7, 7};
    PlanView view = made.view();
    view.status = status;
    plan(p.id_array.view(), p.c.policy, {}, view, variant.context());
    EXPECT_EQ(std::vector<int64_t>(status, status + 3), (std::vector<int64_t>{0, -1, 0})) << variant.name;
    EXPECT_FALSE(check(view));
    status[0] = 2, status[1] = 5, status[2] = 9;
    const auto fault = check(view);
    ASSERT_TRUE(fault);
    EXPECT_STREQ(fault->check, "expert_id_range");
    EXPECT_EQ(fault->position, 5);
    EXPECT_EQ(fault->value, 9);
  }
}

TEST(Backends, an_unknown_name_in_the_environment_stops_a_call_and_never_falls_back) {
  const Problem p(Case{.sizes = {4, 2, 3, 2}});
  Tensor y = p.expert_rows_out();
  const auto before = y.all_bytes();
  const ScopedBackend chosen("nonsense");
  EXPECT_TRUE(refuses([&] { gather(p.plan_view(), p.x.view(), {}, y.view()); }, "backend",
                      "BINMOE_BACKEND: no backend is called 'nonsense'"));
  EXPECT_EQ(y.all_bytes(), before);
}

TEST(Backends, an_unsupported_one_is_refused_with_its_reason) {
  const Problem p(Case{.sizes = {4, 2, 3, 2}});
  Tensor y = p.expert_rows_out();
  Backend broken = *entry("reference");
  broken.name = "broken";
  broken.unsupported = "it was made for this test";
  Context context;
  context.backend = &broken;
  EXPECT_TRUE(refuses([&] { gather(p.plan_view(), p.x.view(), {}, y.view(), context); }, "gather",
                      "the backend broken cannot run here: it was made for this test"));
  if (cpu() != nullptr) return;
  EXPECT_TRUE(refuses([] { find_backend("cpu"); }, "backend", "the backend cpu cannot run here: "));
  const ScopedBackend chosen("cpu");
  EXPECT_TRUE(refuses([] { default_backend(); }, "backend", "BINMOE_BACKEND: the backend cpu cannot run here: "));
}

CountingExecutor executor_after(const Backend* backend, const Case& c) {
  const Problem p(c);
  CountingExecutor executor;
  Context context;
  context.backend = backend;
  context.executor = &executor;
  Plan made(c.sizes);
  plan(p.id_array.view(), c.policy, {}, made.view(), context);
  Tensor y = p.expert_rows_out(), out = p.token_rows_out();
  gather(p.plan_view(), p.x.view(), {}, y.view(), context);
  scatter(p.plan_view(), p.y.view(), {}, out.view(), context);
  return executor;
}

constexpr Case kLargeWork = {.sizes = {3000, 4, 16, 800}, .hidden = 200};

TEST(Backends, the_one_asked_for_is_the_one_that_runs) {
  EXPECT_EQ(executor_after(&find_backend("reference"), kLargeWork).calls, 0) << "the reference never uses threads";
  {
    const ScopedBackend chosen("reference");
    EXPECT_EQ(executor_after(nullptr, kLargeWork).calls, 0) << "BINMOE_BACKEND=reference was not obeyed";
  }
  if (cpu() == nullptr) GTEST_SKIP() << "cpu: " << entry("cpu")->unsupported;
  EXPECT_GE(executor_after(cpu(), kLargeWork).split_calls, 3) << "cpu splits large work: plan, gather, scatter";
  EXPECT_GE(executor_after(nullptr, kLargeWork).split_calls, 3) << "cpu is the default";
  const ScopedBackend chosen("reference");
  EXPECT_GE(executor_after(cpu(), kLargeWork).split_calls, 3) << "the caller's choice is stronger than BINMOE_BACKEND";
}

TEST(Backends, small_work_of_cpu_stays_on_the_calling_thread) {
  if (cpu() == nullptr) GTEST_SKIP() << "cpu: " << entry("cpu")->unsupported;
  EXPECT_EQ(executor_after(cpu(), Case{.sizes = {4, 2, 3, 2}, .hidden = 8}).split_calls, 0);
}

std::string complaint(const Backend* backend, const char* options) {
  const Problem p(Case{.sizes = {4, 2, 3, 2}});
  Tensor y = p.expert_rows_out();
  const auto before = y.all_bytes();
  Context context;
  context.backend = backend;
  context.options = options;
  const std::string text = refusal([&] { gather(p.plan_view(), p.x.view(), {}, y.view(), context); });
  const bool written = y.all_bytes() != before;
  EXPECT_EQ(written, text == "nothing was thrown");
  return text;
}

TEST(Options, the_reference_takes_none) {
  const Backend* reference = &find_backend("reference");
  EXPECT_TRUE(backend_options(*reference).empty());
  EXPECT_EQ(complaint(reference, "target=avx2"), "[gather] the backend reference takes no options");
  EXPECT_EQ(complaint(reference, ""), "nothing was thrown");
}

TEST(Options, cpu_takes_its_listed_values_and_refuses_others) {
  if (cpu() == nullptr) GTEST_SKIP() << "cpu: " << entry("cpu")->unsupported;
  const auto options = backend_options(*cpu());
  ASSERT_FALSE(options.empty());
  for (const BackendOption& option : options) {
    EXPECT_FALSE(option.description.empty());
    for (const std::string& value : option.values)
      EXPECT_EQ(complaint(cpu(), (option.key + "=" + value).c_str()), "nothing was thrown");
    EXPECT_NE(complaint(cpu(), (option.key + "=nonsense").c_str()).find("nonsense"), std::string::npos);
    EXPECT_NE(complaint(cpu(), (option.key + "=").c_str()), "nothing was thrown") << option.key;
  }
  EXPECT_NE(complaint(cpu(), "colour=red").find("colour"), std::string::npos);
  for (const char* bad :
       {"=", ",", "target", "stream_bytes=-1", "stream_bytes=1x", "stream_bytes=99999999999999999999"})
    EXPECT_NE(complaint(cpu(), bad), "nothing was thrown") << bad;
}

TEST(Version, is_the_projects) {
  EXPECT_STREQ(version(), BINMOE_TEST_VERSION);
}

}  // namespace
}  // namespace test
