// Where and how a call runs: the backend table, the executor hook, workspace and options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "binmoe/types.h"

namespace binmoe {

/// Threads are a hook. parallel_for calls body(argument, i) once for each i in [0, chunks), on any thread, in any
/// order, and returns when all are done. The body never throws. A call from inside a body must not deadlock.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual int concurrency() const = 0;
  virtual void parallel_for(int64_t chunks, void (*body)(void* argument, int64_t chunk), void* argument) = 0;
};

/// The process-wide pool: as many threads as sched_getaffinity allows at first use; started at first use; made anew in
/// a child after fork. A call from inside a chunk, or while another thread holds the pool, runs inline.
Executor& default_executor();

/// A pool of its own with `threads` threads, the caller's included. threads >= 1; 1 never starts one. Unlike the
/// default one it must not be used in a child after fork once it has run.
std::unique_ptr<Executor> make_thread_pool(int threads);

/// Where arrays are.
enum class Memory : uint8_t { host, cuda };

struct BackendOperations;  // src/backend.h

/// An entry of the backend table.
struct Backend {
  const char* name = nullptr;
  const char* description = nullptr;
  const char* unsupported = nullptr;  ///< null = it runs here; else the reason why not
  const BackendOperations* operations = nullptr;
  uint8_t dtypes = 0;            ///< bit 1 << DType for each dtype that it takes, of rows, weights and dw
  bool by_name_only = false;     ///< never the default
  Memory memory = Memory::host;  ///< what it works on

  constexpr bool takes(DType type) const { return (dtypes >> static_cast<int>(type) & 1) != 0; }
};

/// Every known backend, the best first; those that cannot run here carry the reason.
std::span<const Backend> backends();

/// The backend of that name. Errors: unsupported, with the names there are, or with its reason.
const Backend& find_backend(std::string_view name);

/// For arrays in `memory`: the one that BINMOE_BACKEND names if it can work on them, else the first supported one of
/// the table that works on such memory. Errors: as find_backend.
const Backend& default_backend(Memory memory = Memory::host);

/// A setting that one backend understands: Context::options = "key=value,key=value".
struct BackendOption {
  std::string key;
  std::string value;                ///< in force when the caller gives none
  std::vector<std::string> values;  ///< what it takes here; empty = a number
  std::string description;
};
std::vector<BackendOption> backend_options(const Backend& backend);

/// What a backend runs on: device, memory, copy speed. Cost: the cuda backend measures the copy, about 0.1 s.
struct BackendProperty {
  std::string name;
  std::string value;
};
std::vector<BackendProperty> backend_properties(const Backend& backend);

/// How a call runs. Default: host arrays on the default backend and executor. Calls are reentrant when workspaces
/// differ.
///   Arrays in the memory of the current device: the call launches on `stream` and returns; it neither allocates nor
///   waits, plan needs a workspace in that memory, and what arrays hold is not looked at (PlanView::status, check()).
///   Host arrays on a device backend: every array is copied in, the result out, and the call waits; ids and bins are
///   checked as on the host. For tests and tools; cost: a copy of each array each way.
struct Context {
  const Backend* backend = nullptr;  ///< null = default_backend(memory)
  Executor* executor = nullptr;      ///< null = default_executor()
  void* workspace = nullptr;         ///< null = plan allocates what it needs (host arrays)
  size_t workspace_bytes = 0;        ///< at least plan_workspace_bytes(), when workspace is given
  const char* options = nullptr;     ///< of the backend; an unknown key is an error
  Memory memory = Memory::host;      ///< where the arrays and the workspace are
  void* stream = nullptr;            ///< of a device backend, a cudaStream_t of the current device; null = the default
};

/// "0.1.0"
const char* version();

}  // namespace binmoe
