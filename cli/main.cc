// binmoe: the command line. Exit codes: 0 done, 1 bad data, 2 bad usage.
#include <cstdio>
#include <new>

#include "commands.h"

namespace {

using namespace binmoe;

constexpr const char* kFooter = R"(Arrays are .npy files. dtypes: f32, f64, bf16, f16.
Exit codes: 0 done; 1 the data is wrong or a file cannot be read or written; 2 wrong usage.
An output file or folder appears whole or not at all.

Example:
  binmoe plan --expert-ids data/traces/flame-moe-290m_layer05_ids.npy --num-experts 64 --capacity-factor 1.25 --out plan
  binmoe gather --plan plan --x x.npy --out y.npy)";

int fail(int exit_code, const char* message) {
  std::fprintf(stderr, "binmoe: %s\n", message);
  return exit_code;
}

/// Sizes that the command line alone decides were checked before; what the library still refuses is in the data.
int exit_code_of(const Error& error) {
  return error.kind() == ErrorKind::unsupported ? cli::kBadUsage : cli::kBadData;
}

int run(int argc, char** argv) {
  CLI::App app("Capacity-limited Mixture-of-Experts routing: plan, gather, scatter and their backwards.", "binmoe");
  cli::Common common;
  app.set_version_flag("--version", version());
  app.footer(kFooter);
  app.require_subcommand(0, 1);
  cli::add_plan(app, common);
  cli::add_check(app, common);
  cli::add_gather(app, common);
  cli::add_scatter(app, common);
  cli::add_wgrad(app, common);
  cli::add_scatter_backward(app, common);
  cli::add_gather_backward(app, common);
  cli::add_capacity(app, common);
  cli::add_bench(app, common);
  cli::add_tile(app, common);
  cli::add_simulate(app, common);
  cli::add_info(app, common);
  cli::add_demo(app, common);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? cli::kDone : cli::kBadUsage;
  }
  if (app.get_subcommands().empty()) throw cli::Failure(cli::kBadUsage, "no command was given; see binmoe --help");
  return cli::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const cli::Failure& failure) {
    return fail(failure.exit_code(), failure.what());
  } catch (const Error& error) {
    return fail(exit_code_of(error), error.what());
  } catch (const std::bad_alloc&) {
    return fail(cli::kBadData, "out of memory");
  } catch (const std::exception& error) {
    return fail(cli::kBadData, error.what());
  }
}
