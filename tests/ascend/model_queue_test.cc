// The vector-core model, UB: queues, buffers, alignment, values.
#include "model_support.h"

namespace test {
namespace {

using ModelQueue = Model;
using In = TQue<TPosition::VECIN, 2>;
using Out = TQue<TPosition::VECOUT, 2>;
using Through = TQueBind<TPosition::VECIN, TPosition::VECOUT, 2>;

TEST_F(ModelQueue, queues_order_a_double_buffered_pipeline) {
  machine_->launch("kernel", 1, [&] {
    TPipe pipe;
    In in;
    Out out;
    pipe.InitBuffer(in, 2, 64);
    pipe.InitBuffer(out, 2, 64);
    const auto fetch = [&](uint32_t row) {
      auto a = in.AllocTensor<float>();
      load(a, global(x)[row * 16], 16);
      in.EnQue(a);
    };
    fetch(0);
    for (uint32_t row = 0; row < 16; ++row) {
      if (row + 1 < 16) fetch(row + 1);
      auto loaded = in.DeQue<float>();
      auto result = out.AllocTensor<float>();
      Muls(result, loaded, 2.0f, 16);
      in.FreeTensor(loaded);
      out.EnQue(result);
      auto ready = out.DeQue<float>();
      store(global(y)[row * 16], ready, 16);
      out.FreeTensor(ready);
    }
  });
  for (uint32_t i = 0; i < kCount; ++i) EXPECT_EQ(y_[i], 2.0f * x_[i]);
  EXPECT_EQ(machine_->launches()[0].ub_high_water, 256);
}

TEST_F(ModelQueue, a_bound_queue_orders_both_copy_pipes) {
  machine_->launch("kernel", 1, [&] {
    TPipe pipe;
    Through queue;
    pipe.InitBuffer(queue, 2, 64);
    for (uint32_t row = 0; row < 16; ++row) {
      auto a = queue.AllocTensor<float>();
      load(a, global(x)[row * 16], 16);
      queue.EnQue(a);
      a = queue.DeQue<float>();
      store(global(y)[row * 16], a, 16);
      queue.FreeTensor(a);
    }
  });
  EXPECT_EQ(x_, y_);
}

/// A queue of two buffers, one of them allocated.
struct Taken {
  TPipe pipe;
  In queue;
  LocalTensor<float> a;
  Taken() {
    pipe.InitBuffer(queue, 2, 64);
    a = queue.AllocTensor<float>();
  }
};

TEST_F(ModelQueue, every_call_wants_its_state) {
  int at = 0;
  expect_fault(rule::kQueue, at,
               {"EnQue at model_queue_test.cc:", "wants a tensor that is allocated, but buffer 0 of the VECIN queue",
                "is queued since EnQue at"},
               [&] {
                 Taken t;
                 t.queue.EnQue(t.a);
                 at = __LINE__, t.queue.EnQue(t.a);
               });
  expect_fault(rule::kQueue, at, {"wants a tensor that is dequeued", "is allocated since AllocTensor"}, [&] {
    Taken t;
    at = __LINE__, t.queue.FreeTensor(t.a);
  });
  expect_fault(rule::kQueue, at, {"FreeTensor", "is free since FreeTensor"}, [&] {
    Taken t;
    t.queue.EnQue(t.a);
    t.a = t.queue.DeQue<float>();
    t.queue.FreeTensor(t.a);
    at = __LINE__, t.queue.FreeTensor(t.a);
  });
  expect_fault(rule::kQueue, at, {"a tensor that is not from this queue"}, [&] {
    Taken t;
    In other;
    t.pipe.InitBuffer(other, 1, 64);
    at = __LINE__, other.EnQue(t.a);
  });
}

TEST_F(ModelQueue, a_tensor_is_touched_between_alloc_and_enque_and_between_deque_and_free_only) {
  int at = 0;
  expect_fault(rule::kQueue, at, {"DataCopyPad", "(MTE2) touches bytes [0, 64) of buffer 0", "is queued since EnQue"},
               [&] {
                 Taken t;
                 t.queue.EnQue(t.a);
                 at = __LINE__, load(t.a, global(x), 16);
               });
  expect_fault(rule::kQueue, at, {"GetValue", "is free since FreeTensor"}, [&] {
    Taken t;
    load(t.a, global(x), 16);
    t.queue.EnQue(t.a);
    t.a = t.queue.DeQue<float>();
    t.queue.FreeTensor(t.a);
    at = __LINE__, t.a.GetValue(0);
  });
  expect_fault(rule::kQueue, at, {"a tensor that no queue and no TBuf gave out"},
               [&] { at = __LINE__, LocalTensor<float>().GetValue(0); });
}

TEST_F(ModelQueue, waiting_for_nothing_is_a_hang) {
  int at = 0;
  expect_fault(rule::kHang, at, {"AllocTensor waits for ever: none of the 2 buffers of the VECIN queue"}, [&] {
    Taken t;
    t.queue.EnQue(t.a);
    t.a = t.queue.AllocTensor<float>();
    at = __LINE__, t.queue.AllocTensor<float>();
  });
  expect_fault(rule::kHang, at, {"DeQue waits for ever: nothing is in the VECIN queue"}, [&] {
    Taken t;
    at = __LINE__, t.queue.DeQue<float>();
  });
}

TEST_F(ModelQueue, buffers_go_home_before_the_end) {
  int at = 0;
  expect_fault(rule::kBufferLeft, at, {"buffer 1 of the VECIN queue", "is never queued, since AllocTensor"}, [&] {
    Taken t;
    t.queue.EnQue(t.a);
    t.a = t.queue.DeQue<float>();
    t.queue.FreeTensor(t.a);
    at = __LINE__, t.queue.AllocTensor<float>();
  });
  expect_fault(rule::kBufferLeft, at, {"is still queued, by EnQue"}, [&] {
    Taken t;
    at = __LINE__, t.queue.EnQue(t.a);
  });
  expect_fault(rule::kBufferLeft, at, {"is never freed, since DeQue"}, [&] {
    Taken t;
    t.queue.EnQue(t.a);
    at = __LINE__, t.queue.DeQue<float>();
  });
}

TEST_F(ModelQueue, more_tensors_than_the_depth_do_not_fit) {
  int at = 0;
  expect_fault(rule::kQueue, at, {"EnQue on a VECIN queue", "of depth 2 that is full"}, [&] {
    TPipe pipe;
    In queue;
    pipe.InitBuffer(queue, 3, 64);
    for (int i = 0; i < 3; ++i) {
      const auto a = queue.AllocTensor<float>();
      at = __LINE__, queue.EnQue(a);
    }
  });
}

TEST_F(ModelQueue, queues_and_buffers_need_InitBuffer_of_something) {
  int at = 0;
  expect_fault(rule::kQueue, at, {"AllocTensor", "on a queue that has no InitBuffer"}, [&] {
    In queue;
    at = __LINE__, queue.AllocTensor<float>();
  });
  expect_fault(rule::kQueue, at, {"Get on a TBuf that has no InitBuffer"}, [&] {
    TBuf<TPosition::VECCALC> buffer;
    at = __LINE__, buffer.Get<float>();
  });
  expect_fault(rule::kQueue, at, {"InitBuffer of 0 bytes"}, [&] {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    at = __LINE__, pipe.InitBuffer(buffer, 0u);
  });
  expect_fault(rule::kQueue, at, {"InitBuffer of 0 buffers or 0 bytes"}, [&] {
    TPipe pipe;
    In queue;
    at = __LINE__, pipe.InitBuffer(queue, 0, 64);
  });
}

TEST_F(ModelQueue, a_program_has_one_TPipe) {
  int at = 0;
  expect_fault(rule::kQueue, at, {"a second TPipe in one program"}, [&] {
    TPipe one;
    at = __LINE__;
    TPipe two(__builtin_FILE(), at);
  });
}

TEST_F(ModelQueue, a_freed_buffer_comes_back_in_turn_and_without_its_values) {
  int at = 0;
  expect_fault(rule::kUndefined, at, {"Adds", "nothing has written byte 0"}, [&] {
    TPipe pipe;
    In queue;
    pipe.InitBuffer(queue, 1, 64);
    for (int turn = 0;; ++turn) {
      auto a = queue.AllocTensor<float>();
      if (turn == 0) load(a, global(x), 16);
      queue.EnQue(a);
      a = queue.DeQue<float>();
      if (turn == 1) at = __LINE__, Adds(a, a, 1.0f, 16);
      queue.FreeTensor(a);
    }
  });
}

TEST_F(ModelQueue, UB_overflows_at_its_last_32_bytes) {
  Profile profile;
  profile.ub_bytes = 4096;
  for (const uint32_t bytes : {3968u, 3969u}) {  // rounded up to 3968 and 4000
    reset(profile);
    int at = 0;
    const auto kernel = [&] {
      TPipe pipe;
      In queue;
      TBuf<TPosition::VECCALC> buffer;
      pipe.InitBuffer(queue, 2, 33);
      at = __LINE__, pipe.InitBuffer(buffer, bytes);
    };
    if (bytes == 3968)
      expect_pass(kernel);
    else
      expect_fault(
          rule::kOverflow, at,
          {"InitBuffer wants 4000 bytes more, but 128 of the 4096 bytes of UB that a kernel may use are taken"},
          kernel);
  }
}

TEST_F(ModelQueue, the_high_water_mark_counts_rounded_buffers_of_the_largest_program) {
  machine_->launch("kernel", 3, [&] {
    TPipe pipe;
    In queue;
    pipe.InitBuffer(queue, 2, 33);
    TBuf<TPosition::VECCALC> buffer;
    if (GetBlockIdx() == 1) pipe.InitBuffer(buffer, 1);
  });
  EXPECT_EQ(machine_->launches()[0].ub_high_water, 160);
}

TEST_F(ModelQueue, a_TPipe_has_64_buffers_and_a_position_eight) {
  for (const int count : {64, 65}) {
    int at = 0;
    const auto kernel = [&] {
      TPipe pipe;
      TBuf<TPosition::VECCALC> buffer;
      for (int i = 0; i < count; ++i) at = __LINE__, pipe.InitBuffer(buffer, 32);
    };
    if (count == 64)
      expect_pass(kernel);
    else
      expect_fault(rule::kBuffers, at, {"a TPipe has 64 buffers at most"}, kernel);
  }
  for (const uint8_t count : {uint8_t{4}, uint8_t{5}}) {
    int at = 0;
    const auto kernel = [&] {
      TPipe pipe;
      In in;
      Through through;
      Out out;
      pipe.InitBuffer(out, 8, 32);
      pipe.InitBuffer(in, 4, 32);
      at = __LINE__, pipe.InitBuffer(through, count, 32);
    };
    if (count == 4)
      expect_pass(kernel);
    else
      expect_fault(rule::kBuffers, at, {"this VECIN-VECOUT queue have 9 buffers; 8 are the limit"}, kernel);
  }
}

TEST_F(ModelQueue, an_access_stays_inside_its_buffer) {
  int at = 0;
  expect_fault(rule::kBuffer, at, {"touches bytes [992, 1056) of the TBuf", "which has 1024"}, [&] {
    Room room;
    TBuf<TPosition::VECCALC> next;
    room.pipe.InitBuffer(next, 1024);
    at = __LINE__, Duplicate(room.a[248], 1.0f, 16);
  });
  expect_fault(rule::kBuffer, at, {"buffer 0 of the VECIN queue", "which has 64"}, [&] {
    Taken t;
    at = __LINE__, load(t.a, global(x), 17);
  });
  expect_fault(rule::kBuffer, at, {"SetValue"}, [&] {
    Room room;
    at = __LINE__, room.a[2000000000].SetValue(2000000000, 1.0f);
  });
}

TEST_F(ModelQueue, vector_operands_are_aligned_to_32_bytes) {
  int at = 0;
  expect_fault(rule::kAlignment, at, {"Duplicate", "begins at UB address 4, which is no multiple of 32"}, [&] {
    Room room;
    at = __LINE__, Duplicate(room.a[1], 1.0f, 16);
  });
  expect_fault(rule::kAlignment, at, {"Adds", "begins at UB address 16"}, [&] {
    Room room;
    Duplicate(room.a, 1.0f, 64);
    PipeBarrier<PIPE_V>();
    at = __LINE__, Adds(room.a[64], room.a[4], 1.0f, 16);
  });
  expect_fault(rule::kAlignment, at, {"GetValue", "UB address 2, which is no multiple of 4"}, [&] {
    Room room;
    at = __LINE__, room.a.ReinterpretCast<int16_t>()[1].ReinterpretCast<float>().GetValue(0);
  });
}

TEST_F(ModelQueue, an_instruction_has_255_repeats) {
  for (const int32_t count : {255 * 64, 255 * 64 + 1}) {
    int at = 0;
    const auto kernel = [&] {
      Room room(65536);
      at = __LINE__, Duplicate(room.a, 1.0f, count);
    };
    if (count == 255 * 64)
      expect_pass(kernel);
    else
      expect_fault(rule::kRepeat, at, {"Duplicate", "needs 256 repeats of 256 bytes; 255 are the limit"}, kernel);
  }
}

TEST_F(ModelQueue, operands_are_the_same_or_apart) {
  for (const uint32_t offset : {0u, 8u, 16u}) {
    int at = 0;
    const auto kernel = [&] {
      Room room;
      Duplicate(room.a, 1.0f, 64);
      PipeBarrier<PIPE_V>();
      at = __LINE__, Adds(room.a[offset], room.a, 1.0f, 16);
    };
    if (offset == 8)
      expect_fault(rule::kOverlap, at, {"Adds", "bytes [32, 96) of", "and bytes [0, 64) of", "overlap in part"},
                   kernel);
    else
      expect_pass(kernel);
  }
}

TEST_F(ModelQueue, bytes_without_a_value_are_not_read) {
  int at = 0;
  expect_fault(rule::kUndefined, at, {"Adds", "(V) reads bytes [0, 68) of the TBuf", "nothing has written byte 64"},
               [&] {
                 Room room;
                 Duplicate(room.a, 1.0f, 16);
                 PipeBarrier<PIPE_V>();
                 at = __LINE__, Adds(room.a[64], room.a, 1.0f, 17);
               });
  expect_fault(rule::kUndefined, at, {"DataCopyPad", "(MTE3) reads bytes [0, 8)", "nothing has written byte 4"}, [&] {
    Room room;
    room.a.SetValue(0, 1.0f);
    room.order<HardEvent::S_MTE3>();
    at = __LINE__, store(global(y), room.a, 2);
  });
  expect_fault(rule::kUndefined, at, {"GetValue", "nothing has written byte 12"}, [&] {
    Room room;
    at = __LINE__, room.a.GetValue(3);
  });
}

TEST_F(ModelQueue, a_cast_takes_its_round_modes_only) {
  int at = 0;
  expect_fault(rule::kRound, at, {"this Cast does not take round mode 0"}, [&] {
    Room room;
    Duplicate(room.a, 1.0f, 16);
    PipeBarrier<PIPE_V>();
    at = __LINE__, Cast(room.a[64].ReinterpretCast<bfloat16_t>(), room.a, RoundMode::CAST_NONE, 16);
  });
  expect_fault(rule::kRound, at, {"this Cast does not take round mode 1"}, [&] {
    Room room;
    Duplicate(room.a, 1.0f, 16);
    PipeBarrier<PIPE_V>();
    at = __LINE__, Cast(room.a[64], room.a.ReinterpretCast<half>(), RoundMode::CAST_RINT, 16);
  });
}

TEST_F(ModelQueue, a_count_of_zero_does_nothing) {
  expect_pass([&] {
    Room room;
    Duplicate(room.a[1], 1.0f, 0);
    Adds(room.a, room.a, 1.0f, 0);
    Add(room.a, room.a, room.a, 0);
    ReduceSum(room.a, room.a, room.a, 0);
    Cast(room.a, room.a.ReinterpretCast<half>(), RoundMode::CAST_NONE, 0);
    load(room.a, global(x), 0);
    store(global(y), room.a, 0);
  });
}

}  // namespace
}  // namespace test
