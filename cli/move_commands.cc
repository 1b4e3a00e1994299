// binmoe gather and scatter
#include "commands.h"
#include "mover.h"

namespace binmoe::cli {
namespace {

constexpr CommandText kGatherText = {"gather", "Gather token rows into expert order.",
                                     R"(Formula:
  y[e,c,:] = w[a] * x[a / top_k, :],  a = indices[start_e + c];  empty rows are 0
  Without --weights a row is copied byte for byte: any dtype of fixed size, and y keeps x's. With them the
  product is taken in f32 (f64 rows: f64) and rounded once.

Files:
  x.npy  [tokens, hidden_size] f32, f64, bf16 or f16; any without --weights
  w.npy  [tokens, top_k] or flat; f32, bf16, f16, and f64 with f64 rows
  y.npy  [num_experts, expert_capacity, hidden_size] as x
  bf16 is written with the descr '<V2', as ml_dtypes does.

Example:
  binmoe gather --plan plan --x x.npy --out y.npy)"};

constexpr CommandText kScatterText = {"scatter", "Combine expert rows per token.",
                                      R"(Formula:
  out[t,:] = sum over k = 0..top_k-1, in that order, of w[t,k] * y[row_of_assignment[t,k], :]
  in f32 (f64 rows: f64), rounded once at the end; -1 adds nothing; without --weights the rows are added.

Files:
  y.npy    [num_experts, expert_capacity, hidden_size] f32, f64, bf16 or f16
  w.npy    [tokens, top_k] or flat; f32, bf16, f16, and f64 with f64 rows
  out.npy  [tokens, hidden_size] as y

Example:
  binmoe scatter --plan plan --y y.npy --weights w.npy --out out.npy)"};

void run_gather(const MoverOptions& options, Common& common) {
  Mover mover(options, common);
  Array& x = mover.read_tokens(options.x);
  const Weights weights = mover.read_weights(x);
  const bool weighted = weights.data != nullptr;
  const ConstRows rows = weighted ? rows_of(x, mover.uint16_is_bf16()) : raw_rows_of(x);
  Array& y = weighted ? mover.make_expert_rows(rows.type, rows.cols) : mover.make_expert_rows(x);
  mover.begin_work();
  gather(mover.plan(), rows, weights, output_rows_of(y, rows), mover.context());
  mover.finish();
}

void run_scatter(const MoverOptions& options, Common& common) {
  Mover mover(options, common);
  Array& y = mover.read_expert_rows(options.y);
  const ConstRows rows = rows_of(y, mover.uint16_is_bf16());
  const Weights weights = mover.read_weights(y);
  Array& out = mover.make_tokens(rows.type, rows.cols);
  mover.begin_work();
  scatter(mover.plan(), rows, weights, output_rows_of(out, rows), mover.context());
  mover.finish();
}

}  // namespace

void add_gather(CLI::App& app, Common& common) {
  const auto options = std::make_shared<MoverOptions>();
  CLI::App& command = add_command(app, common, kGatherText);
  add_mover_options(command, *options);
  add_file(command, "--x", options->x, "Token rows")->required();
  add_file(command, "--weights", options->weights, "Router weights");
  add_file(command, "--out", options->out, "Expert rows y")->required();
  command.callback([options, &common] { run_gather(*options, common); });
}

void add_scatter(CLI::App& app, Common& common) {
  const auto options = std::make_shared<MoverOptions>();
  CLI::App& command = add_command(app, common, kScatterText);
  add_mover_options(command, *options);
  add_file(command, "--y", options->y, "Expert rows")->required();
  add_file(command, "--weights", options->weights, "Router weights");
  add_file(command, "--out", options->out, "Token rows")->required();
  command.callback([options, &common] { run_scatter(*options, common); });
}

}  // namespace binmoe::cli
