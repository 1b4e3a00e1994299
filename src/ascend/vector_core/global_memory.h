// Global memory: the tensors that the host has bound, far apart in an address space of their own, so that an access
// past a tensor meets nothing; and the bursts of a launch, checked against each other when it has ended.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "types.h"

namespace binmoe::vector_core {

enum class Role : uint8_t { input, output, workspace };

struct Tensor {
  std::string name;
  uint8_t* host = nullptr;  // null: a tensor without memory, for estimates; it reads as whatever UB held
  int64_t bytes = 0;
  Role role = Role::input;
  bool all_defined = false;
  std::vector<ByteRange> defined;  // by the host or by earlier launches: sorted, disjoint
  std::vector<ByteRange> written;  // one entry for each time that a launch wrote the bytes
  int64_t read_bytes = 0;          // over all launches; bytes read twice count twice
  int64_t written_bytes = 0;
  std::unique_ptr<uint8_t[]> owned;
};

/// One burst, or several without a gap.
struct Burst {
  uint64_t begin;
  uint64_t end;
  int32_t core;
  SiteId site;
  bool whole_lines;  // DataCopy
};

/// Two bursts of a launch that must not meet.
struct Clash {
  const char* rule;
  Burst first;
  Burst second;
  bool second_reads;
};

class GlobalMemory {
 public:
  uint64_t bind(Tensor tensor);
  /// The tensor in whose neighbourhood an address lies, or null.
  Tensor* near(uint64_t address);
  static uint64_t address_of(size_t index) { return (static_cast<uint64_t>(index + 1) << kShift) + kMiddle; }
  /// Byte of a tensor; negative before it.
  static int64_t offset_of(uint64_t address) {
    return static_cast<int64_t>(address & ((uint64_t{1} << kShift) - 1)) - static_cast<int64_t>(kMiddle);
  }
  Tensor* find(const std::string& name);

  /// The first byte of [begin, end) of a tensor without a value, or -1.
  static int64_t first_undefined(const Tensor& tensor, int64_t begin, int64_t end);

  void begin_launch();
  void note(std::vector<Burst>& bursts, const Burst& burst);
  void note_read(const Burst& burst) { note(reads_, burst); }
  void note_write(const Burst& burst) { note(writes_, burst); }
  /// Compare the bursts of the launch; what it wrote is defined from now on.
  std::optional<Clash> end_launch();
  int64_t shared_lines() const { return shared_lines_; }

 private:
  static constexpr int kShift = 40;
  static constexpr uint64_t kMiddle = uint64_t{1} << (kShift - 1);

  std::optional<Clash> compare_writes();
  std::optional<Clash> compare_reads();
  void define_writes();

  std::vector<std::unique_ptr<Tensor>> tensors_;
  std::vector<Burst> reads_;  // of tensors that a launch may write
  std::vector<Burst> writes_;
  int64_t shared_lines_ = 0;
};

/// Sort and join ranges that meet.
std::vector<ByteRange> merged(std::vector<ByteRange> ranges);

}  // namespace binmoe::vector_core
