// The vector-core model, order: each rule has a kernel that breaks it and one that keeps it. Races, barriers, flags.
#include "model_support.h"

namespace test {
namespace {

class ModelOrder : public Model {
 protected:
  /// One access to the first 64 bytes of UB by a pipe, of the kind that conflicts with any other.
  void touch(Pipe pipe, bool writes, const LocalTensor<float>& a, const char* file = __builtin_FILE(),
             int line = __builtin_LINE()) {
    switch (pipe) {
      case Pipe::mte2:
        return load(a, global(x), 16, file, line);
      case Pipe::mte3:
        return store(global(y), a, 16, file, line);
      case Pipe::vector:
        if (writes) return Duplicate(a, 1.0f, 16, file, line);
        return Adds(a[64], a, 1.0f, 16, file, line);
      case Pipe::scalar:
        if (writes) return a.SetValue(3, 1.0f, file, line);
        a.GetValue(3, file, line);
    }
  }

  /// `from` then `to` on the same bytes: refused without a flag of that event, and taken with it.
  template <HardEvent event>
  void check_link(bool from_writes, bool to_writes) {
    const Link link = kLinkPipes[static_cast<size_t>(event)];
    SCOPED_TRACE(kLinkNames[static_cast<size_t>(event)]);
    for (const bool ordered : {false, true}) {
      int at = 0, first = 0;
      const auto kernel = [&] {
        Room room;
        touch(Pipe::vector, true, room.a);  // values, for those that read
        PipeBarrier<PIPE_ALL>();
        first = __LINE__, touch(link.from, from_writes, room.a);
        if (ordered) room.order<event>();
        at = __LINE__, touch(link.to, to_writes, room.a);
      };
      if (ordered) {
        expect_pass(kernel);
        continue;
      }
      const ModelFault fault = fault_of(kernel);
      const std::string what = fault.what();
      EXPECT_EQ(fault.rule, rule::kRace) << what;
      EXPECT_EQ(fault.line, at);
      EXPECT_EQ(fault.other_line, first);
      EXPECT_EQ(fault.begin, link.from == Pipe::scalar || link.to == Pipe::scalar ? 12 : 0) << what;
      EXPECT_EQ(fault.end, link.from == Pipe::scalar || link.to == Pipe::scalar ? 16 : 64) << what;
      EXPECT_NE(what.find(std::string("(") + name_of(link.from) + ") may still be"), std::string::npos) << what;
      EXPECT_NE(what.find("of the TBuf (InitBuffer at model_support.h:"), std::string::npos) << what;
      reset(Profile{});
    }
  }
};

TEST_F(ModelOrder, every_pair_of_pipes_needs_its_flag) {
  check_link<HardEvent::MTE2_V>(true, false);
  check_link<HardEvent::MTE2_V>(true, true);
  check_link<HardEvent::V_MTE2>(false, true);
  check_link<HardEvent::V_MTE2>(true, true);
  check_link<HardEvent::MTE3_V>(false, true);
  check_link<HardEvent::V_MTE3>(true, false);
  check_link<HardEvent::MTE2_MTE3>(true, false);
  check_link<HardEvent::MTE3_MTE2>(false, true);
  check_link<HardEvent::MTE2_S>(true, false);
  check_link<HardEvent::MTE2_S>(true, true);
  check_link<HardEvent::S_MTE2>(false, true);
  check_link<HardEvent::S_MTE2>(true, true);
  check_link<HardEvent::V_S>(true, false);
  check_link<HardEvent::V_S>(false, true);
  check_link<HardEvent::S_V>(true, false);
  check_link<HardEvent::S_V>(false, true);
  check_link<HardEvent::MTE3_S>(false, true);
  check_link<HardEvent::S_MTE3>(true, false);
}

TEST_F(ModelOrder, a_race_is_told_in_full) {
  int at = 0;
  expect_fault(rule::kRace, at,
               {"Adds at model_test.cc:", "(V) reads bytes [0, 64) of the TBuf (InitBuffer at model_support.h:",
                "which DataCopyPad at model_test.cc:", "(MTE2) may still be writing; no flag or queue orders them"},
               [&] {
                 Room room;
                 load(room.a, global(x), 16);
                 at = __LINE__, Adds(room.a[64], room.a, 1.0f, 16);
               });
}

TEST_F(ModelOrder, two_readers_do_not_race) {
  expect_pass([&] {
    Room room;
    Duplicate(room.a, 1.0f, 64);
    PipeBarrier<PIPE_ALL>();
    Adds(room.a[64], room.a, 1.0f, 16);
    store(global(y), room.a, 16);
    room.a.GetValue(0);
  });
}

TEST_F(ModelOrder, neighbouring_bytes_do_not_race_and_common_ones_are_named) {
  expect_pass([&] {
    Room room;
    load(room.a, global(x), 16);
    Duplicate(room.a[16], 1.0f, 16);
  });
  int at = 0;
  expect_fault(rule::kRace, at, {"bytes [32, 64) of the TBuf"}, [&] {
    Room room;
    load(room.a, global(x), 16);
    at = __LINE__, Duplicate(room.a[8], 1.0f, 16);
  });
}

TEST_F(ModelOrder, a_copy_is_ordered_over_whole_blocks_of_UB) {
  int at = 0;
  expect_fault(rule::kRace, at, {"bytes [28, 32) of the TBuf"}, [&] {
    Room room;
    load(room.a, global(x), 5);
    at = __LINE__, room.a.SetValue(7, 1.0f);
  });
}

TEST_F(ModelOrder, order_passes_through_a_third_pipe) {
  expect_pass([&] {
    Room room;
    load(room.a, global(x), 16);
    room.order<HardEvent::MTE2_V>();
    Duplicate(room.a[64], 1.0f, 16);
    room.order<HardEvent::V_MTE3>();
    store(global(y), room.a, 16);
  });
}

TEST_F(ModelOrder, a_flag_set_before_the_access_orders_nothing) {
  int at = 0;
  expect_fault(rule::kRace, at, {"Adds"}, [&] {
    Room room;
    const TEventID id = room.pipe.AllocEventID<HardEvent::MTE2_V>();
    SetFlag<HardEvent::MTE2_V>(id);
    load(room.a, global(x), 16);
    WaitFlag<HardEvent::MTE2_V>(id);
    at = __LINE__, Adds(room.a[64], room.a, 1.0f, 16);
  });
}

TEST_F(ModelOrder, issue_by_the_scalar_unit_gives_no_order) {
  int at = 0;
  expect_fault(rule::kRace, at, {"SetValue", "(S) may still be writing"}, [&] {
    Room room;
    Duplicate(room.a, 1.0f, 16);
    room.order<HardEvent::V_S>();
    room.a.SetValue(1, room.a.GetValue(0));  // S after S needs nothing
    PipeBarrier<PIPE_V>();
    at = __LINE__, Adds(room.a[64], room.a, 1.0f, 16);
  });
}

TEST_F(ModelOrder, an_instruction_in_place_still_waits_for_older_readers) {
  int at = 0;
  expect_fault(rule::kRace, at, {"(V) writes", "(MTE3) may still be reading"}, [&] {
    Room room;
    Duplicate(room.a, 1.0f, 16);
    room.order<HardEvent::V_MTE3>();
    store(global(y), room.a, 16);
    PipeBarrier<PIPE_V>();
    at = __LINE__, Adds(room.a, room.a, 1.0f, 16);
  });
}

TEST_F(ModelOrder, dependent_instructions_of_one_pipe_need_a_barrier) {
  for (const bool barrier : {false, true}) {
    int at = 0;
    const auto chain = [&] {
      Room room;
      Duplicate(room.a, 1.0f, 16);
      if (barrier) PipeBarrier<PIPE_V>();
      at = __LINE__, Adds(room.a, room.a, 1.0f, 16);
    };
    const auto loads = [&] {
      Room room;
      load(room.a, global(x), 16);
      if (barrier) PipeBarrier<PIPE_MTE2>();
      at = __LINE__, load(room.a, global(x), 8);
    };
    if (barrier) {
      expect_pass(chain);
      expect_pass(loads);
    } else {
      expect_fault(rule::kBarrier, at, {"Duplicate at", "no PipeBarrier of V between them"}, chain);
      expect_fault(rule::kBarrier, at, {"bytes [0, 32)", "no PipeBarrier of MTE2 between them"}, loads);
    }
  }
}

TEST_F(ModelOrder, a_barrier_orders_its_own_pipe_only) {
  int at = 0;
  expect_fault(rule::kRace, at, {"(MTE2) may still be writing"}, [&] {
    Room room;
    load(room.a, global(x), 16);
    PipeBarrier<PIPE_V>();
    PipeBarrier<PIPE_MTE2>();
    PipeBarrier<PIPE_MTE3>();
    at = __LINE__, Adds(room.a[64], room.a, 1.0f, 16);
  });
}

TEST_F(ModelOrder, a_barrier_of_all_pipes_orders_everything_before_it) {
  expect_pass([&] {
    Room room;
    load(room.a, global(x), 16);
    PipeBarrier<PIPE_ALL>();
    Adds(room.a, room.a, 1.0f, 16);
    PipeBarrier<PIPE_ALL>();
    room.a.SetValue(0, 2.0f);
    PipeBarrier<PIPE_ALL>();
    store(global(y), room.a, 16);
  });
  int at = 0;
  expect_fault(rule::kRace, at, {"Adds"}, [&] {
    Room room;
    PipeBarrier<PIPE_ALL>();
    load(room.a, global(x), 16);
    at = __LINE__, Adds(room.a, room.a, 1.0f, 16);
  });
}

TEST_F(ModelOrder, a_barrier_of_the_scalar_pipe_is_an_error) {
  int at = 0;
  expect_fault(rule::kScalarBarrier, at, {"PipeBarrier<PIPE_S> is an error"},
               [&] { at = __LINE__, PipeBarrier<PIPE_S>(); });
}

TEST_F(ModelOrder, scratch_of_a_reduction_counts_as_written) {
  int at = 0;
  expect_fault(rule::kBarrier, at, {"bytes [512, 544)", "ReduceSum at"}, [&] {
    Room room;
    Duplicate(room.a, 1.0f, 128);
    PipeBarrier<PIPE_V>();
    ReduceSum(room.a[192], room.a, room.a[128], 128);
    at = __LINE__, Duplicate(room.a[128], 1.0f, 32);
  });
}

// Flags and events.

TEST_F(ModelOrder, a_wait_needs_a_set) {
  int at = 0;
  expect_fault(rule::kWait, at, {"waits for ever: nobody has set flag V_MTE3 0"}, [&] {
    Room room;
    const TEventID id = room.pipe.AllocEventID<HardEvent::V_MTE3>();
    at = __LINE__, WaitFlag<HardEvent::V_MTE3>(id);
  });
}

TEST_F(ModelOrder, a_flag_is_set_once_before_its_wait) {
  int at = 0;
  expect_fault(rule::kSetTwice, at, {"sets flag S_V 0, which is set already by SetFlag at model_test.cc:"}, [&] {
    Room room;
    const TEventID id = room.pipe.AllocEventID<HardEvent::S_V>();
    SetFlag<HardEvent::S_V>(id);
    at = __LINE__, SetFlag<HardEvent::S_V>(id);
  });
}

TEST_F(ModelOrder, a_flag_left_over_is_found_at_the_end_and_at_the_release) {
  int at = 0;
  expect_fault(rule::kFlagLeft, at, {"nobody waits for flag S_V 0, set by SetFlag"}, [&] {
    Room room;
    const TEventID id = room.pipe.AllocEventID<HardEvent::S_V>();
    at = __LINE__, SetFlag<HardEvent::S_V>(id);
  });
  expect_fault(rule::kFlagLeft, at, {"nobody waited for flag S_V 0, set by SetFlag"}, [&] {
    Room room;
    const TEventID id = room.pipe.AllocEventID<HardEvent::S_V>();
    SetFlag<HardEvent::S_V>(id);
    at = __LINE__, room.pipe.ReleaseEventID<HardEvent::S_V>(id);
  });
}

TEST_F(ModelOrder, event_ids_come_from_AllocEventID_and_are_released_once) {
  int at = 0;
  expect_fault(rule::kEventId, at, {"event 3 of S_V comes from no AllocEventID"},
               [&] { at = __LINE__, SetFlag<HardEvent::S_V>(3); });
  expect_fault(rule::kEventId, at, {"event id 8 of S_V is not in 0..7"},
               [&] { at = __LINE__, WaitFlag<HardEvent::S_V>(8); });
  expect_fault(rule::kEventId, at, {"ReleaseEventID", "event 0 of S_V comes from no AllocEventID"}, [&] {
    Room room;
    room.order<HardEvent::S_V>();
    at = __LINE__, room.pipe.ReleaseEventID<HardEvent::S_V>(0);
  });
  expect_fault(rule::kEventLeft, at, {"flag S_V 0 is not released; last used by AllocEventID"}, [&] {
    Room room;
    at = __LINE__, room.pipe.AllocEventID<HardEvent::S_V>();
  });
}

TEST_F(ModelOrder, a_literal_id_collides_with_a_queue) {
  int at = 0;
  expect_fault(rule::kEventId, at, {"event 0 of MTE2_V belongs to a queue, see EnQue at model_test.cc:"}, [&] {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> queue;
    pipe.InitBuffer(queue, 1, 64);
    const auto a = queue.AllocTensor<float>();
    queue.EnQue(a);
    at = __LINE__, WaitFlag<HardEvent::MTE2_V>(0);
  });
}

TEST_F(ModelOrder, a_pair_of_pipes_has_eight_events_for_queues_and_flags_together) {
  for (const int explicit_ids : {6, 7}) {
    int at = 0;
    const auto kernel = [&] {
      TPipe pipe;
      TQue<TPosition::VECIN, 2> queue;
      pipe.InitBuffer(queue, 2, 64);
      for (int i = 0; i < explicit_ids; ++i) pipe.AllocEventID<HardEvent::MTE2_V>();
      queue.EnQue(queue.AllocTensor<float>());
      const auto last = queue.AllocTensor<float>();
      at = __LINE__, queue.EnQue(last);
      for (int i = 0; i < 2; ++i) {
        auto a = queue.DeQue<float>();
        queue.FreeTensor(a);
      }
      for (TEventID i = 0; i < explicit_ids; ++i) pipe.ReleaseEventID<HardEvent::MTE2_V>(i);
    };
    if (explicit_ids == 6)
      expect_pass(kernel);
    else
      expect_fault(rule::kEvents, at, {"EnQue", "needs an event of MTE2_V, but all 8 are taken"}, kernel);
  }
}

}  // namespace
}  // namespace test
