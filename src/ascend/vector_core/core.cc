#include "core.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "fault.h"

namespace binmoe::vector_core {

namespace {

thread_local Core* current = nullptr;

std::string base_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

std::string range(int64_t begin, int64_t end) {
  return "[" + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

}  // namespace

Core& current_core() {
  if (!current) throw std::logic_error("a kernel's call outside Machine::launch");
  return *current;
}

void set_current_core(Core* core) {
  current = core;
}

Core::Core(const Profile& profile, GlobalMemory& memory)
    : profile_(profile),
      memory_(memory),
      ub_(static_cast<uint8_t*>(
          ::operator new[](static_cast<size_t>(round_up(profile.ub_bytes, kRepeatBytes)), std::align_val_t{64}))),
      defined_(round_up(profile.ub_bytes, kRepeatBytes)),
      buffers_(static_cast<size_t>(kMaxBuffers)) {}

void Core::begin(const char* kernel, int32_t program, int32_t num_programs) {
  kernel_ = kernel;
  program_ = program;
  num_programs_ = num_programs;
  pipe_site_ = 0;
  used_ = 0;
  num_buffers_ = 0;
  queues_.clear();
  position_buffers_ = {};
  events_ = {};
  clocks_ = {};
  clocks_[index_of(Pipe::scalar)][index_of(Pipe::scalar)] = UINT32_MAX;  // S runs strictly in order
  counters_.fill(1);
  num_flags_ = 0;
  stats_ = {};
  trace_.clear();
}

void Core::end() {
  for (uint32_t i = 0; i < num_buffers_; ++i) {
    const Buffer& b = buffers_[i];
    if (b.state == BufferState::plain || b.state == BufferState::free) continue;
    const char* how = b.state == BufferState::queued      ? "still queued, by "
                      : b.state == BufferState::allocated ? "never queued, since "
                                                          : "never freed, since ";
    const Span span = {i, b.begin, b.end};
    fault(rule::kBufferLeft, b.moved_at, "at the program's end " + name(b) + " is " + how + name(b.moved_at), &span);
  }
  for (size_t link = 0; link < kLinks; ++link)
    for (int id = 0; id < kEventIds; ++id) {
      const Event& e = events_[link][static_cast<size_t>(id)];
      if (!e.allocated || e.of_queue) continue;  // the flags that FreeTensor left: TPipe waits for those
      const std::string flag = std::string("flag ") + kLinkNames[link] + " " + std::to_string(id);
      if (e.set) fault(rule::kFlagLeft, e.site, "nobody waits for " + flag + ", set by " + name(e.site));
      fault(rule::kEventLeft, e.site, flag + " is not released; last used by " + name(e.site));
    }
}

std::string Core::name(SiteId site) const {
  const Sites::Entry& e = sites_.at(site);
  if (site == 0) return "the host";
  return std::string(name_of(e.call)) + " at " + base_name(e.place.file) + ":" + std::to_string(e.place.line);
}

std::string Core::name(const Buffer& b) const {
  const std::string made = " (" + name(b.made_at) + ")";
  if (b.queue < 0) return "the TBuf" + made;
  return "buffer " + std::to_string(b.number) + " of the " + queues_[static_cast<size_t>(b.queue)].shape.name +
         " queue" + made;
}

std::string Core::bytes_of(const Span& span) const {
  if (span.buffer >= num_buffers_) return "bytes of a tensor without a buffer";
  const Buffer& b = buffers_[span.buffer];
  return "bytes " + range(span.begin - b.begin, span.end - b.begin) + " of " + name(b);
}

void Core::fault(const char* broken, SiteId site, const std::string& text, const Span* span, SiteId other,
                 const Tensor* tensor) {
  const Sites::Entry& e = sites_.at(site);
  std::string what = std::string("[") + broken + "] " + kernel_ + ", core " + std::to_string(program_);
  if (site != 0) what += ", " + base_name(e.place.file) + ":" + std::to_string(e.place.line);
  ModelFault thrown(what + ": " + text);
  thrown.rule = broken;
  thrown.kernel = kernel_;
  thrown.core = program_;
  thrown.file = e.place.file;
  thrown.line = e.place.line;
  thrown.other_file = sites_.at(other).place.file;
  thrown.other_line = sites_.at(other).place.line;
  if (span && tensor) {
    thrown.buffer = tensor->name;
    thrown.begin = span->begin;
    thrown.end = span->end;
  } else if (span && span->buffer < num_buffers_) {
    thrown.buffer = name(buffers_[span->buffer]);
    thrown.begin = span->begin - buffers_[span->buffer].begin;
    thrown.end = span->end - buffers_[span->buffer].begin;
  }
  throw thrown;
}

void Core::fault_of(const Clash& clash) {
  program_ = clash.second.core;
  const Tensor& tensor = *memory_.near(clash.second.begin);
  const Span span = {0, GlobalMemory::offset_of(std::max(clash.first.begin, clash.second.begin)),
                     GlobalMemory::offset_of(std::min(clash.first.end, clash.second.end))};
  fault(clash.rule, clash.second.site,
        name(clash.second.site) + (clash.second_reads ? " reads" : " writes") + " bytes " +
            range(span.begin, span.end) + " of " + tensor.name + ", which " + name(clash.first.site) + " on core " +
            std::to_string(clash.first.core) + " writes in the same launch",
        &span, clash.first.site, &tensor);
}

Buffer& Core::buffer_of(const Span& span, Pipe pipe, SiteId site) {
  if (span.buffer >= num_buffers_)
    fault(rule::kQueue, site, name(site, pipe) + " uses a tensor that no queue and no TBuf gave out");
  Buffer& b = buffers_[span.buffer];
  if (span.begin < b.begin || span.end > b.end)
    fault(rule::kBuffer, site,
          name(site, pipe) + " touches " + bytes_of(span) + ", which has " + std::to_string(b.end - b.begin), &span);
  if (b.state == BufferState::free || b.state == BufferState::queued)
    fault(rule::kQueue, site,
          name(site, pipe) + " touches " + bytes_of(span) + ", which is " +
              (b.state == BufferState::free ? "free" : "queued") + " since " + name(b.moved_at),
          &span, b.moved_at);
  return b;
}

/// Order first, values second: a missing wait is named as what it is.
void Core::check(const Span& span, bool write, Pipe pipe, SiteId site) {
  if (span.begin >= span.end) return;
  Buffer& b = buffer_of(span, pipe, site);
  Conflict c;
  if (b.shadow.conflicts(static_cast<uint32_t>(span.begin), static_cast<uint32_t>(span.end), write,
                         clocks_[index_of(pipe)], &c)) {
    const Span common = {span.buffer, c.bytes.begin, c.bytes.end};
    const std::string text = name(site, pipe) + (write ? " writes " : " reads ") + bytes_of(common) + ", which " +
                             name(c.site, c.pipe) + " may still be " + (c.write ? "writing" : "reading");
    if (c.pipe == pipe)
      fault(rule::kBarrier, site, text + "; no PipeBarrier of " + name_of(pipe) + " between them", &common, c.site);
    fault(rule::kRace, site, text + "; no flag or queue orders them", &common, c.site);
  }
  if (write) return;
  const int64_t byte = defined_.first_undefined(span.begin, span.end);
  if (byte >= 0)
    fault(rule::kUndefined, site,
          name(site, pipe) + " reads " + bytes_of(span) + ", but nothing has written byte " +
              std::to_string(byte - b.begin),
          &span);
}

void Core::mark(const Span& span, bool write, Pipe pipe, SiteId site) {
  if (span.begin >= span.end) return;
  Shadow& shadow = buffers_[span.buffer].shadow;
  const auto begin = static_cast<uint32_t>(span.begin), end = static_cast<uint32_t>(span.end);
  const uint32_t counter = counters_[index_of(pipe)];
  if (write)
    shadow.write(begin, end, pipe, counter, site);
  else
    shadow.read(begin, end, pipe, counter, site);
}

void Core::misaligned(const Span& span, SiteId site, int64_t unit) {
  fault(rule::kAlignment, site,
        name(site) + " begins at UB address " + std::to_string(span.begin) + ", which is no multiple of " +
            std::to_string(unit) + ": " + bytes_of(span),
        &span);
}

void Core::check_aligned(const Span& span, SiteId site) {
  if (span.begin % kBlockBytes != 0) misaligned(span, site, kBlockBytes);
}

void Core::vector_step(SiteId site, std::initializer_list<Span> reads, std::initializer_list<Span> writes,
                       int64_t repeats, int64_t fills) {
  int64_t bytes = 0;
  for (const auto& spans : {reads, writes})
    for (const Span& span : spans) {
      buffer_of(span, Pipe::vector, site);
      check_aligned(span, site);
      bytes = std::max(bytes, span.end - span.begin);
    }
  if (repeats > kMaxRepeats)
    fault(rule::kRepeat, site,
          name(site) + " needs " + std::to_string(repeats) + " repeats of 256 bytes; 255 are the limit");
  for (const Span& w : writes)
    for (const auto& spans : {reads, writes})
      for (const Span& s : spans)
        if (w.begin < s.end && s.begin < w.end && (w.begin != s.begin || w.end != s.end))
          fault(rule::kOverlap, site, name(site) + ": " + bytes_of(w) + " and " + bytes_of(s) + " overlap in part", &w);
  for (const Span& span : reads) check(span, false, Pipe::vector, site);
  for (const Span& span : writes) check(span, true, Pipe::vector, site);
  // All checks come before the marks: a mark of the read would hide an older read from the write in place.
  for (const Span& span : reads) mark(span, false, Pipe::vector, site);
  for (const Span& span : writes) {
    mark(span, true, Pipe::vector, site);
    defined_.set(span.begin, span.end);
  }
  if (reads.size() == 2) {
    const int64_t a = reads.begin()->begin, b = (reads.begin() + 1)->begin;
    stats_.bank_conflicts += a != b && (a - b) / kBlockBytes % kBankGroups == 0;
  }
  PipeStats& stats = stats_.pipes[index_of(Pipe::vector)];
  ++stats.operations;
  stats.bytes += bytes;
  step(StepKind::vector, Pipe::vector, site, repeats, fills);
}

void Core::get_value(const Local& tensor, int64_t byte, void* value, int64_t bytes, Place place) {
  const SiteId site = hit(Call::get_value, place);
  const Span span = {tensor.buffer, tensor.begin + byte, tensor.begin + byte + bytes};
  if (span.begin % bytes != 0) misaligned(span, site, bytes);
  check(span, false, Pipe::scalar, site);
  mark(span, false, Pipe::scalar, site);
  std::memcpy(value, ub(span.begin), static_cast<size_t>(bytes));
  ++stats_.scalar_reads;
  scalar_step(1, 0);
}

void Core::set_value(const Local& tensor, int64_t byte, const void* value, int64_t bytes, Place place) {
  const SiteId site = hit(Call::set_value, place);
  const Span span = {tensor.buffer, tensor.begin + byte, tensor.begin + byte + bytes};
  if (span.begin % bytes != 0) misaligned(span, site, bytes);
  check(span, true, Pipe::scalar, site);
  mark(span, true, Pipe::scalar, site);
  defined_.set(span.begin, span.end);
  std::memcpy(ub(span.begin), value, static_cast<size_t>(bytes));
  ++stats_.scalar_writes;
  scalar_step(0, 1);
}

void Core::count_scalar(int64_t operations) {
  stats_.scalar_operations += operations;
  scalar_step(0, operations);
}

bool Core::keeps_bound(Place place) {
  return sites_.orders(hit(Call::bound, place));
}

void Core::step(StepKind kind, Pipe pipe, SiteId site, int64_t amount, int64_t extent, uint32_t flag) {
  trace_.push_back({kind, pipe, site, static_cast<uint32_t>(amount), static_cast<uint32_t>(extent), flag});
}

/// Work between two calls is one step.
void Core::scalar_step(int64_t reads, int64_t operations) {
  if (trace_.empty() || trace_.back().kind != StepKind::scalar) step(StepKind::scalar, Pipe::scalar, 0);
  trace_.back().amount += static_cast<uint32_t>(reads);
  trace_.back().extent += static_cast<uint32_t>(operations);
}

}  // namespace binmoe::vector_core
