// One benchmark case: a plan and the tensors of every operation, and what each operation must move.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "binmoe/binmoe.h"

namespace binmoe::bench {

enum class Op { plan, gather, scatter, wgrad, scatter_backward, gather_backward };

/// "plan", ..., "scatter-backward": as the command line calls them.
const char* name_of(Op op);
std::vector<Op> all_ops();

/// Touched memory, 64-byte aligned.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);
  char* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(char* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  std::unique_ptr<char, Free> data_;
  size_t bytes_ = 0;
};

/// f32 weights; rows of `dtype` with values in [0.5, 1.5), so that wgrad's error bound is H * 2^-24 * dw.
class Problem {
 public:
  /// Errors: as make_plan; out_of_memory with the bytes wanted.
  Problem(const std::vector<int32_t>& expert_ids, const Sizes& sizes, int64_t hidden_size, DType dtype);

  /// Bytes that the operation must move at least (docs/design.md, section 6).
  int64_t minimum_bytes(Op op) const;
  void run(Op op, const Context& context);
  /// Run once and compare with the reference: bit for bit, wgrad within its bound. Throws std::runtime_error.
  void verify(Op op, const Context& context);

  const Load& load() const { return load_; }

 private:
  struct Outputs {
    Buffer rows;  // y or dy, or out or dx
    Buffer weights;
    Plan plan;
  };

  Outputs make_outputs(Op op) const;
  void run_into(Op op, Outputs& outputs, const Context& context) const;
  ConstRows view(const Buffer& buffer, int64_t rows) const;
  void make_inputs(Op op);

  const std::vector<int32_t>& ids_;
  Sizes sizes_;
  int64_t hidden_size_;
  DType dtype_;
  Plan plan_;
  Load load_;
  int64_t tokens_with_a_row_ = 0;
  Buffer tokens_, expert_rows_;  // x or grad; y or dy; made when an operation first needs them
  Buffer weights_;
  Outputs outputs_;
  Op outputs_for_ = Op::plan;
  bool have_outputs_ = false;
};

}  // namespace binmoe::bench
