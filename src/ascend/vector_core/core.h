// One vector core while it runs a program: UB, its buffers and queues, flags, clocks, checks and trace. The calls that
// kernels make end here; the types of tensors' elements are gone by then.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "global_memory.h"
#include "profile.h"
#include "shadow.h"
#include "sites.h"
#include "trace.h"
#include "types.h"

namespace binmoe::vector_core {

enum class BufferState : uint8_t { free, allocated, queued, dequeued, plain };  // plain: a TBuf, always accessible

struct Buffer {
  uint32_t begin = 0;
  uint32_t end = 0;
  BufferState state = BufferState::plain;
  int32_t queue = -1;
  int32_t number = 0;   // inside the queue
  SiteId made_at = 0;   // InitBuffer
  SiteId moved_at = 0;  // the last call that changed the state
  int8_t event = -1;    // of the flag that the last EnQue or FreeTensor left
  Shadow shadow;
};

/// How a queue is fed and emptied; both links are places in HardEvent.
struct QueueShape {
  AscendC::TPosition position;
  const char* name;
  int fill_drain;
  int drain_fill;
  int32_t depth;
};

struct Queue {
  QueueShape shape = {};
  uint32_t first = 0;  // buffer
  uint32_t count = 0;
  uint32_t cursor = 0;           // where the search for a free buffer begins
  std::vector<uint32_t> queued;  // oldest first
  SiteId made_at = 0;
};

struct Event {
  bool allocated = false;
  bool of_queue = false;
  bool set = false;
  SiteId site = 0;  // allocated or set here
  uint32_t number = 0;
  Clock clock = {};
};

/// Bytes of UB that an instruction touches.
struct Span {
  uint32_t buffer;
  int64_t begin;
  int64_t end;
};

/// A copy between global memory and UB, all in bytes.
struct Transfer {
  Call call;
  int64_t blocks;
  int64_t block_bytes;
  int64_t global_pitch;
  int64_t local_pitch;
  int64_t left_bytes = 0;  // padding, into UB only
  int64_t right_bytes = 0;
  int64_t pad_element_bytes = 1;
  uint64_t pad_bits = 0;
};

class Core {
 public:
  Core(const Profile& profile, GlobalMemory& memory);

  // Of the machine.
  void begin(const char* kernel, int32_t program, int32_t num_programs);
  void end();
  int32_t program() const { return program_; }
  int32_t num_programs() const { return num_programs_; }
  int64_t used_bytes() const { return used_; }
  CoreStats& stats() { return stats_; }
  std::vector<Step>& trace() { return trace_; }
  Sites& sites() { return sites_; }
  /// The fault of two bursts, found after the last program.
  [[noreturn]] void fault_of(const Clash& clash);

  // TPipe, TBuf and queues.
  void make_pipe(Place place);
  uint32_t make_buffer(uint32_t bytes, Place place);
  uint32_t make_queue(const QueueShape& shape, uint32_t count, uint32_t bytes, Place place);
  Local whole(uint32_t buffer, Place place);
  Local alloc_tensor(uint32_t queue, Place place);
  void enque(uint32_t queue, const Local& tensor, Place place);
  Local deque(uint32_t queue, Place place);
  void free_tensor(uint32_t queue, const Local& tensor, Place place);

  // Flags and barriers.
  int8_t alloc_event(int link, Place place);
  void release_event(int link, int id, Place place);
  void set_flag(int link, int id, Place place);
  void wait_flag(int link, int id, Place place);
  void pipe_barrier(pipe_t pipe, Place place);

  // Copies.
  void copy_in(const Local& to, uint64_t from, const Transfer& transfer, Place place);
  void copy_out(uint64_t to, const Local& from, const Transfer& transfer, Place place);

  // The scalar unit.
  void get_value(const Local& tensor, int64_t byte, void* value, int64_t bytes, Place place);
  void set_value(const Local& tensor, int64_t byte, const void* value, int64_t bytes, Place place);
  [[noreturn]] void scalar_global(Call call, uint64_t address, int64_t bytes, Place place);
  void count_scalar(int64_t operations);
  bool keeps_bound(Place place);

  /// Check, mark and trace a vector instruction; `fills` is how often its pipeline runs empty. The caller computes.
  void vector_step(SiteId site, std::initializer_list<Span> reads, std::initializer_list<Span> writes, int64_t repeats,
                   int64_t fills);
  SiteId hit(Call call, Place place) { return sites_.hit(call, place); }
  uint8_t* ub(int64_t byte) { return ub_.get() + byte; }
  [[noreturn]] void fault(const char* broken, SiteId site, const std::string& text, const Span* span = nullptr,
                          SiteId other = 0, const Tensor* tensor = nullptr);

 private:
  Buffer& buffer_of(const Span& span, Pipe pipe, SiteId site);
  void check(const Span& span, bool write, Pipe pipe, SiteId site);
  void mark(const Span& span, bool write, Pipe pipe, SiteId site);
  [[noreturn]] void misaligned(const Span& span, SiteId site, int64_t unit);
  void check_aligned(const Span& span, SiteId site);
  uint32_t take(uint32_t bytes, SiteId site);
  Queue& queue_at(uint32_t queue, SiteId site);
  Buffer& buffer_in(uint32_t queue, const Local& tensor, BufferState wanted, SiteId site);
  int take_event(int link, SiteId site, bool of_queue);
  Event& event_at(int link, int id, SiteId site);
  void set(int link, int id, SiteId site);
  void wait(int link, int id, SiteId site, bool ordered);
  void step(StepKind kind, Pipe pipe, SiteId site, int64_t amount = 0, int64_t extent = 0, uint32_t flag = 0);
  void scalar_step(int64_t reads, int64_t operations);

  void check_transfer(const Span& whole, const Transfer& transfer, SiteId site);
  Tensor& tensor_of(uint64_t address, const Transfer& transfer, bool write, SiteId site);
  Span local_block(const Local& tensor, const Transfer& transfer, int64_t block) const;

  std::string name(const Buffer& buffer) const;
  std::string name(SiteId site) const;
  std::string name(SiteId site, Pipe pipe) const { return name(site) + " (" + name_of(pipe) + ")"; }
  std::string bytes_of(const Span& span) const;

  const Profile profile_;
  GlobalMemory& memory_;
  Sites sites_;
  struct Release {
    void operator()(uint8_t* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
  };
  std::unique_ptr<uint8_t[], Release> ub_;
  DefinedBytes defined_;

  const char* kernel_ = "";
  int32_t program_ = 0;
  int32_t num_programs_ = 0;
  SiteId pipe_site_ = 0;
  int64_t used_ = 0;
  std::vector<Buffer> buffers_;
  uint32_t num_buffers_ = 0;
  std::vector<Queue> queues_;
  std::array<int64_t, 4> position_buffers_ = {};  // by TPosition
  std::array<std::array<Event, kEventIds>, kLinks> events_;
  std::array<Clock, kPipes> clocks_ = {};
  Clock counters_ = {};
  uint32_t num_flags_ = 0;
  CoreStats stats_;
  std::vector<Step> trace_;
};

/// The core that this thread runs a program on. Throws std::logic_error outside a launch.
Core& current_core();
void set_current_core(Core* core);

}  // namespace binmoe::vector_core
