// The vector-core model, estimates: small traces whose times can be worked out by hand.
#include <nlohmann/json.hpp>

#include "model_support.h"

namespace test {
namespace {

/// Constants that are easy to add up: 1 ns a byte, 10 ns a block, 1000 ns latency, V 1 ns a repeat, no fill.
Profile round_numbers() {
  Profile p;
  p.vector_cores = 2;
  p.core_bytes_per_s = 1e9;
  p.gm_bytes_per_s = 1e12;
  p.copy_issue_ns = 10;
  p.latency_ns = 1000;
  p.vector_cycles_per_ns = 1;
  p.vector_fill_cycles = 0;
  p.scalar_call_ns = 0;
  p.scalar_read_ns = 0;
  p.scalar_operation_ns = 0;
  return p;
}

class ModelEstimate : public Model {
 protected:
  ModelEstimate() { reset(round_numbers()); }

  /// Nanoseconds of a launch, on fresh tensors.
  template <class Body>
  double ns(const Body& body, const ReplayOptions& options = {}, int32_t programs = 1) {
    machine_->launch("kernel", programs, body);
    const double seconds = machine_->estimate(options).core_seconds;
    reset(machine_->profile());
    return seconds * 1e9;
  }
};

TEST_F(ModelEstimate, a_copy_takes_its_bytes_or_its_blocks_and_the_latency) {
  EXPECT_DOUBLE_EQ(ns([&] {
                     Room room;
                     load(room.a, global(x), 16);
                   }),
                   64 + 1000);
  EXPECT_DOUBLE_EQ(ns([&] {
                     Room room;
                     DataCopyPad(room.a, global(x), DataCopyExtParams{16, 4, 0, 0, 0}, DataCopyPadExtParams<float>{});
                   }),
                   160 + 1000);
}

TEST_F(ModelEstimate, copies_follow_each_other_without_the_latency_and_share_one_port) {
  EXPECT_DOUBLE_EQ(ns([&] {
                     Room room;
                     load(room.a, global(x), 16);
                     load(room.a[64], global(x), 16);
                   }),
                   128 + 1000);
  EXPECT_DOUBLE_EQ(ns([&] {
                     Room room;
                     Duplicate(room.a[64], 1.0f, 16);  // 1 ns
                     room.order<HardEvent::V_MTE3>();
                     store(global(y), room.a[64], 16);
                     load(room.a, global(x), 16);  // issued later, but ready first
                   }),
                   128 + 1000);
}

TEST_F(ModelEstimate, a_wait_costs_the_latency_each_time) {
  EXPECT_DOUBLE_EQ(ns([&] {
                     Room room;
                     load(room.a, global(x), 16);  // to 1064
                     room.order<HardEvent::MTE2_V>();
                     Adds(room.a, room.a, 1.0f, 16);  // to 1065
                     room.order<HardEvent::V_MTE3>();
                     store(global(y), room.a, 16);
                   }),
                   64 + 1000 + 1 + 64 + 1000);
  EXPECT_DOUBLE_EQ(ns([&] {
                     Room room;
                     load(room.a, global(x), 16);
                     PipeBarrier<PIPE_MTE2>();
                     load(room.a, global(x), 16);
                   }),
                   2 * (64 + 1000));
}

TEST_F(ModelEstimate, vector_instructions_pay_for_repeats_and_for_filling) {
  Profile p = round_numbers();
  p.vector_fill_cycles = 20;
  p.vector_cycles_per_ns = 2;
  reset(p);
  EXPECT_DOUBLE_EQ(ns([&] {
                     Room room;
                     Duplicate(room.a, 1.0f, 65);
                   }),
                   (2 + 20) / 2.0);
  EXPECT_DOUBLE_EQ(ns([&] {
                     Room room(8192);
                     Duplicate(room.a, 1.0f, 128);
                     PipeBarrier<PIPE_V>();
                     ReduceSum(room.a[256], room.a, room.a[512], 128);  // two repeats, then their sums
                   }),
                   (2 + 20 + 2 + 40) / 2.0);
}

TEST_F(ModelEstimate, the_scalar_unit_counts_and_can_be_slowed_down) {
  Profile p = round_numbers();
  p.scalar_call_ns = 6;
  p.scalar_read_ns = 3;
  p.scalar_operation_ns = 1.5;
  reset(p);
  const auto kernel = [&] {
    Room room;
    room.a.SetValue(0, 1.0f);
    room.a.GetValue(0);
    BINMOE_SCALAR(4);
    Duplicate(room.a[8], 1.0f, 8);  // a call, then 1 ns of V
  };
  EXPECT_DOUBLE_EQ(ns(kernel), 1.5 + 3 + 6 + 6 + 1);
  EXPECT_DOUBLE_EQ(ns(kernel, {2, 0}), 2 * (1.5 + 3 + 6 + 6) + 1);
}

TEST_F(ModelEstimate, the_scalar_unit_waits_for_flags_and_others_wait_for_its_own) {
  Profile p = round_numbers();
  p.scalar_read_ns = 3;
  p.scalar_operation_ns = 2;
  reset(p);
  EXPECT_DOUBLE_EQ(ns([&] {
                     Room room;
                     load(room.a, global(x), 16);
                     room.order<HardEvent::MTE2_S>();
                     room.a.SetValue(0, room.a.GetValue(1));
                     room.order<HardEvent::S_MTE3>();
                     store(global(y), room.a, 16);
                   }),
                   64 + 1000 + 3 + 2 + 64 + 1000);
}

TEST_F(ModelEstimate, a_short_issue_queue_holds_the_scalar_unit_back) {
  // V waits for a long copy; eight instructions wait in its queue; the load behind them is issued only when one leaves.
  const auto kernel = [&] {
    Room room;
    load(room.a, global(x), 16);
    room.order<HardEvent::MTE2_V>();
    for (uint32_t i = 0; i < 10; ++i) Adds(room.a[64 + 8 * i], room.a, 1.0f, 8);
    load(room.a[200], global(x), 16);
  };
  EXPECT_DOUBLE_EQ(ns(kernel), 64 + 64 + 1000);
  EXPECT_DOUBLE_EQ(ns(kernel, {1, 8}), 64 + 1000 + 1 + 64 + 1000);
  EXPECT_DOUBLE_EQ(ns(kernel, {1, 16}), 64 + 64 + 1000);
}

TEST_F(ModelEstimate, cores_run_beside_each_other_and_their_programs_in_turn) {
  const auto kernel = [&] {
    Room room;
    for (int64_t i = 0; i <= GetBlockIdx(); ++i) load(room.a[static_cast<uint32_t>(i) * 16], global(x), 16);
  };
  EXPECT_DOUBLE_EQ(ns(kernel, {}, 2), 128 + 1000);
  EXPECT_DOUBLE_EQ(ns(kernel, {}, 3), 64 + 1000 + 192 + 1000);
}

TEST_F(ModelEstimate, the_chip_bounds_the_sum_and_launches_add_up) {
  Profile p = round_numbers();
  p.gm_bytes_per_s = 1e6;
  reset(p);
  for (int i = 0; i < 2; ++i)
    machine_->launch("kernel", 1, [&] {
      Room room;
      load(room.a, global(x), 16);
    });
  const Estimate e = machine_->estimate();
  EXPECT_DOUBLE_EQ(e.memory_seconds, 2 * 64e-6);
  EXPECT_DOUBLE_EQ(e.core_seconds, 2 * 1064e-9);
  EXPECT_DOUBLE_EQ(e.seconds, e.memory_seconds);
  EXPECT_DOUBLE_EQ(e.busy_seconds[index_of(Pipe::mte2)], 2 * 64e-9);
}

TEST_F(ModelEstimate, a_barrier_of_all_pipes_waits_for_all) {
  EXPECT_DOUBLE_EQ(ns([&] {
                     Room room;
                     load(room.a, global(x), 16);
                     PipeBarrier<PIPE_ALL>();
                     Duplicate(room.a, 1.0f, 8);
                   }),
                   64 + 1000 + 1);
}

TEST_F(ModelEstimate, tensors_without_memory_cost_the_same) {
  const GM_ADDR big = machine_->bind_without_memory("big", int64_t{1} << 38, Role::input);
  const GM_ADDR out = machine_->bind_without_memory("out", int64_t{1} << 38, Role::output);
  const int64_t far = (int64_t{1} << 38) - 64;
  machine_->launch("kernel", 1, [&] {
    Room room;
    load(room.a, global(big + far), 16);
    room.order<HardEvent::MTE2_MTE3>();
    store(global(out + far), room.a, 16);
  });
  EXPECT_NEAR(machine_->estimate().core_seconds, 2 * 1064e-9, 1e-15);
  EXPECT_EQ(machine_->written("out"), (std::vector<ByteRange>{{far, far + 64}}));
}

TEST_F(ModelEstimate, the_chrome_trace_is_json_with_every_copy) {
  machine_->launch("kernel \"quoted\"", 3, [&] {
    Room room;
    load(room.a, global(x), 16);
    room.order<HardEvent::MTE2_V>();
    Adds(room.a[64], room.a, 1.0f, 16);
  });
  const auto json = nlohmann::json::parse(machine_->chrome_trace(machine_->launches()[0]));
  EXPECT_EQ(json["otherData"]["kernel"], "kernel \"quoted\"");
  int copies = 0, vectors = 0;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const bool second = event["ts"].get<double>() > 1.0 && event["name"] == "DataCopyPad";
    if (event["name"] == "DataCopyPad") {
      ++copies;
      EXPECT_EQ(event["tid"], 2);
      EXPECT_EQ(event["args"]["bytes"], 64);
      EXPECT_NEAR(event["dur"].get<double>(), 0.064, 1e-9);
      if (second) {
        EXPECT_EQ(event["pid"], 0);  // the third program, on the first of two cores
      }
    }
    vectors += event["name"] == "Adds";
  }
  EXPECT_EQ(copies, 3);
  EXPECT_EQ(vectors, 3);
}

}  // namespace
}  // namespace test
