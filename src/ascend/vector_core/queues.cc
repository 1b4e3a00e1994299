// TPipe, TBuf, queues, flags and barriers of a core.
#include <algorithm>

#include "core.h"
#include "fault.h"

namespace binmoe::vector_core {

void Core::make_pipe(Place place) {
  const SiteId site = hit(Call::make_pipe, place);
  if (pipe_site_ != 0)
    fault(rule::kQueue, site,
          "a second TPipe in one program would hand out the same UB again; the first is " + name(pipe_site_), nullptr,
          pipe_site_);
  pipe_site_ = site;
}

/// Room in UB for one more buffer.
uint32_t Core::take(uint32_t bytes, SiteId site) {
  const int64_t rounded = round_up(bytes, kBlockBytes);
  if (num_buffers_ == kMaxBuffers) fault(rule::kBuffers, site, "a TPipe has 64 buffers at most");
  if (used_ + rounded > profile_.ub_bytes)
    fault(rule::kOverflow, site,
          "InitBuffer wants " + std::to_string(rounded) + " bytes more, but " + std::to_string(used_) + " of the " +
              std::to_string(profile_.ub_bytes) + " bytes of UB that a kernel may use are taken");
  Buffer& b = buffers_[num_buffers_];
  b.begin = static_cast<uint32_t>(used_);
  b.end = static_cast<uint32_t>(used_ + rounded);
  b.state = BufferState::plain;
  b.queue = -1;
  b.number = 0;
  b.made_at = b.moved_at = site;
  b.event = -1;
  b.shadow.reset(b.begin, b.end);
  defined_.clear(b.begin, b.end);
  used_ += rounded;
  return num_buffers_++;
}

uint32_t Core::make_buffer(uint32_t bytes, Place place) {
  const SiteId site = hit(Call::init_buffer, place);
  if (bytes == 0) fault(rule::kQueue, site, "InitBuffer of 0 bytes");
  return take(bytes, site);
}

uint32_t Core::make_queue(const QueueShape& shape, uint32_t count, uint32_t bytes, Place place) {
  const SiteId site = hit(Call::init_buffer, place);
  if (bytes == 0 || count == 0) fault(rule::kQueue, site, "InitBuffer of 0 buffers or 0 bytes");
  int64_t& total = position_buffers_[static_cast<size_t>(shape.position)];
  total += count;
  if (total > kMaxQueueBuffers)
    fault(rule::kBuffers, site,
          "queues that begin at the position of this " + std::string(shape.name) + " queue have " +
              std::to_string(total) + " buffers; 8 are the limit");
  Queue queue;
  queue.shape = shape;
  queue.first = num_buffers_;
  queue.count = count;
  queue.made_at = site;
  queues_.push_back(queue);
  for (uint32_t i = 0; i < count; ++i) {
    Buffer& b = buffers_[take(bytes, site)];
    b.state = BufferState::free;
    b.queue = static_cast<int32_t>(queues_.size()) - 1;
    b.number = static_cast<int32_t>(i);
  }
  return static_cast<uint32_t>(queues_.size()) - 1;
}

Local Core::whole(uint32_t buffer, Place place) {
  if (buffer >= num_buffers_) fault(rule::kQueue, hit(Call::get, place), "Get on a TBuf that has no InitBuffer");
  const Buffer& b = buffers_[buffer];
  return {b.begin, b.end - b.begin, buffer};
}

Queue& Core::queue_at(uint32_t queue, SiteId site) {
  if (queue >= queues_.size()) fault(rule::kQueue, site, name(site) + " on a queue that has no InitBuffer");
  return queues_[queue];
}

Buffer& Core::buffer_in(uint32_t queue, const Local& tensor, BufferState wanted, SiteId site) {
  static constexpr std::array<const char*, 5> kStates = {"free", "allocated", "queued", "dequeued", "no queue's"};
  const Queue& q = queue_at(queue, site);
  if (tensor.buffer < q.first || tensor.buffer >= q.first + q.count)
    fault(rule::kQueue, site, name(site) + " with a tensor that is not from this queue (" + name(q.made_at) + ")");
  Buffer& b = buffers_[tensor.buffer];
  const Span span = {tensor.buffer, b.begin, b.end};
  if (b.state != wanted)
    fault(rule::kQueue, site,
          name(site) + " wants a tensor that is " + kStates[static_cast<size_t>(wanted)] + ", but " + name(b) + " is " +
              kStates[static_cast<size_t>(b.state)] + " since " + name(b.moved_at),
          &span, b.moved_at);
  b.moved_at = site;
  return b;
}

Local Core::alloc_tensor(uint32_t queue, Place place) {
  const SiteId site = hit(Call::alloc_tensor, place);
  Queue& q = queue_at(queue, site);
  uint32_t tries = 0;
  while (tries < q.count && buffers_[q.first + (q.cursor + tries) % q.count].state != BufferState::free) ++tries;
  if (tries == q.count)
    fault(rule::kHang, site,
          "AllocTensor waits for ever: none of the " + std::to_string(q.count) + " buffers of the " + q.shape.name +
              " queue (" + name(q.made_at) + ") is free");
  const uint32_t index = q.first + (q.cursor + tries) % q.count;
  q.cursor = (q.cursor + tries + 1) % q.count;
  Buffer& b = buffers_[index];
  if (b.event >= 0) {
    wait(q.shape.drain_fill, b.event, site, true);
    events_[static_cast<size_t>(q.shape.drain_fill)][static_cast<size_t>(b.event)].allocated = false;
    b.event = -1;
  } else {
    step(StepKind::call, Pipe::scalar, site);
  }
  b.state = BufferState::allocated;
  b.moved_at = site;
  defined_.clear(b.begin, b.end);  // what an earlier turn left there is not this one's data
  return {b.begin, b.end - b.begin, index};
}

void Core::enque(uint32_t queue, const Local& tensor, Place place) {
  const SiteId site = hit(Call::enque, place);
  if (sites_.skips(site)) return;
  Buffer& b = buffer_in(queue, tensor, BufferState::allocated, site);
  Queue& q = queues_[queue];
  if (static_cast<int64_t>(q.queued.size()) >= q.shape.depth)
    fault(rule::kQueue, site,
          "EnQue on a " + std::string(q.shape.name) + " queue (" + name(q.made_at) + ") of depth " +
              std::to_string(q.shape.depth) + " that is full");
  const int id = take_event(q.shape.fill_drain, site, true);
  b.event = static_cast<int8_t>(id);
  set(q.shape.fill_drain, id, site);
  b.state = BufferState::queued;
  q.queued.push_back(tensor.buffer);
}

Local Core::deque(uint32_t queue, Place place) {
  const SiteId site = hit(Call::deque, place);
  Queue& q = queue_at(queue, site);
  if (q.queued.empty())
    fault(rule::kHang, site,
          "DeQue waits for ever: nothing is in the " + std::string(q.shape.name) + " queue (" + name(q.made_at) + ")");
  const uint32_t index = q.queued.front();
  Buffer& b = buffers_[index];
  if (!sites_.skips(site)) {
    q.queued.erase(q.queued.begin());
    wait(q.shape.fill_drain, b.event, site, sites_.orders(site));
    events_[static_cast<size_t>(q.shape.fill_drain)][static_cast<size_t>(b.event)].allocated = false;
    b.event = -1;
    b.state = BufferState::dequeued;
    b.moved_at = site;
  }
  return {b.begin, b.end - b.begin, index};
}

void Core::free_tensor(uint32_t queue, const Local& tensor, Place place) {
  const SiteId site = hit(Call::free_tensor, place);
  if (sites_.skips(site)) return;
  Buffer& b = buffer_in(queue, tensor, BufferState::dequeued, site);
  const Queue& q = queues_[queue];
  const int id = take_event(q.shape.drain_fill, site, true);
  b.event = static_cast<int8_t>(id);
  set(q.shape.drain_fill, id, site);
  b.state = BufferState::free;
}

int Core::take_event(int link, SiteId site, bool of_queue) {
  auto& ids = events_[static_cast<size_t>(link)];
  for (int id = 0; id < kEventIds; ++id) {
    Event& e = ids[static_cast<size_t>(id)];
    if (e.allocated) continue;
    e.allocated = true;
    e.of_queue = of_queue;
    e.set = false;
    e.site = site;
    return id;
  }
  fault(rule::kEvents, site,
        name(site) + " needs an event of " + kLinkNames[static_cast<size_t>(link)] +
            ", but all 8 are taken; the first by " + name(ids[0].site),
        nullptr, ids[0].site);
}

Event& Core::event_at(int link, int id, SiteId site) {
  const char* pair = kLinkNames[static_cast<size_t>(link)];
  if (id < 0 || id >= kEventIds)
    fault(rule::kEventId, site, name(site) + ": event id " + std::to_string(id) + " of " + pair + " is not in 0..7");
  Event& e = events_[static_cast<size_t>(link)][static_cast<size_t>(id)];
  if (!e.allocated || e.of_queue)
    fault(rule::kEventId, site,
          name(site) + ": event " + std::to_string(id) + " of " + pair +
              (e.allocated ? " belongs to a queue, see " + name(e.site) : " comes from no AllocEventID"),
          nullptr, e.allocated ? e.site : SiteId{0});
  return e;
}

void Core::set(int link, int id, SiteId site) {
  const auto from = index_of(kLinkPipes[static_cast<size_t>(link)].from);
  Event& e = events_[static_cast<size_t>(link)][static_cast<size_t>(id)];
  if (e.set)
    fault(rule::kSetTwice, site,
          name(site) + " sets flag " + kLinkNames[static_cast<size_t>(link)] + " " + std::to_string(id) +
              ", which is set already by " + name(e.site),
          nullptr, e.site);
  e.set = true;
  e.site = site;
  e.number = num_flags_++;
  e.clock = {};
  if (sites_.orders(site)) {
    e.clock = clocks_[from];
    e.clock[from] = counters_[from];
  }
  ++counters_[from];
  step(StepKind::set_flag, static_cast<Pipe>(from), site, 0, 0, e.number);
}

void Core::wait(int link, int id, SiteId site, bool ordered) {
  const auto to = index_of(kLinkPipes[static_cast<size_t>(link)].to);
  Event& e = events_[static_cast<size_t>(link)][static_cast<size_t>(id)];
  if (!e.set)
    fault(rule::kWait, site,
          name(site) + " waits for ever: nobody has set flag " + kLinkNames[static_cast<size_t>(link)] + " " +
              std::to_string(id));
  e.set = false;
  if (ordered)
    for (size_t p = 0; p < kPipes; ++p) clocks_[to][p] = std::max(clocks_[to][p], e.clock[p]);
  ++stats_.pipes[to].waits;
  step(StepKind::wait_flag, static_cast<Pipe>(to), site, 0, 0, e.number);
}

int8_t Core::alloc_event(int link, Place place) {
  const SiteId site = hit(Call::alloc_event, place);
  step(StepKind::call, Pipe::scalar, site);
  return static_cast<int8_t>(take_event(link, site, false));
}

void Core::release_event(int link, int id, Place place) {
  const SiteId site = hit(Call::release_event, place);
  Event& e = event_at(link, id, site);
  if (e.set)
    fault(rule::kFlagLeft, site,
          "nobody waited for flag " + std::string(kLinkNames[static_cast<size_t>(link)]) + " " + std::to_string(id) +
              ", set by " + name(e.site),
          nullptr, e.site);
  e.allocated = false;
  step(StepKind::call, Pipe::scalar, site);
}

void Core::set_flag(int link, int id, Place place) {
  const SiteId site = hit(Call::set_flag, place);
  if (sites_.skips(site)) return;
  event_at(link, id, site);
  set(link, id, site);
}

void Core::wait_flag(int link, int id, Place place) {
  const SiteId site = hit(Call::wait_flag, place);
  if (sites_.skips(site)) return;
  event_at(link, id, site);
  wait(link, id, site, sites_.orders(site));
}

void Core::pipe_barrier(pipe_t pipe, Place place) {
  const SiteId site = hit(Call::pipe_barrier, place);
  if (pipe == PIPE_S) fault(rule::kScalarBarrier, site, "PipeBarrier<PIPE_S> is an error: S runs in order by itself");
  if (!sites_.orders(site)) return;
  constexpr auto kScalar = index_of(Pipe::scalar);
  if (pipe == PIPE_ALL) {
    for (Clock& clock : clocks_) clock = counters_;
    for (uint32_t& counter : counters_) ++counter;
    clocks_[kScalar][kScalar] = UINT32_MAX;
    step(StepKind::barrier_all, Pipe::scalar, site);
    return;
  }
  const Pipe which = pipe == PIPE_V ? Pipe::vector : pipe == PIPE_MTE2 ? Pipe::mte2 : Pipe::mte3;
  const size_t p = index_of(which);
  clocks_[p][p] = counters_[p]++;
  step(StepKind::barrier, which, site);
}

}  // namespace binmoe::vector_core
