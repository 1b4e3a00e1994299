// What every command shares: the common options, and how a command is added.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "binmoe/binmoe.h"
#include "failure.h"

namespace binmoe::cli {

/// The options that every command takes. One object serves the whole program.
struct Common {
  std::string backend_name;  ///< empty = BINMOE_BACKEND, else the best
  std::string options;       ///< of the backend: k=v,...
  std::optional<int64_t> threads;
  bool json = false;

  /// The backend that was asked for. Errors: as find_backend.
  const Backend& backend() const;
  /// That backend, on the threads that were asked for. The Context points into this object.
  Context context();
  Executor& executor();

 private:
  std::unique_ptr<Executor> pool_;
};

/// What the help of a command shows.
struct CommandText {
  const char* name;
  const char* description;  ///< one sentence
  const char* footer;       ///< the formula, the shapes and an example
};

/// Add a command with the common options. Add its own options to the result, then: command.callback(run).
CLI::App& add_command(CLI::App& app, Common& common, const CommandText& text);

/// An option that takes a decimal whole number or a decimal fraction; anything else is a usage error.
CLI::Option* add_number(CLI::App& command, const std::string& name, std::optional<int64_t>& value,
                        const std::string& description);
CLI::Option* add_number(CLI::App& command, const std::string& name, std::optional<double>& value,
                        const std::string& description);

/// An option that names a .npy file, and --dtype bf16.
CLI::Option* add_file(CLI::App& command, const std::string& name, std::string& file, const std::string& description);
CLI::Option* add_dtype(CLI::App& command, std::string& dtype);

/// A whole number for an int32 field: below `least` is bad usage, above the type is bad data.
int32_t to_int32(std::string_view name, int64_t value, int64_t least);

/// Print to stdout. Errors: a full or closed stdout.
void print(const std::string& text);

}  // namespace binmoe::cli
