// The vector-core model, mutations: each kind at its one site, in each mode; and machines in several threads.
#include <thread>

#include "model_support.h"

namespace test {
namespace {

constexpr uint32_t kRows = 16;

struct Lines {
  int set = 0, wait = 0, enque = 0, deque = 0, free_tensor = 0, barrier = 0, bound = 0;
};
Lines lines;

/// Doubles rows through a queue and a pair of explicit flags: everything that can be mutated, once on a line.
void double_rows(GM_ADDR in, GM_ADDR out, uint32_t rows) {
  TPipe pipe;
  TQue<TPosition::VECIN, 2> queue;
  TBuf<TPosition::VECCALC> buffer;
  pipe.InitBuffer(queue, 1, 64);
  pipe.InitBuffer(buffer, 64);
  const auto sum = buffer.Get<float>();
  const TEventID done = pipe.AllocEventID<HardEvent::V_MTE3>(), gone = pipe.AllocEventID<HardEvent::MTE3_V>();
  GlobalTensor<float> from, to;
  from.SetGlobalBuffer(reinterpret_cast<float*>(in), kRows * 16);
  to.SetGlobalBuffer(reinterpret_cast<float*>(out), kRows * 16);
  lines.bound = __LINE__ + 1;
  const uint32_t last = BINMOE_BOUND(rows < kRows ? rows : kRows, rows);
  for (uint32_t row = 0; row < last; ++row) {
    auto a = queue.AllocTensor<float>();
    load(a, from[row * 16], 16);
    lines.enque = __LINE__, queue.EnQue(a);
    lines.deque = __LINE__, a = queue.DeQue<float>();
    if (row > 0) WaitFlag<HardEvent::MTE3_V>(gone);
    Adds(sum, a, 0.0f, 16);
    lines.barrier = __LINE__, PipeBarrier<PIPE_V>();
    Add(sum, sum, a, 16);
    lines.free_tensor = __LINE__, queue.FreeTensor(a);
    lines.set = __LINE__, SetFlag<HardEvent::V_MTE3>(done);
    lines.wait = __LINE__, WaitFlag<HardEvent::V_MTE3>(done);
    store(to[row * 16], sum, 16);
    SetFlag<HardEvent::MTE3_V>(gone);
  }
  WaitFlag<HardEvent::MTE3_V>(gone);
  pipe.ReleaseEventID<HardEvent::V_MTE3>(done);
  pipe.ReleaseEventID<HardEvent::MTE3_V>(gone);
}

struct Outcome {
  std::string rule;
  std::vector<SiteHits> sites;
  std::vector<float> y;
};

Outcome run(std::optional<Mutation> mutation, uint32_t rows = kRows) {
  Machine machine{Profile{}};
  if (mutation) machine.mutate(*mutation);
  std::vector<float> x(kRows * 16), y(kRows * 16);
  std::iota(x.begin(), x.end(), 0.0f);
  const GM_ADDR in = machine.bind("x", x.data(), kRows * 64, Role::input);
  const GM_ADDR out = machine.bind("y", y.data(), kRows * 64, Role::output);
  Outcome outcome;
  try {
    machine.launch("double_rows", 1, [&] { double_rows(in, out, rows); });
    machine.expect_written_once("y");
  } catch (const ModelFault& fault) {
    outcome.rule = fault.rule;
  }
  outcome.sites = machine.sites();
  outcome.y = y;
  return outcome;
}

TEST(ModelMutation, the_kernel_is_right_and_its_sites_are_counted) {
  const Outcome plain = run({});
  EXPECT_EQ(plain.rule, "");
  for (uint32_t i = 0; i < kRows * 16; ++i) ASSERT_EQ(plain.y[i], 2.0f * static_cast<float>(i));
  ASSERT_EQ(plain.sites.size(), 10u);
  const auto hits = [&](Kind kind, int line) -> int64_t {
    for (const SiteHits& s : plain.sites)
      if (s.kind == kind && s.site.line == line && s.site.file == __FILE__) return s.hits;
    return -1;
  };
  EXPECT_EQ(hits(Kind::enque, lines.enque), 16);
  EXPECT_EQ(hits(Kind::deque, lines.deque), 16);
  EXPECT_EQ(hits(Kind::free_tensor, lines.free_tensor), 16);
  EXPECT_EQ(hits(Kind::set_flag, lines.set), 16);
  EXPECT_EQ(hits(Kind::wait_flag, lines.wait), 16);
  EXPECT_EQ(hits(Kind::pipe_barrier, lines.barrier), 16);
  EXPECT_EQ(hits(Kind::bound, lines.bound), 1);
}

TEST(ModelMutation, each_mode_has_its_effect) {
  run({});  // fills `lines`
  const auto rule_of = [](Kind kind, int line, Mode mode) { return run(Mutation{kind, {__FILE__, line}, mode}).rule; };
  EXPECT_EQ(rule_of(Kind::set_flag, lines.set, Mode::skip), rule::kWait);
  EXPECT_EQ(rule_of(Kind::wait_flag, lines.wait, Mode::skip), rule::kRace);
  EXPECT_EQ(rule_of(Kind::enque, lines.enque, Mode::skip), rule::kHang);
  EXPECT_EQ(rule_of(Kind::deque, lines.deque, Mode::skip), rule::kQueue);
  EXPECT_EQ(rule_of(Kind::free_tensor, lines.free_tensor, Mode::skip), rule::kHang);
  EXPECT_EQ(rule_of(Kind::pipe_barrier, lines.barrier, Mode::skip), rule::kBarrier);
  EXPECT_EQ(rule_of(Kind::set_flag, lines.set, Mode::edge), rule::kRace);
  EXPECT_EQ(rule_of(Kind::wait_flag, lines.wait, Mode::edge), rule::kRace);
  EXPECT_EQ(rule_of(Kind::enque, lines.enque, Mode::edge), rule::kRace);
  EXPECT_EQ(rule_of(Kind::deque, lines.deque, Mode::edge), rule::kRace);
  EXPECT_EQ(rule_of(Kind::free_tensor, lines.free_tensor, Mode::edge), rule::kRace);
  EXPECT_EQ(rule_of(Kind::pipe_barrier, lines.barrier, Mode::edge), rule::kBarrier);
}

TEST(ModelMutation, a_bound_can_be_lifted) {
  EXPECT_EQ(run({}, kRows + 1).rule, "");
  EXPECT_EQ(run(Mutation{Kind::bound, {__FILE__, lines.bound}, Mode::unbound}, kRows + 1).rule, rule::kGlobal);
}

TEST(ModelMutation, another_line_kind_or_file_changes_nothing) {
  EXPECT_EQ(run(Mutation{Kind::set_flag, {__FILE__, lines.set + 1}, Mode::skip}).rule, "");
  EXPECT_EQ(run(Mutation{Kind::wait_flag, {__FILE__, lines.set}, Mode::skip}).rule, "");
  EXPECT_EQ(run(Mutation{Kind::set_flag, {"other.cc", lines.set}, Mode::skip}).rule, "");
}

TEST(ModelMutation, a_thousand_sites_keep_their_numbers) {
  constexpr const char* kFile = "a.h";
  Sites sites;
  std::vector<SiteId> ids;
  for (int line = 1; line <= 1000; ++line) ids.push_back(sites.hit(Call::set_flag, {kFile, line}));
  for (int line = 1; line <= 1000; ++line)
    ASSERT_EQ(sites.hit(Call::set_flag, {kFile, line}), ids[static_cast<size_t>(line) - 1]) << line;
  const std::vector<SiteHits> all = sites.mutable_sites();
  ASSERT_EQ(all.size(), 1000u);
  for (const SiteHits& site : all) EXPECT_EQ(site.hits, 2);
}

TEST(ModelMutation, machines_in_several_threads_do_not_meet) {
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (size_t t = 0; t < right.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        Machine machine{Profile{}};
        std::vector<float> x(64, static_cast<float>(t)), y(64);
        const GM_ADDR in = machine.bind("x", x.data(), 256, Role::input);
        const GM_ADDR out = machine.bind("y", y.data(), 256, Role::output);
        machine.launch("copy", 4, [&] {
          Room room;
          GlobalTensor<float> from, to;
          from.SetGlobalBuffer(reinterpret_cast<float*>(in), 64);
          to.SetGlobalBuffer(reinterpret_cast<float*>(out), 64);
          load(room.a, from[static_cast<uint64_t>(GetBlockIdx()) * 16], 16);
          room.order<HardEvent::MTE2_MTE3>();
          store(to[static_cast<uint64_t>(GetBlockIdx()) * 16], room.a, 16);
        });
        right[t] += x == y;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 20));
}

}  // namespace
}  // namespace test
