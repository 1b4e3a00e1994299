// The host's side of the model: bind tensors, launch kernels, read results and figures. Kernels include
// kernel_operator.h instead. Machines in different threads do not meet.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core.h"
#include "estimate.h"
#include "fault.h"
#include "mutation.h"

namespace binmoe::vector_core {

class Machine {
 public:
  explicit Machine(const Profile& profile);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  const Profile& profile() const { return profile_; }

  /// Make `bytes` at `data` a tensor of global memory; the address is for kernels only, host() gives the memory.
  ///   data  used in place: it must outlive the machine, and be writable for outputs and workspaces; null for those:
  ///         the machine owns the memory
  ///   defined  outputs and workspaces start without values, whatever `data` holds, unless this is set
  GM_ADDR bind(const char* name, const void* data, int64_t bytes, Role role, bool defined = false);
  /// A tensor without memory, for estimates: writes go nowhere, reads give rubbish that counts as defined for an input.
  GM_ADDR bind_without_memory(const char* name, int64_t bytes, Role role, bool defined = false);
  uint8_t* host(const std::string& name) const;

  /// Run body() once for each program, one after the other. Throws ModelFault at the first broken rule; then the
  /// outputs hold no result.
  template <class Body>
  void launch(const char* kernel, int32_t num_programs, const Body& body) {
    begin_launch(kernel, num_programs);
    const Running running(*core_);
    for (int32_t program = 0; program < num_programs; ++program) {
      core_->begin(launches_.back().kernel.c_str(), program, num_programs);
      body();
      end_program();
    }
    end_launch();
  }

  /// One entry for each launch that has ended, or has thrown.
  const std::vector<Launch>& launches() const { return launches_; }
  /// All launches, one after the other.
  Estimate estimate(const ReplayOptions& options = {}) const;
  /// Chrome's trace format (JSON): a process for each core, a thread for each pipe. An estimate, too.
  std::string chrome_trace(const Launch& launch, const ReplayOptions& options = {}) const;

  /// Bytes of a tensor that launches wrote, sorted, neighbours joined.
  std::vector<ByteRange> written(const std::string& name) const;
  /// Throw ModelFault unless all launches together wrote each byte of `ranges` once. Without ranges: the whole tensor.
  void expect_written_once(const std::string& name, const std::vector<ByteRange>& ranges) const;
  void expect_written_once(const std::string& name) const;
  /// Over all launches; bytes read twice count twice.
  int64_t read_bytes(const std::string& name) const { return tensor(name).read_bytes; }
  int64_t written_bytes(const std::string& name) const { return tensor(name).written_bytes; }

  /// Change one call site of the kernels, before the first launch.
  void mutate(const Mutation& mutation) { core_->sites().mutate(mutation); }
  /// The sites that launches have met, with their hits.
  std::vector<SiteHits> sites() const { return core_->sites().mutable_sites(); }

 private:
  struct Running {
    explicit Running(Core& core) { set_current_core(&core); }
    ~Running() { set_current_core(nullptr); }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
  };

  void begin_launch(const char* kernel, int32_t num_programs);
  void end_program();
  void end_launch();
  GM_ADDR bind_tensor(Tensor tensor);
  const Tensor& tensor(const std::string& name) const;

  Profile profile_;
  std::unique_ptr<GlobalMemory> memory_;
  std::unique_ptr<Core> core_;
  std::vector<Launch> launches_;
};

}  // namespace binmoe::vector_core
