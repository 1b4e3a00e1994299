// TPipe, TBuf and the queues as kernels see them.
#pragma once

#include "tensors.h"

namespace AscendC {

class TPipe;

/// VECIN: filled by MTE2, drained by V. VECOUT: V, MTE3. VECIN to VECOUT: MTE2, MTE3.
template <TPosition src, TPosition dst, int32_t depth>
class TQueBind {
  static constexpr bool kIn = src == TPosition::GM && dst == TPosition::VECIN;
  static constexpr bool kOut = src == TPosition::VECOUT && dst == TPosition::GM;
  static constexpr bool kThrough = src == TPosition::VECIN && dst == TPosition::VECOUT;
  static_assert(kIn || kOut || kThrough, "the model knows VECIN, VECOUT and VECIN bound to VECOUT");
  static_assert(depth > 0);

 public:
  template <class T>
  LocalTensor<T> AllocTensor(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return LocalTensor<T>(binmoe::vector_core::current_core().alloc_tensor(queue_, {file, line}));
  }
  template <class T>
  void EnQue(const LocalTensor<T>& tensor, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    binmoe::vector_core::current_core().enque(queue_, tensor.local(), {file, line});
  }
  template <class T>
  LocalTensor<T> DeQue(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return LocalTensor<T>(binmoe::vector_core::current_core().deque(queue_, {file, line}));
  }
  template <class T>
  void FreeTensor(LocalTensor<T>& tensor, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    binmoe::vector_core::current_core().free_tensor(queue_, tensor.local(), {file, line});
  }

 private:
  friend class TPipe;
  /// The eight buffers of a position are counted where a queue begins.
  static constexpr binmoe::vector_core::QueueShape shape() {
    const auto link = [](HardEvent event) { return static_cast<int>(event); };
    if constexpr (kIn)
      return {TPosition::VECIN, "VECIN", link(HardEvent::MTE2_V), link(HardEvent::V_MTE2), depth};
    else if constexpr (kOut)
      return {TPosition::VECOUT, "VECOUT", link(HardEvent::V_MTE3), link(HardEvent::MTE3_V), depth};
    else
      return {TPosition::VECIN, "VECIN-VECOUT", link(HardEvent::MTE2_MTE3), link(HardEvent::MTE3_MTE2), depth};
  }
  uint32_t queue_ = UINT32_MAX;
};

template <TPosition pos, int32_t depth>
class TQue : public TQueBind<pos == TPosition::VECOUT ? TPosition::VECOUT : TPosition::GM,
                             pos == TPosition::VECOUT ? TPosition::GM : pos, depth> {};

template <TPosition pos>
class TBuf {
 public:
  template <class T>
  LocalTensor<T> Get(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return LocalTensor<T>(binmoe::vector_core::current_core().whole(buffer_, {file, line}));
  }
  /// The first `len` elements.
  template <class T>
  LocalTensor<T> Get(uint32_t len, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    binmoe::vector_core::Local local = binmoe::vector_core::current_core().whole(buffer_, {file, line});
    local.bytes = int64_t{len} * static_cast<int64_t>(sizeof(T));
    return LocalTensor<T>(local);
  }

 private:
  friend class TPipe;
  uint32_t buffer_ = UINT32_MAX;
};

/// One in a program.
class TPipe {
 public:
  explicit TPipe(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    binmoe::vector_core::current_core().make_pipe({file, line});
  }
  TPipe(const TPipe&) = delete;
  TPipe& operator=(const TPipe&) = delete;

  template <class Q>
  void InitBuffer(Q& queue, uint8_t num, uint32_t bytes, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
    queue.queue_ = binmoe::vector_core::current_core().make_queue(shape_of(queue), num, bytes, {file, line});
  }
  template <TPosition pos>
  void InitBuffer(TBuf<pos>& buffer, uint32_t bytes, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    buffer.buffer_ = binmoe::vector_core::current_core().make_buffer(bytes, {file, line});
  }
  template <HardEvent event>
  TEventID AllocEventID(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return binmoe::vector_core::current_core().alloc_event(static_cast<int>(event), {file, line});
  }
  template <HardEvent event>
  void ReleaseEventID(TEventID id, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    binmoe::vector_core::current_core().release_event(static_cast<int>(event), id, {file, line});
  }

 private:
  template <TPosition src, TPosition dst, int32_t depth>
  static constexpr binmoe::vector_core::QueueShape shape_of(const TQueBind<src, dst, depth>&) {
    return TQueBind<src, dst, depth>::shape();
  }
};

template <HardEvent event>
void SetFlag(TEventID id, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  binmoe::vector_core::current_core().set_flag(static_cast<int>(event), id, {file, line});
}

template <HardEvent event>
void WaitFlag(TEventID id, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  binmoe::vector_core::current_core().wait_flag(static_cast<int>(event), id, {file, line});
}

template <pipe_t pipe>
void PipeBarrier(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  binmoe::vector_core::current_core().pipe_barrier(pipe, {file, line});
}

inline int64_t GetBlockIdx() {
  return binmoe::vector_core::current_core().program();
}
inline int64_t GetBlockNum() {
  return binmoe::vector_core::current_core().num_programs();
}

}  // namespace AscendC
