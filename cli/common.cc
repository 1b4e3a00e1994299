#include "common.h"

#include <charconv>
#include <cstdio>
#include <limits>

namespace binmoe::cli {
namespace {

constexpr int64_t kMaxThreads = 1024;

template <class Number>
CLI::Option* add_number_as(CLI::App& command, const std::string& name, std::optional<Number>& value,
                           const std::string& description, const char* kind) {
  const auto read = [&value, name, kind](const std::string& text) {
    Number parsed{};
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, parsed);
    if (error == std::errc::result_out_of_range) throw CLI::ValidationError(name, "'" + text + "' is out of range");
    if (error != std::errc() || rest != end) throw CLI::ValidationError(name, "'" + text + "' is not a " + kind);
    value = parsed;
  };
  return command.add_option_function<std::string>(name, read, description)->type_name("NUMBER");
}

void add_common_options(CLI::App& app, Common& common) {
  app.add_option("--backend", common.backend_name, "By name (see binmoe info); else BINMOE_BACKEND, else the best here")
      ->type_name("NAME")
      ->group("Common");
  app.add_option("--options", common.options, "Settings of the backend (see binmoe info)")
      ->type_name("K=V,...")
      ->group("Common");
  add_number(app, "--threads", common.threads, "Threads, 1 to 1024; else all that this process may use")
      ->group("Common");
  app.add_flag("--json", common.json, "Machine-readable output on stdout")->group("Common");
}

}  // namespace

const Backend& Common::backend() const {
  return backend_name.empty() ? default_backend() : find_backend(backend_name);
}

Executor& Common::executor() {
  if (!threads) return default_executor();
  if (pool_ == nullptr) pool_ = make_thread_pool(static_cast<int>(*threads));
  return *pool_;
}

Context Common::context() {
  Context context;
  context.backend = &backend();
  context.executor = &executor();
  context.options = options.empty() ? nullptr : options.c_str();
  return context;
}

CLI::App& add_command(CLI::App& app, Common& common, const CommandText& text) {
  CLI::App* command = app.add_subcommand(text.name, text.description);
  command->footer(text.footer);
  add_common_options(*command, common);
  command->parse_complete_callback([&common] {
    if (common.threads && (*common.threads < 1 || *common.threads > kMaxThreads))
      throw Failure(kBadUsage, "--threads is " + std::to_string(*common.threads) + ", but must be from 1 to 1024");
  });
  return *command;
}

CLI::Option* add_number(CLI::App& command, const std::string& name, std::optional<int64_t>& value,
                        const std::string& description) {
  return add_number_as(command, name, value, description, "whole number");
}

CLI::Option* add_number(CLI::App& command, const std::string& name, std::optional<double>& value,
                        const std::string& description) {
  return add_number_as(command, name, value, description, "number");
}

CLI::Option* add_file(CLI::App& command, const std::string& name, std::string& file, const std::string& description) {
  return command.add_option(name, file, description)->type_name("FILE");
}

CLI::Option* add_dtype(CLI::App& command, std::string& dtype) {
  return command.add_option("--dtype", dtype, "bf16: read every uint16 array, weights too, as bf16")
      ->type_name("NAME")
      ->check(CLI::IsMember({"bf16"}).description(""));
}

int32_t to_int32(std::string_view name, int64_t value, int64_t least) {
  const std::string start = std::string(name) + " is " + std::to_string(value) + ", but must be ";
  if (value < least) throw Failure(kBadUsage, start + "at least " + std::to_string(least));
  if (value > std::numeric_limits<int32_t>::max()) throw Failure(kBadData, start + "below 2^31");
  return static_cast<int32_t>(value);
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw Failure(kBadData, "stdout cannot be written");
}

}  // namespace binmoe::cli
