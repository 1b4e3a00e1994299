"""The movers as torch operators: schema, kernels, fake and gradient of each stand together.

A plan comes as its block of maps and its sizes. Every gradient is an operator again (scatter, gather and wgrad are
linear in each argument), so gradients of any order exist. Saved is what the needed gradients read, nothing else. What
an operator overwrites gets a new version, so that a backward pass that had saved it refuses.
"""

import torch
from torch.autograd.graph import increment_version

from binmoe.torch import native
from binmoe.torch.dispatch import operator

_SIZES = "SymInt tokens, SymInt top_k, SymInt num_experts, SymInt expert_capacity"


def _no_result(*_arguments):
    return None


# gather: y[e, c] = w[a] * x[a // K]


def _gather_kernel(x, maps, weights, *sizes):
    native.require_rank("gather", "x", x, 2)
    y = native.new_rows((sizes[2], sizes[3], x.shape[1]), x)
    native.gather_into(x, maps, weights, sizes, y)
    return y


def _gather_out_kernel(x, maps, weights, tokens, top_k, num_experts, expert_capacity, out):
    native.gather_into(x, maps, weights, (tokens, top_k, num_experts, expert_capacity), out)
    increment_version(out)


def _gather_fake(x, maps, weights, tokens, top_k, num_experts, expert_capacity):
    return x.new_empty((num_experts, expert_capacity, x.shape[1]))


def _gather_setup(ctx, inputs, output):
    x, maps, weights, *ctx.sizes = inputs
    needs_x, _, needs_weights = ctx.needs_input_grad[:3]
    ctx.save_for_backward(maps, x if needs_weights else None, weights if needs_x else None)
    if needs_weights:
        ctx.weights_like = (weights.dtype, weights.shape)


def _gather_gradient(ctx, dy):
    maps, x, weights = ctx.saved_tensors
    dx = dw = None
    if ctx.needs_input_grad[0]:
        dx = scatter(dy, maps, weights, *ctx.sizes)
    if ctx.needs_input_grad[2]:
        dtype, shape = ctx.weights_like
        dw = wgrad(dy, x, maps, *ctx.sizes, dtype).reshape(shape)
    return dx, None, dw, None, None, None, None


gather = operator(
    f"gather(Tensor x, Tensor maps, Tensor? weights, {_SIZES}) -> Tensor",
    _gather_kernel,
    _gather_fake,
    _gather_setup,
    _gather_gradient,
)
gather_out = operator(
    f"gather_out(Tensor x, Tensor maps, Tensor? weights, {_SIZES}, Tensor(a!) out) -> ()",
    _gather_out_kernel,
    _no_result,
)


# scatter: out[t] = sum over k of w[t, k] * y[row_of_assignment[t, k]]


def _scatter_kernel(y, maps, weights, *sizes):
    native.require_experts("scatter", "y", y, sizes)
    out = native.new_rows((sizes[0], y.shape[2]), y)
    native.scatter_into(y, maps, weights, sizes, out)
    return out


def _scatter_out_kernel(y, maps, weights, tokens, top_k, num_experts, expert_capacity, out):
    native.scatter_into(y, maps, weights, (tokens, top_k, num_experts, expert_capacity), out)
    increment_version(out)


def _scatter_fake(y, maps, weights, tokens, top_k, num_experts, expert_capacity):
    return y.new_empty((tokens, y.shape[2]))


def _scatter_setup(ctx, inputs, output):
    y, maps, weights, *ctx.sizes = inputs
    needs_y, _, needs_weights = ctx.needs_input_grad[:3]
    ctx.save_for_backward(maps, y if needs_weights else None, weights if needs_y else None)
    if needs_weights:
        ctx.weights_like = (weights.dtype, weights.shape)


def _scatter_gradient(ctx, grad):
    maps, y, weights = ctx.saved_tensors
    needs_y, _, needs_weights = ctx.needs_input_grad[:3]
    dy = dw = None
    if needs_y and needs_weights:
        dy, dw = scatter_backward(y, grad, maps, weights, *ctx.sizes, ctx.weights_like[0])
    elif needs_y:
        dy = gather(grad, maps, weights, *ctx.sizes)
    elif needs_weights:
        dw = wgrad(y, grad, maps, *ctx.sizes, ctx.weights_like[0])
    if dw is not None:
        dw = dw.reshape(ctx.weights_like[1])
    return dy, None, dw, None, None, None, None


scatter = operator(
    f"scatter(Tensor y, Tensor maps, Tensor? weights, {_SIZES}) -> Tensor",
    _scatter_kernel,
    _scatter_fake,
    _scatter_setup,
    _scatter_gradient,
)
scatter_out = operator(
    f"scatter_out(Tensor y, Tensor maps, Tensor? weights, {_SIZES}, Tensor(a!) out) -> ()",
    _scatter_out_kernel,
    _no_result,
)


# wgrad: dw[t, k] = dot(y[row_of_assignment[t, k]], grad[t])


def _wgrad_kernel(y, grad, maps, tokens, top_k, num_experts, expert_capacity, dtype):
    dw = torch.empty((tokens, top_k), dtype=dtype, device=y.device)
    native.wgrad_into(y, grad, maps, (tokens, top_k, num_experts, expert_capacity), dw)
    return dw


def _wgrad_out_kernel(y, grad, maps, tokens, top_k, num_experts, expert_capacity, out):
    native.wgrad_into(y, grad, maps, (tokens, top_k, num_experts, expert_capacity), out)
    increment_version(out)


def _wgrad_fake(y, grad, maps, tokens, top_k, num_experts, expert_capacity, dtype):
    return y.new_empty((tokens, top_k), dtype=dtype)


def _wgrad_setup(ctx, inputs, output):
    y, grad, maps, *ctx.sizes, _ = inputs
    needs_y, needs_grad = ctx.needs_input_grad[:2]
    ctx.save_for_backward(maps, y if needs_grad else None, grad if needs_y else None)
    ctx.row_dtype = y.dtype


def _as_weights(dw, row_dtype):
    """Gradients of dw weigh rows: float64 ones go with rows of float64 only."""
    return dw.float() if dw.dtype == torch.float64 and row_dtype != torch.float64 else dw


def _wgrad_gradient(ctx, ddw):
    maps, y, grad = ctx.saved_tensors
    ddw = _as_weights(ddw, ctx.row_dtype)
    dy = gather(grad, maps, ddw, *ctx.sizes) if ctx.needs_input_grad[0] else None
    dgrad = scatter(y, maps, ddw, *ctx.sizes) if ctx.needs_input_grad[1] else None
    return dy, dgrad, None, None, None, None, None, None


wgrad = operator(
    f"wgrad(Tensor y, Tensor grad, Tensor maps, {_SIZES}, ScalarType dtype) -> Tensor",
    _wgrad_kernel,
    _wgrad_fake,
    _wgrad_setup,
    _wgrad_gradient,
)
wgrad_out = operator(
    f"wgrad_out(Tensor y, Tensor grad, Tensor maps, {_SIZES}, Tensor(a!) out) -> ()", _wgrad_out_kernel, _no_result
)


# scatter_backward: dy = gather(grad, w) and dw = wgrad(y, grad) in one pass


def _scatter_backward_kernel(y, grad, maps, weights, tokens, top_k, num_experts, expert_capacity, dtype):
    native.require_rank("scatter_backward", "grad", grad, 2)
    dy = native.new_rows((num_experts, expert_capacity, grad.shape[1]), grad)
    dw = torch.empty((tokens, top_k), dtype=dtype, device=grad.device)
    sizes = (tokens, top_k, num_experts, expert_capacity)
    native.scatter_backward_into(y, grad, maps, weights, sizes, dy, dw)
    return dy, dw


def _scatter_backward_out_kernel(y, grad, maps, weights, tokens, top_k, num_experts, expert_capacity, dy, dw):
    sizes = (tokens, top_k, num_experts, expert_capacity)
    native.scatter_backward_into(y, grad, maps, weights, sizes, dy, dw)
    increment_version((dy, dw))


def _scatter_backward_fake(y, grad, maps, weights, tokens, top_k, num_experts, expert_capacity, dtype):
    dy = grad.new_empty((num_experts, expert_capacity, grad.shape[1]))
    return dy, grad.new_empty((tokens, top_k), dtype=dtype)


def _scatter_backward_setup(ctx, inputs, output):
    y, grad, maps, weights, *ctx.sizes, _ = inputs
    needs_y, needs_grad, _, needs_weights = ctx.needs_input_grad[:4]
    ctx.save_for_backward(
        maps, y if needs_grad else None, grad if needs_y or needs_weights else None, weights if needs_grad else None
    )
    if needs_weights:
        ctx.weights_like = (weights.dtype, weights.shape)


def _scatter_backward_gradient(ctx, ddy, ddw):
    maps, y, grad, weights = ctx.saved_tensors
    needs_y, needs_grad, _, needs_weights = ctx.needs_input_grad[:4]
    ddw = _as_weights(ddw, ddy.dtype)
    dy = dgrad = dw = None
    if needs_y:
        dy = gather(grad, maps, ddw, *ctx.sizes)
    if needs_grad:
        dgrad = scatter(ddy, maps, weights, *ctx.sizes) + scatter(y, maps, ddw, *ctx.sizes)
    if needs_weights:
        dtype, shape = ctx.weights_like
        dw = wgrad(ddy, grad, maps, *ctx.sizes, dtype).reshape(shape)
    return dy, dgrad, None, dw, None, None, None, None, None


scatter_backward = operator(
    f"scatter_backward(Tensor y, Tensor grad, Tensor maps, Tensor? weights, {_SIZES}, ScalarType dtype)"
    " -> (Tensor, Tensor)",
    _scatter_backward_kernel,
    _scatter_backward_fake,
    _scatter_backward_setup,
    _scatter_backward_gradient,
)
scatter_backward_out = operator(
    f"scatter_backward_out(Tensor y, Tensor grad, Tensor maps, Tensor? weights, {_SIZES}, Tensor(a!) dy, Tensor(b!) dw)"
    " -> ()",
    _scatter_backward_out_kernel,
    _no_result,
)


# gather_backward exists for out= alone: without it, it is scatter and wgrad.


def _gather_backward_out_kernel(dy, x, maps, weights, tokens, top_k, num_experts, expert_capacity, dx, dw):
    sizes = (tokens, top_k, num_experts, expert_capacity)
    native.gather_backward_into(dy, x, maps, weights, sizes, dx, dw)
    increment_version((dx, dw))


gather_backward_out = operator(
    f"gather_backward_out(Tensor dy, Tensor x, Tensor maps, Tensor? weights, {_SIZES}, Tensor(a!) dx, Tensor(b!) dw)"
    " -> ()",
    _gather_backward_out_kernel,
    _no_result,
)
