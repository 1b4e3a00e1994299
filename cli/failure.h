// How a command fails. Apart from common.h, so that files without options need not compile the option parser.
#pragma once

#include <stdexcept>
#include <string>

namespace binmoe::cli {

/// Exit codes of the program.
inline constexpr int kDone = 0;
inline constexpr int kBadData = 1;
inline constexpr int kBadUsage = 2;

/// Ends the program with a message on stderr. Every output is as it was before.
class Failure : public std::runtime_error {
 public:
  Failure(int exit_code, const std::string& message) : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

}  // namespace binmoe::cli
