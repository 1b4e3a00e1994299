// Copies between global memory and UB.
#include <algorithm>
#include <cstring>

#include "core.h"
#include "fault.h"

namespace binmoe::vector_core {

namespace {

std::string of_bytes(const Tensor& tensor) {
  return tensor.name + ", which has " + std::to_string(tensor.bytes);
}

std::string range(int64_t begin, int64_t end) {
  return "bytes [" + std::to_string(begin) + ", " + std::to_string(end) + ") of ";
}

int64_t hull_bytes(int64_t blocks, int64_t pitch, int64_t last) {
  return (blocks - 1) * pitch + last;
}

}  // namespace

/// Limits of the instruction; `whole` is the UB that it touches.
void Core::check_transfer(const Span& whole, const Transfer& t, SiteId site) {
  const auto refuse = [&](const char* what, int64_t is, int64_t limit) {
    fault(rule::kBurst, site,
          name(site) + ": " + what + " is " + std::to_string(is) + ", the limit " + std::to_string(limit), &whole);
  };
  if (t.blocks > kMaxBlocks) refuse("blockCount", t.blocks, kMaxBlocks);
  if (t.call == Call::data_copy_pad && t.block_bytes > kMaxPadBytes) refuse("blockLen", t.block_bytes, kMaxPadBytes);
  if (t.left_bytes > kMaxPadding) refuse("the left padding in bytes", t.left_bytes, kMaxPadding);
  if (t.right_bytes > kMaxPadding) refuse("the right padding in bytes", t.right_bytes, kMaxPadding);
  if (t.block_bytes % t.pad_element_bytes != 0)
    fault(rule::kBurst, site,
          name(site) + ": blockLen " + std::to_string(t.block_bytes) + " is no multiple of the element's " +
              std::to_string(t.pad_element_bytes) + " bytes",
          &whole);
}

Tensor& Core::tensor_of(uint64_t address, const Transfer& t, bool write, SiteId site) {
  Tensor* tensor = memory_.near(address);
  if (!tensor)
    fault(rule::kGlobal, site, name(site) + (write ? " writes" : " reads") + " an address of no bound tensor");
  const int64_t begin = GlobalMemory::offset_of(address);
  const int64_t end = begin + hull_bytes(t.blocks, t.global_pitch, t.block_bytes);
  const Span span = {0, begin, end};
  if (begin < 0 || end > tensor->bytes)
    fault(rule::kGlobal, site, name(site) + (write ? " writes " : " reads ") + range(begin, end) + of_bytes(*tensor),
          &span, 0, tensor);
  if (t.call == Call::data_copy && (begin % kBlockBytes != 0))
    fault(rule::kAlignment, site,
          name(site) + " begins at byte " + std::to_string(begin) + " of " + tensor->name + ", no multiple of 32",
          &span, 0, tensor);
  if (write && tensor->role == Role::input)
    fault(rule::kInput, site, name(site) + " writes " + range(begin, end) + tensor->name + ", an input", &span, 0,
          tensor);
  return *tensor;
}

Span Core::local_block(const Local& tensor, const Transfer& t, int64_t block) const {
  const int64_t begin = tensor.begin + block * t.local_pitch;
  return {tensor.buffer, begin, begin + t.left_bytes + t.block_bytes + t.right_bytes};
}

void Core::copy_in(const Local& to, uint64_t from, const Transfer& t, Place place) {
  const SiteId site = hit(t.call, place);
  step(StepKind::copy, Pipe::mte2, site, t.blocks, t.blocks * t.block_bytes);
  if (t.blocks == 0 || t.block_bytes == 0) {
    trace_.back().kind = StepKind::call;
    return;
  }
  // Ordering covers whole 32-byte blocks of UB, values only the bytes that arrive.
  const int64_t filled = t.left_bytes + t.block_bytes + t.right_bytes, rounded = round_up(filled, kBlockBytes);
  const Span whole = {to.buffer, to.begin, to.begin + hull_bytes(t.blocks, t.local_pitch, rounded)};
  buffer_of(whole, Pipe::mte2, site);
  check_transfer(whole, t, site);
  check_aligned(whole, site);
  const Tensor& tensor = tensor_of(from, t, false, site);
  const int64_t offset = GlobalMemory::offset_of(from);

  const bool one_global = t.global_pitch == t.block_bytes, one_local = t.local_pitch == rounded;
  const int64_t total = t.blocks * t.block_bytes;
  for (int64_t b = 0; b < (one_global ? 1 : t.blocks); ++b) {
    const int64_t begin = offset + b * t.global_pitch, end = begin + (one_global ? total : t.block_bytes);
    const int64_t missing = GlobalMemory::first_undefined(tensor, begin, end);
    if (missing >= 0) {
      const Span span = {0, begin, end};
      fault(rule::kUndefined, site,
            name(site) + " reads " + range(begin, end) + tensor.name + ", but nothing has written byte " +
                std::to_string(missing) + " before this launch",
            &span, 0, &tensor);
    }
    if (tensor.role != Role::input)
      memory_.note_read({from + static_cast<uint64_t>(b * t.global_pitch),
                         from + static_cast<uint64_t>(b * t.global_pitch + end - begin), program_, site, false});
  }
  for (int64_t b = 0; b < (one_local ? 1 : t.blocks); ++b) {
    Span span = whole;
    if (!one_local) span = {to.buffer, to.begin + b * t.local_pitch, to.begin + b * t.local_pitch + rounded};
    check(span, true, Pipe::mte2, site);
    mark(span, true, Pipe::mte2, site);
  }
  if (one_local && filled == rounded) defined_.set(whole.begin, whole.end);
  if (tensor.host && one_global && one_local && t.block_bytes == rounded) {
    std::memcpy(ub(to.begin), tensor.host + offset, static_cast<size_t>(total));
  } else {
    for (int64_t b = 0; b < t.blocks; ++b) {
      const Span span = local_block(to, t, b);
      uint8_t* target = ub(span.begin);
      for (int64_t i = 0; i < t.left_bytes; i += t.pad_element_bytes)
        std::memcpy(target + i, &t.pad_bits, static_cast<size_t>(t.pad_element_bytes));
      target += t.left_bytes;
      if (tensor.host)
        std::memcpy(target, tensor.host + offset + b * t.global_pitch, static_cast<size_t>(t.block_bytes));
      target += t.block_bytes;
      for (int64_t i = 0; i < t.right_bytes; i += t.pad_element_bytes)
        std::memcpy(target + i, &t.pad_bits, static_cast<size_t>(t.pad_element_bytes));
      if (filled == rounded && one_local) continue;
      defined_.clear(span.end, span.begin + rounded);  // what the hardware leaves there is not specified
      defined_.set(span.begin, span.end);
    }
  }
  PipeStats& stats = stats_.pipes[index_of(Pipe::mte2)];
  ++stats.operations;
  stats.bursts += t.blocks;
  stats.bytes += total;
  memory_.near(from)->read_bytes += total;
}

void Core::copy_out(uint64_t to, const Local& from, const Transfer& t, Place place) {
  const SiteId site = hit(t.call, place);
  step(StepKind::copy, Pipe::mte3, site, t.blocks, t.blocks * t.block_bytes);
  if (t.blocks == 0 || t.block_bytes == 0) {
    trace_.back().kind = StepKind::call;
    return;
  }
  const Span whole = {from.buffer, from.begin, from.begin + hull_bytes(t.blocks, t.local_pitch, t.block_bytes)};
  buffer_of(whole, Pipe::mte3, site);
  check_transfer(whole, t, site);
  check_aligned(whole, site);
  Tensor& tensor = tensor_of(to, t, true, site);
  const int64_t offset = GlobalMemory::offset_of(to);

  const bool one_global = t.global_pitch == t.block_bytes, one_local = t.local_pitch == t.block_bytes;
  const int64_t total = t.blocks * t.block_bytes;
  for (int64_t b = 0; b < (one_local ? 1 : t.blocks); ++b) {
    const Span span = one_local ? whole : local_block(from, t, b);
    check(span, false, Pipe::mte3, site);
    mark(span, false, Pipe::mte3, site);
  }
  const bool lines = t.call == Call::data_copy;
  for (int64_t b = 0; b < (one_global ? 1 : t.blocks); ++b) {
    const uint64_t begin = to + static_cast<uint64_t>(b * t.global_pitch);
    memory_.note_write(
        {begin, begin + static_cast<uint64_t>(one_global ? total : t.block_bytes), program_, site, lines});
  }
  if (tensor.host) {
    if (one_global && one_local)
      std::memcpy(tensor.host + offset, ub(from.begin), static_cast<size_t>(total));
    else
      for (int64_t b = 0; b < t.blocks; ++b)
        std::memcpy(tensor.host + offset + b * t.global_pitch, ub(from.begin + b * t.local_pitch),
                    static_cast<size_t>(t.block_bytes));
  }
  PipeStats& stats = stats_.pipes[index_of(Pipe::mte3)];
  ++stats.operations;
  stats.bursts += t.blocks;
  stats.bytes += total;
  tensor.written_bytes += total;
}

void Core::scalar_global(Call call, uint64_t address, int64_t bytes, Place place) {
  const SiteId site = hit(call, place);
  const Tensor* tensor = memory_.near(address);
  const int64_t begin = GlobalMemory::offset_of(address);
  const Span span = {0, begin, begin + bytes};
  fault(rule::kScalarGlobal, site,
        name(site) + " on a GlobalTensor: " + (tensor ? range(begin, begin + bytes) + tensor->name : "no tensor") +
            "; stage it through UB with a copy",
        tensor ? &span : nullptr, 0, tensor);
}

}  // namespace binmoe::vector_core
