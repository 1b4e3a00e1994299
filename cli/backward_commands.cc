// binmoe wgrad, scatter-backward and gather-backward
#include "commands.h"
#include "mover.h"

namespace binmoe::cli {
namespace {

constexpr CommandText kWgradText = {"wgrad", "Gradient of scatter with respect to the router weights.",
                                    R"(Formula:
  dw[t,k] = dot(y[row_of_assignment[t,k], :], grad[t, :]) in f32 (f64 rows: f64); 0 where -1

Files:
  y.npy   [num_experts, expert_capacity, hidden_size] f32, f64, bf16 or f16
  g.npy   [tokens, hidden_size] as y
  dw.npy  [tokens, top_k] f32; f64 with f64 rows

Example:
  binmoe wgrad --plan plan --y y.npy --grad g.npy --out dw.npy)"};

constexpr CommandText kScatterBackwardText = {"scatter-backward", "Backward of scatter, in one pass.",
                                              R"(Formula:
  dy = gather(grad, w): dy[e,c,:] = w[a] * grad[a / top_k, :]; without --weights a copy; empty rows are 0
  dw = wgrad(y, grad), with --out-weights

Files:
  y.npy   [num_experts, expert_capacity, hidden_size] f32, f64, bf16 or f16
  g.npy   [tokens, hidden_size] as y
  w.npy   [tokens, top_k] or flat; f32, bf16, f16, and f64 with f64 rows
  dy.npy  as y;  dw.npy  [tokens, top_k] f32; f64 with f64 rows

Example:
  binmoe scatter-backward --plan plan --y y.npy --grad g.npy --weights w.npy --out-y dy.npy --out-weights dw.npy)"};

constexpr CommandText kGatherBackwardText = {"gather-backward", "Backward of gather.",
                                             R"(Formula:
  dx = scatter(dy, w): dx[t,:] = sum over k of w[t,k] * dy[row_of_assignment[t,k], :]; empty rows are not read
  dw = wgrad(dy, x), with --x and --out-weights

Files:
  dy.npy  [num_experts, expert_capacity, hidden_size] f32, f64, bf16 or f16
  w.npy   [tokens, top_k] or flat; f32, bf16, f16, and f64 with f64 rows
  x.npy   [tokens, hidden_size] as dy
  dx.npy  [tokens, hidden_size] as dy;  dw.npy  [tokens, top_k] f32; f64 with f64 rows

Example:
  binmoe gather-backward --plan plan --grad dy.npy --weights w.npy --x x.npy --out-weights dw.npy --out dx.npy)"};

void run_wgrad(const MoverOptions& options, Common& common) {
  Mover mover(options, common);
  Array& y_array = mover.read_expert_rows(options.y);
  Array& grad_array = mover.read_tokens(options.grad, y_array.extent(2));
  const ConstRows y = rows_of(y_array, mover.uint16_is_bf16());
  const ConstRows grad = rows_of(grad_array, mover.uint16_is_bf16());
  require_same_type(grad_array, grad, y_array, y);
  const WeightGradients dw = mover.make_weight_gradients(options.out, y.type);
  mover.begin_work();
  wgrad(mover.plan(), y, grad, dw, mover.context());
  mover.finish();
}

void run_scatter_backward(const MoverOptions& options, Common& common) {
  Mover mover(options, common);
  Array& y_array = mover.read_expert_rows(options.y);
  Array& grad_array = mover.read_tokens(options.grad, y_array.extent(2));
  const ConstRows y = rows_of(y_array, mover.uint16_is_bf16());
  const ConstRows grad = rows_of(grad_array, mover.uint16_is_bf16());
  require_same_type(grad_array, grad, y_array, y);
  const Weights weights = mover.read_weights(grad_array);
  Array& dy = mover.make_expert_rows(grad.type, grad.cols);
  const WeightGradients dw = mover.make_weight_gradients(options.out_weights, y.type);
  mover.begin_work();
  scatter_backward(mover.plan(), y, grad, weights, output_rows_of(dy, grad), dw, mover.context());
  mover.finish();
}

void run_gather_backward(const MoverOptions& options, Common& common) {
  Mover mover(options, common);
  Array& dy_array = mover.read_expert_rows(options.grad);
  const ConstRows dy = rows_of(dy_array, mover.uint16_is_bf16());
  const Weights weights = mover.read_weights(dy_array);
  ConstRows x;
  if (!options.x.empty()) {
    Array& x_array = mover.read_tokens(options.x, dy.cols);
    x = rows_of(x_array, mover.uint16_is_bf16());
    require_same_type(x_array, x, dy_array, dy);
  }
  Array& dx = mover.make_tokens(dy.type, dy.cols);
  const WeightGradients dw = mover.make_weight_gradients(options.out_weights, dy.type);
  mover.begin_work();
  gather_backward(mover.plan(), dy, weights, x, output_rows_of(dx, dy), dw, mover.context());
  mover.finish();
}

}  // namespace

void add_wgrad(CLI::App& app, Common& common) {
  const auto options = std::make_shared<MoverOptions>();
  CLI::App& command = add_command(app, common, kWgradText);
  add_mover_options(command, *options);
  add_file(command, "--y", options->y, "Expert rows")->required();
  add_file(command, "--grad", options->grad, "Gradient of scatter's output")->required();
  add_file(command, "--out", options->out, "Weight gradients dw")->required();
  command.callback([options, &common] { run_wgrad(*options, common); });
}

void add_scatter_backward(CLI::App& app, Common& common) {
  const auto options = std::make_shared<MoverOptions>();
  CLI::App& command = add_command(app, common, kScatterBackwardText);
  add_mover_options(command, *options);
  add_file(command, "--y", options->y, "Expert rows that scatter combined")->required();
  add_file(command, "--grad", options->grad, "Gradient of scatter's output")->required();
  add_file(command, "--weights", options->weights, "Router weights that scatter used");
  add_file(command, "--out-y", options->out, "Gradient dy of the expert rows")->required();
  add_file(command, "--out-weights", options->out_weights, "Gradient dw of the weights");
  command.callback([options, &common] { run_scatter_backward(*options, common); });
}

void add_gather_backward(CLI::App& app, Common& common) {
  const auto options = std::make_shared<MoverOptions>();
  CLI::App& command = add_command(app, common, kGatherBackwardText);
  add_mover_options(command, *options);
  add_file(command, "--grad", options->grad, "Gradient dy of gather's output")->required();
  add_file(command, "--weights", options->weights, "Router weights that gather used");
  CLI::Option* x = add_file(command, "--x", options->x, "Token rows that gather read");
  CLI::Option* dw = add_file(command, "--out-weights", options->out_weights, "Gradient dw of the weights");
  x->needs(dw);
  dw->needs(x);
  add_file(command, "--out", options->out, "Gradient dx of the token rows")->required();
  command.callback([options, &common] { run_gather_backward(*options, common); });
}

}  // namespace binmoe::cli
