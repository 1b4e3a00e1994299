// Small kernels for the tests of the vector-core model.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "ascend/vector_core/machine.h"
#include "kernel_operator.h"

namespace test {

using namespace AscendC;
using namespace binmoe::vector_core;

/// Sixteen rows of 16 floats that may be read, and as many to write.
class Model : public testing::Test {
 protected:
  static constexpr uint32_t kCount = 256;

  Model() { reset(Profile{}); }

  void reset(const Profile& profile) {
    machine_ = std::make_unique<Machine>(profile);
    x_.resize(kCount);
    std::iota(x_.begin(), x_.end(), 1.0f);
    y_.assign(kCount, -1.0f);
    x = machine_->bind("x", x_.data(), kCount * 4, Role::input);
    y = machine_->bind("y", y_.data(), kCount * 4, Role::output);
    scratch = machine_->bind("scratch", nullptr, kCount * 4, Role::workspace);
  }

  /// The fault of a launch; no rule if it passes.
  template <class Body>
  ModelFault fault_of(const Body& body, int32_t programs = 1) {
    try {
      machine_->launch("kernel", programs, body);
    } catch (const ModelFault& fault) {
      return fault;
    }
    return ModelFault("no fault");
  }

  /// The launch must break `rule` at line `at`, with a message that holds all of `parts`.
  template <class Body>
  void expect_fault(const char* rule, const int& at, std::initializer_list<const char*> parts, const Body& body,
                    int32_t programs = 1) {
    const ModelFault fault = fault_of(body, programs);
    const std::string what = fault.what();
    EXPECT_EQ(fault.rule, rule) << what;
    EXPECT_EQ(fault.line, at) << what;
    if (at != 0) {
      EXPECT_NE(fault.file.find("model_"), std::string::npos) << what;
      EXPECT_NE(what.find(".cc:" + std::to_string(at) + ":"), std::string::npos) << what;
    }
    EXPECT_EQ(what.find(std::string("[") + rule + "] kernel, core "), 0u) << what;
    for (const char* part : parts) EXPECT_NE(what.find(part), std::string::npos) << what << "\n  lacks: " << part;
    reset(machine_->profile());
  }

  template <class Body>
  void expect_pass(const Body& body, int32_t programs = 1) {
    EXPECT_STREQ(fault_of(body, programs).what(), "no fault");
    reset(machine_->profile());
  }

  template <class T = float>
  static GlobalTensor<T> global(GM_ADDR address) {
    GlobalTensor<T> out;
    out.SetGlobalBuffer(reinterpret_cast<T*>(address), kCount * 4 / sizeof(T));
    return out;
  }

  std::unique_ptr<Machine> machine_;
  std::vector<float> x_, y_;
  GM_ADDR x = nullptr, y = nullptr, scratch = nullptr;
};

inline void load(const LocalTensor<float>& to, const GlobalTensor<float>& from, uint32_t count,
                 const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  DataCopyPad(to, from, DataCopyExtParams{1, count * 4, 0, 0, 0}, DataCopyPadExtParams<float>{}, file, line);
}

inline void store(const GlobalTensor<float>& to, const LocalTensor<float>& from, uint32_t count,
                  const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  DataCopyPad(to, from, DataCopyExtParams{1, count * 4, 0, 0, 0}, file, line);
}

/// A TPipe with a TBuf of 1024 bytes.
struct Room {
  TPipe pipe;
  TBuf<TPosition::VECCALC> buffer;
  LocalTensor<float> a;

  explicit Room(uint32_t bytes = 1024) {
    pipe.InitBuffer(buffer, bytes);
    a = buffer.Get<float>();
  }
  /// Order `event` by a flag of its own.
  template <HardEvent event>
  void order() {
    const TEventID id = pipe.AllocEventID<event>();
    SetFlag<event>(id);
    WaitFlag<event>(id);
    pipe.ReleaseEventID<event>(id);
  }
};

}  // namespace test
