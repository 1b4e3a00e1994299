// Ascend: tile plans with an exact Unified Buffer (UB) budget, and runs of the Ascend C kernels on our own model of a
// vector core. Pure C++ on any host. Estimates come from published figures (docs/ascend.md); nothing here was measured.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "binmoe/types.h"

namespace binmoe::ascend {

/// A chip. Figures and their sources: docs/ascend.md, section 1.
struct Soc {
  const char* name;
  const char* generation;  ///< "A2", "A3", "950"
  int32_t vector_cores;
  int64_t ub_bytes;
  int64_t ub_limit_bytes;  ///< what a kernel may use
  const char* source;
};
std::span<const Soc> socs();

/// By name, with or without a leading "Ascend". Errors: unsupported, with the names there are.
const Soc& find_soc(std::string_view name);

enum class Family : uint8_t { ascendc, triton };
/// How a Triton kernel copies rows by index (docs/ascend.md, section 3).
enum class RowCopy : uint8_t { indexed_load, element_insert, index_select };
enum class Op : uint8_t { plan, gather, scatter, wgrad, scatter_backward };
/// Of a gather: token order reads each row once; expert order walks the sorted positions.
enum class Order : uint8_t { token, expert };

const char* name_of(Family family);
const char* name_of(RowCopy form);
const char* name_of(Op op);
const char* name_of(Order order);

/// What is asked. tokens and E*C*H may pass 2^31.
struct TileRequest {
  const Soc* soc = nullptr;
  Family family = Family::ascendc;
  std::optional<RowCopy> row_copy;  ///< of a Triton gather in expert order, else not used; none: the cheaper
  Op op = Op::gather;
  std::optional<Order> order;  ///< gather only; none: Ascend C the faster by the estimate, Triton token order
  DType rows = DType::bf16;  ///< f32, bf16 or f16; an unweighted Ascend C gather also bytes, hidden_size counting them
  std::optional<DType> weights;
  DType dw = DType::f32;
  DropPolicy policy = DropPolicy::token_order;  ///< plan only; by_weight orders by `weights`
  int64_t tokens = 0;
  int64_t hidden_size = 0;
  int32_t num_experts = 1;
  int32_t top_k = 1;
  int64_t expert_capacity = 0;
};

/// `count` buffers of `bytes` bytes each, rounded to 32.
struct TileBuffer {
  std::string name;
  int64_t bytes = 0;
  int32_t count = 1;
};

struct TilePlan {
  TileRequest request;  ///< its row_copy: the one picked
  Order order = Order::token;
  int32_t num_programs = 0;
  int64_t items = 0;            ///< tokens, or sorted positions, that are dealt to the programs
  int64_t items_per_block = 0;  ///< dealt at a time, round robin
  int64_t sub_block_size = 0;   ///< rows held in one UB row buffer
  int64_t block_x = 0;          ///< columns of a tile: hidden_size, or a multiple of 32 bytes
  std::vector<TileBuffer> buffers;
  int64_t ub_bytes = 0;  ///< sum of the buffers: exact for ascendc; for triton by the rule of docs/ascend.md, section 3
  int64_t ub_limit_bytes = 0;
  double estimate_us = 0;  ///< from bytes alone (plan: from the scalar unit's share); simulate says more
};

/// Errors: sizes; a dtype that the kernels do not take; no tile that fits (with the bytes wanted and there).
TilePlan tile_plan(const TileRequest& request);

/// Work of one pipe of one program.
struct PipeWork {
  int64_t operations = 0, bytes = 0, bursts = 0, waits = 0;
};

struct ProgramWork {
  PipeWork scalar, vector, mte2, mte3;
  int64_t scalar_reads = 0, scalar_writes = 0, scalar_operations = 0;
};

/// One launch on the model.
struct LaunchReport {
  std::string kernel;
  int64_t ub_high_water = 0;
  int64_t gm_read_bytes = 0, gm_written_bytes = 0;
  std::vector<ProgramWork> programs;
  double estimate_us = 0;
  double estimate_slow_scalar_us = 0;  ///< scalar costs doubled and an issue queue of 8
};

struct Simulation {
  TilePlan tile;
  std::vector<LaunchReport> launches;
  int64_t minimum_bytes = 0;  ///< docs/design.md, section 6
  double bound_us = 0;        ///< minimum bytes at the chip's bandwidth, of all programs and of memory
  double estimate_us = 0;     ///< sum of the launches
  double estimate_slow_scalar_us = 0;
};

/// Run one operation on the model with tensors of its own (weights if the request has them; the plan op: expert_ids
/// from the plan's maps). chrome_trace, if given, gets a trace of the first launch (JSON). Errors: as tile_plan; a
/// fault that the model finds (std::runtime_error), which would be a bug of the kernels.
Simulation simulate(const TileRequest& request, const ConstPlanView& plan, std::string* chrome_trace = nullptr);

}  // namespace binmoe::ascend
