// The vector-core model, copies and global memory: strides, padding, limits, bounds, writers and readers of a launch.
#include "model_support.h"

namespace test {
namespace {

using ModelCopy = Model;
using Pad = DataCopyPadExtParams<float>;

TEST_F(ModelCopy, strides_are_bytes_in_global_memory_and_blocks_in_UB) {
  machine_->launch("kernel", 1, [&] {
    Room room;
    // Three blocks of 5 floats, 12 floats apart; in UB one block of 32 bytes each, and two empty ones between.
    DataCopyPad(room.a, global(x), DataCopyExtParams{3, 20, 28, 2, 0}, Pad{});
    room.order<HardEvent::MTE2_S>();
    for (uint32_t block = 0; block < 3; ++block)
      for (uint32_t i = 0; i < 5; ++i)
        EXPECT_EQ(room.a.GetValue(block * 24 + i), x_[block * 12 + i]) << block << " " << i;
    room.order<HardEvent::MTE2_MTE3>();
    DataCopyPad(global(y)[1], room.a, DataCopyExtParams{3, 20, 2, 4, 0});
  });
  for (uint32_t i = 0; i < kCount; ++i) {
    const uint32_t block = (i - 1) / 6, in_block = (i - 1) % 6;
    const bool copied = i >= 1 && block < 3 && in_block < 5;
    EXPECT_EQ(y_[i], copied ? x_[block * 12 + in_block] : -1.0f) << i;
  }
  EXPECT_EQ(machine_->written("y"), (std::vector<ByteRange>{{4, 24}, {28, 48}, {52, 72}}));
}

TEST_F(ModelCopy, DataCopy_counts_blocks_everywhere) {
  machine_->launch("kernel", 1, [&] {
    Room room;
    DataCopy(room.a, global(x), DataCopyParams{2, 2, 1, 3});
    room.order<HardEvent::MTE2_MTE3>();
    DataCopy(global(y), room.a, DataCopyParams{2, 2, 3, 4});
  });
  for (uint32_t i = 0; i < kCount; ++i) {
    const bool first = i < 16, second = i >= 48 && i < 64;
    EXPECT_EQ(y_[i], first ? x_[i] : second ? x_[24 + i - 48] : -1.0f) << i;
  }
}

TEST_F(ModelCopy, the_tail_of_a_block_is_poison_unless_padded) {
  for (const uint8_t padding : {uint8_t{0}, uint8_t{2}, uint8_t{3}}) {
    int at = 0;
    const auto kernel = [&] {
      Room room;
      Duplicate(room.a, 1.0f, 64);
      PipeBarrier<PIPE_ALL>();
      DataCopyPad(room.a, global(x), DataCopyExtParams{2, 20, 0, 0, 0}, Pad{padding > 0, 0, padding, -7.0f});
      room.order<HardEvent::MTE2_V>();
      at = __LINE__, Adds(room.a[64], room.a, 0.0f, 16);
      room.order<HardEvent::V_S>();
      for (uint32_t i = 0; i < 16; ++i) EXPECT_EQ(room.a.GetValue(64 + i), i % 8 < 5 ? x_[i / 8 * 5 + i % 8] : -7.0f);
    };
    if (padding == 3)
      expect_pass(kernel);
    else
      expect_fault(rule::kUndefined, at,
                   {"Adds", "bytes [0, 64) of the TBuf",
                    padding == 0 ? "nothing has written byte 20" : "nothing has written byte 28"},
                   kernel);
  }
}

TEST_F(ModelCopy, padding_on_the_left_moves_the_data) {
  expect_pass([&] {
    Room room;
    DataCopyPad(room.a, global(x), DataCopyExtParams{1, 20, 0, 0, 0}, Pad{true, 2, 1, -7.0f});
    room.order<HardEvent::MTE2_S>();
    for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(room.a.GetValue(i), i < 2 || i == 7 ? -7.0f : x_[i - 2]);
  });
}

TEST_F(ModelCopy, bursts_have_limits) {
  int at = 0;
  expect_fault(rule::kBurst, at, {"DataCopyPad", "blockCount is 4096, the limit 4095"}, [&] {
    Room room(131072);
    at = __LINE__, DataCopyPad(room.a, global(x), DataCopyExtParams{4096, 4, 0, 0, 0}, Pad{});
  });
  expect_fault(rule::kBurst, at, {"DataCopy", "blockCount is 4096, the limit 4095"}, [&] {
    Room room(131072);
    at = __LINE__, DataCopy(global(y), room.a, DataCopyParams{4096, 1, 0, 0});
  });
  Profile large;
  large.ub_bytes = 4 << 20;  // no chip has it: the limit of a block lies beyond UB
  reset(large);
  expect_fault(rule::kBurst, at, {"blockLen is 2097152, the limit 2097151"}, [&] {
    Room room(3 << 20);
    at = __LINE__, DataCopyPad(global(y), room.a, DataCopyExtParams{1, 2097152, 0, 0, 0});
  });
  expect_fault(rule::kBurst, at, {"the right padding in bytes is 36, the limit 32"}, [&] {
    Room room;
    at = __LINE__, DataCopyPad(room.a, global(x), DataCopyExtParams{1, 4, 0, 0, 0}, Pad{true, 0, 9, 0.0f});
  });
  expect_fault(rule::kBurst, at, {"the left padding in bytes is 36, the limit 32"}, [&] {
    Room room;
    at = __LINE__, DataCopyPad(room.a, global(x), DataCopyExtParams{1, 4, 0, 0, 0}, Pad{true, 9, 0, 0.0f});
  });
  expect_fault(rule::kBurst, at, {"blockLen 6 is no multiple of the element's 4 bytes"}, [&] {
    Room room;
    at = __LINE__, DataCopyPad(room.a, global(x), DataCopyExtParams{1, 6, 0, 0, 0}, Pad{});
  });
}

TEST_F(ModelCopy, the_longest_burst_passes) {
  std::vector<float> many(4095);
  const GM_ADDR rows = machine_->bind("rows", many.data(), 4095 * 4, Role::input);
  expect_pass([&] {
    Room room(131072);
    GlobalTensor<float> from;
    from.SetGlobalBuffer(reinterpret_cast<float*>(rows), 4095);
    DataCopyPad(room.a, from, DataCopyExtParams{4095, 4, 0, 0, 0}, Pad{});
  });
}

TEST_F(ModelCopy, copies_are_aligned_in_UB_and_DataCopy_in_global_memory_too) {
  int at = 0;
  expect_fault(rule::kAlignment, at, {"DataCopyPad", "begins at UB address 4, which is no multiple of 32"}, [&] {
    Room room;
    at = __LINE__, load(room.a[1], global(x), 4);
  });
  expect_fault(rule::kAlignment, at, {"begins at UB address 16"}, [&] {
    Room room;
    Duplicate(room.a, 1.0f, 64);
    room.order<HardEvent::V_MTE3>();
    at = __LINE__, store(global(y), room.a[4], 4);
  });
  expect_fault(rule::kAlignment, at, {"DataCopy", "begins at byte 16 of x, no multiple of 32"}, [&] {
    Room room;
    at = __LINE__, DataCopy(room.a, global(x)[4], DataCopyParams{1, 1, 0, 0});
  });
}

TEST_F(ModelCopy, an_access_stays_inside_its_tensor) {
  int at = 0;
  expect_fault(rule::kGlobal, at, {"DataCopyPad", "reads bytes [1020, 1028) of x, which has 1024"}, [&] {
    Room room;
    at = __LINE__, load(room.a, global(x)[255], 2);
  });
  expect_fault(rule::kGlobal, at, {"reads bytes [1000, 1032) of x, which has 1024"}, [&] {
    Room room;
    at = __LINE__, DataCopyPad(room.a, global(x)[250], DataCopyExtParams{2, 4, 24, 0, 0}, Pad{});
  });
  expect_fault(rule::kGlobal, at, {"writes bytes [-4, 0) of y, which has 1024"}, [&] {
    Room room;
    Duplicate(room.a, 1.0f, 16);
    room.order<HardEvent::V_MTE3>();
    at = __LINE__, store(global(y)[~uint64_t{0}], room.a, 1);
  });
  expect_fault(rule::kGlobal, at, {"of x, which has 1024"}, [&] {  // an index that wrapped at 2^31
    Room room;
    at = __LINE__, load(room.a, global(x - (int64_t{1} << 33)), 1);
  });
  expect_fault(rule::kGlobal, at, {"reads an address of no bound tensor"}, [&] {
    Room room;
    at = __LINE__, load(room.a, GlobalTensor<float>(), 1);
  });
  expect_pass([&] {
    Room room;
    load(room.a, global(x)[255], 1);
  });
}

TEST_F(ModelCopy, scalars_never_touch_global_memory) {
  int at = 0;
  expect_fault(rule::kScalarGlobal, at, {"GetValue at", "on a GlobalTensor: bytes [8, 12) of x"},
               [&] { at = __LINE__, global(x).GetValue(2); });
  expect_fault(rule::kScalarGlobal, at, {"SetValue at", "bytes [8, 12) of y"},
               [&] { at = __LINE__, global(y).SetValue(2, 1.0f); });
}

TEST_F(ModelCopy, inputs_are_not_written) {
  int at = 0;
  expect_fault(rule::kInput, at, {"writes bytes [0, 64) of x, an input"}, [&] {
    Room room;
    Duplicate(room.a, 1.0f, 16);
    room.order<HardEvent::V_MTE3>();
    at = __LINE__, store(global(x), room.a, 16);
  });
}

TEST_F(ModelCopy, outputs_and_workspaces_start_without_values) {
  int at = 0;
  expect_fault(rule::kUndefined, at, {"reads bytes [0, 64) of y, but nothing has written byte 0 before this launch"},
               [&] {
                 Room room;
                 at = __LINE__, load(room.a, global(y), 16);
               });
  const GM_ADDR filled = machine_->bind("filled", y_.data(), kCount * 4, Role::workspace, true);
  expect_pass([&] {
    Room room;
    load(room.a, global(filled), 16);
  });
}

/// Fill `count` floats of `to` by a copy of exact bytes.
void fill(const GlobalTensor<float>& to, uint32_t count, const char* file = __builtin_FILE(),
          int line = __builtin_LINE()) {
  Room room;
  Duplicate(room.a, 1.0f, 64);
  room.order<HardEvent::V_MTE3>();
  store(to, room.a, count, file, line);
}

TEST_F(ModelCopy, a_later_launch_reads_what_an_earlier_one_wrote_and_no_more) {
  machine_->launch("first", 1, [&] { fill(global(scratch), 20); });
  machine_->launch("second", 1, [&] {
    Room room;
    load(room.a, global(scratch), 20);
  });
  int at = 0;
  expect_fault(rule::kUndefined, at, {"of scratch, but nothing has written byte 80"}, [&] {
    Room room;
    at = __LINE__, load(room.a, global(scratch)[16], 5);
  });
}

TEST_F(ModelCopy, two_cores_do_not_write_the_same_bytes) {
  int at = 0;
  expect_fault(
      rule::kCoreRace, at,
      {"core 3", "DataCopyPad at model_copy_test.cc:", "writes bytes [96, 104) of y, which DataCopyPad at",
       "on core 2 writes in the same launch"},
      [&] {
        const auto core = static_cast<uint64_t>(GetBlockIdx());
        at = __LINE__, fill(global(y)[core * 8], core == 2 ? 10 : 8);
      },
      5);
  expect_pass([&] { fill(global(y)[static_cast<uint64_t>(GetBlockIdx()) * 10], 10); }, 25);
}

TEST_F(ModelCopy, a_core_does_not_write_its_bytes_twice) {
  int at = 0;
  expect_fault(rule::kWrittenTwice, at, {"core 0", "writes bytes [32, 36) of y"}, [&] {
    Room room;
    Duplicate(room.a, 1.0f, 64);
    room.order<HardEvent::V_MTE3>();
    store(global(y), room.a, 9);
    PipeBarrier<PIPE_ALL>();
    at = __LINE__, store(global(y)[8], room.a, 8);
  });
}

TEST_F(ModelCopy, a_line_shared_by_exact_bursts_is_only_counted) {
  machine_->launch("kernel", 4, [&] { fill(global(y)[static_cast<uint64_t>(GetBlockIdx()) * 10], 10); });
  EXPECT_EQ(machine_->launches()[0].shared_lines, 3);
  machine_->launch("kernel", 4, [&] { fill(global(scratch)[static_cast<uint64_t>(GetBlockIdx()) * 8], 8); });
  EXPECT_EQ(machine_->launches()[1].shared_lines, 0);
  const GM_ADDR small = machine_->bind("small", nullptr, 64, Role::output);
  machine_->launch("kernel", 16, [&] { fill(global(small)[static_cast<uint64_t>(GetBlockIdx())], 1); });
  EXPECT_EQ(machine_->launches()[2].shared_lines, 2);
}

TEST_F(ModelCopy, a_DataCopy_shares_no_line) {
  int at = 0;
  expect_fault(
      rule::kLine, at, {"core 1", "DataCopyPad", "writes bytes [28, 32) of y, which DataCopy at", "on core 0"},
      [&] {
        if (GetBlockIdx() == 1) {
          at = __LINE__, fill(global(y)[7], 2);
          return;
        }
        Room room;
        Duplicate(room.a, 1.0f, 8);
        room.order<HardEvent::V_MTE3>();
        DataCopy(global(y), room.a, DataCopyParams{1, 1, 0, 0});
      },
      2);
}

TEST_F(ModelCopy, a_launch_does_not_read_what_it_writes) {
  for (const int64_t reader : {0, 1}) {  // another core, the same core
    const GM_ADDR both = machine_->bind("both", y_.data(), kCount * 4, Role::workspace, true);
    int at = 0;
    expect_fault(
        rule::kReadBack, at, {"reads bytes [56, 64) of both, which DataCopyPad at", "on core 1 writes"},
        [&] {
          Room room;
          Duplicate(room.a, 1.0f, 8);
          PipeBarrier<PIPE_ALL>();
          if (GetBlockIdx() == 1) store(global(both)[14], room.a, 8);
          PipeBarrier<PIPE_ALL>();
          if (GetBlockIdx() == reader) at = __LINE__, load(room.a, global(both), 16);
        },
        2);
  }
}

TEST_F(ModelCopy, the_host_can_ask_that_everything_was_written_once) {
  machine_->launch("kernel", 2, [&] { fill(global(y)[static_cast<uint64_t>(GetBlockIdx()) * 20], 16); });
  machine_->expect_written_once("y", {{0, 64}, {80, 144}});
  const auto message = [&](std::vector<ByteRange> ranges) {
    try {
      machine_->expect_written_once("y", ranges);
    } catch (const ModelFault& fault) {
      EXPECT_EQ(fault.rule, rule::kNotWritten);
      return std::string(fault.what());
    }
    return std::string();
  };
  EXPECT_EQ(message({{0, 84}}), "[not written once] bytes [64, 80) of y were written never");
  EXPECT_EQ(message({{80, 145}}), "[not written once] bytes [144, 145) of y were written never");
  machine_->launch("again", 1, [&] { fill(global(y)[10], 4); });
  EXPECT_EQ(message({{0, 40}}), "");
  EXPECT_EQ(message({{0, 48}}), "[not written once] bytes [40, 48) of y were written more than once");
  EXPECT_THROW(machine_->expect_written_once("y"), ModelFault);
}

TEST_F(ModelCopy, a_launch_has_1_to_65535_programs) {
  const int at = 0;
  expect_fault(
      rule::kLaunch, at, {"0 programs; a launch has 1 to 65535"}, [] {}, 0);
  expect_fault(
      rule::kLaunch, at, {"65536 programs"}, [] {}, 65536);
}

TEST_F(ModelCopy, bind_refuses_what_makes_no_tensor) {
  EXPECT_THROW(machine_->bind("x", x_.data(), 4, Role::input), std::invalid_argument);
  EXPECT_THROW(machine_->bind("z", nullptr, 4, Role::input), std::invalid_argument);
  EXPECT_THROW(machine_->bind("z", x_.data(), -1, Role::input), std::invalid_argument);
  EXPECT_THROW(machine_->host("z"), std::invalid_argument);
  EXPECT_NE(machine_->bind("z", nullptr, 0, Role::input), nullptr);
}

TEST_F(ModelCopy, calls_outside_a_launch_are_refused) {
  EXPECT_THROW(GetBlockIdx(), std::logic_error);
}

TEST_F(ModelCopy, two_sources_in_one_bank_group_are_counted) {
  machine_->launch("kernel", 1, [&] {
    Room room(4096);
    Duplicate(room.a, 1.0f, 512);
    PipeBarrier<PIPE_V>();
    Add(room.a[640], room.a, room.a[128], 8);  // 512 bytes apart: the same group
    Add(room.a[648], room.a, room.a[136], 8);
    Add(room.a[656], room.a, room.a, 8);
  });
  EXPECT_EQ(machine_->launches()[0].cores[0].bank_conflicts, 1);
}

TEST_F(ModelCopy, statistics_count_what_was_done) {
  machine_->launch("kernel", 2, [&] {
    if (GetBlockIdx() == 0) return;
    Room room;
    DataCopyPad(room.a, global(x), DataCopyExtParams{3, 20, 0, 0, 0}, Pad{});
    load(room.a[64], global(x), 16);
    room.order<HardEvent::MTE2_V>();
    Adds(room.a[128], room.a[64], 1.0f, 16);
    Adds(room.a[192], room.a[64], 1.0f, 8);
    room.order<HardEvent::V_S>();
    room.a[128].SetValue(0, room.a.GetValue(0) + room.a.GetValue(1));
    BINMOE_SCALAR(5);
    room.order<HardEvent::S_MTE3>();
    store(global(y), room.a[128], 16);
  });
  const Launch& launch = machine_->launches()[0];
  EXPECT_EQ(launch.kernel, "kernel");
  EXPECT_EQ(launch.num_programs, 2);
  EXPECT_EQ(launch.gm_read_bytes, 124);
  EXPECT_EQ(launch.gm_written_bytes, 64);
  EXPECT_EQ(machine_->read_bytes("x"), 124);
  EXPECT_EQ(machine_->written_bytes("y"), 64);
  ASSERT_EQ(launch.cores.size(), 2u);
  EXPECT_EQ(launch.cores[0].of(Pipe::mte2).operations, 0);
  const CoreStats& core = launch.cores[1];
  EXPECT_EQ(core.of(Pipe::mte2).operations, 2);
  EXPECT_EQ(core.of(Pipe::mte2).bursts, 4);
  EXPECT_EQ(core.of(Pipe::mte2).bytes, 124);
  EXPECT_EQ(core.of(Pipe::vector).operations, 2);
  EXPECT_EQ(core.of(Pipe::vector).bytes, 96);
  EXPECT_EQ(core.of(Pipe::vector).waits, 1);
  EXPECT_EQ(core.of(Pipe::scalar).waits, 1);
  EXPECT_EQ(core.of(Pipe::mte3).bursts, 1);
  EXPECT_EQ(core.of(Pipe::mte3).waits, 1);
  EXPECT_EQ(core.scalar_reads, 2);
  EXPECT_EQ(core.scalar_writes, 1);
  EXPECT_EQ(core.scalar_operations, 5);
}

}  // namespace
}  // namespace test
