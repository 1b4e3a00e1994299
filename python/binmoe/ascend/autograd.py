"""gather and scatter with gradients, as torch operators: registered for tensors of any device, so for an NPU's.

The backward of scatter is one pass (both gradients), that of gather a scatter and a wgrad. Tested on CPU tensors
through Triton's interpreter; never run on a device.
"""

import torch

from binmoe.ascend import launch
from binmoe.ascend.plan_check import check_plan
from binmoe.ascend.routing import Plan

MAPS = ("indices", "bin_ids", "bins", "tokens_per_expert", "kept_per_expert", "row_of_assignment")

# An operator takes tensors and numbers: a plan goes as its maps, in the order of MAPS, and its sizes.
_PLAN = "Tensor[] maps, int tokens, int top_k, int num_experts, int expert_capacity"
_OPTIONS = "str? order, str? row_copy, str? soc, int? num_programs"
_NUM_SIZES = 4

_library = torch.library.Library("binmoe_ascend", "DEF")
_ops = torch.ops.binmoe_ascend


def _read(rest):
    """(Plan, Options) of an operator's last arguments."""
    maps, sizes, (order, row_copy, soc, num_programs) = rest[0], rest[1 : 1 + _NUM_SIZES], rest[1 + _NUM_SIZES :]
    options = launch.Options(check=False, order=order, row_copy=row_copy, soc=soc, num_programs=num_programs)
    return Plan(*sizes, **dict(zip(MAPS, maps, strict=True))), options


def _write(plan, options):
    """What _read reads."""
    sizes = (plan.tokens, plan.top_k, plan.num_experts, plan.expert_capacity)
    settings = (options.order, options.row_copy, options.soc, options.num_programs)
    return [getattr(plan, name) for name in MAPS], *sizes, *settings


def _gather(x, weights, *rest):
    plan, options = _read(rest)
    return launch.gather(plan, x, weights, options=options)


def _scatter(y, weights, *rest):
    plan, options = _read(rest)
    return launch.scatter(plan, y, weights, options=options)


def _wgrad(y, grad, dtype, *rest):
    plan, options = _read(rest)
    return launch.wgrad(plan, y, grad, dtype=dtype, options=options)


def _scatter_backward(y, grad, weights, dtype, *rest):
    plan, options = _read(rest)
    return launch.scatter_backward(plan, y, grad, weights, dw_dtype=dtype, options=options)


def _new_expert_rows(like, rest):
    return like.new_empty((rest[3], rest[4], like.shape[-1]))


def _new_dw(like, dtype, rest):
    return like.new_empty((rest[1], rest[2]), dtype=dtype)


_OPERATORS = {  # name: (first arguments and result, function, shapes of the result)
    "gather": (
        ("Tensor x, Tensor? weights", "Tensor"),
        _gather,
        lambda x, weights, *rest: _new_expert_rows(x, rest),
    ),
    "scatter": (
        ("Tensor y, Tensor? weights", "Tensor"),
        _scatter,
        lambda y, weights, *rest: y.new_empty((rest[1], y.shape[-1])),
    ),
    "wgrad": (
        ("Tensor y, Tensor grad, ScalarType dtype", "Tensor"),
        _wgrad,
        lambda y, grad, dtype, *rest: _new_dw(grad, dtype, rest),
    ),
    "scatter_backward": (
        ("Tensor y, Tensor grad, Tensor? weights, ScalarType dtype", "(Tensor, Tensor)"),
        _scatter_backward,
        lambda y, grad, weights, dtype, *rest: (_new_expert_rows(grad, rest), _new_dw(grad, dtype, rest)),
    ),
}
for _name, ((_arguments, _result), _function, _fake) in _OPERATORS.items():
    _library.define(f"{_name}({_arguments}, {_PLAN}, {_OPTIONS}) -> {_result}")
    _library.impl(_name, _function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"binmoe_ascend::{_name}", _fake, lib=_library)


def _save(ctx, inputs, output):
    rows, weights, maps, *ctx.numbers = inputs
    wants_dw = weights is not None and weights.requires_grad
    ctx.rows_shape, ctx.wants_dw = rows.shape, wants_dw
    ctx.save_for_backward(weights, rows if wants_dw else None, *maps)


def _gradients(ctx, drows, dw, weights):
    """One for each argument; the plan and the options have none."""
    dw = None if dw is None else dw.view(weights.shape)
    return drows.view(ctx.rows_shape), dw, [None] * len(MAPS), *[None] * len(ctx.numbers)


def _backward_of_gather(ctx, dy):
    weights, x, *maps = ctx.saved_tensors
    rest, dy = (maps, *ctx.numbers), dy.contiguous()
    dw = _ops.wgrad(dy, x, weights.dtype, *rest) if ctx.wants_dw else None
    return _gradients(ctx, _ops.scatter(dy, weights, *rest), dw, weights)


def _backward_of_scatter(ctx, grad):
    weights, y, *maps = ctx.saved_tensors
    rest, grad = (maps, *ctx.numbers), grad.contiguous()
    if not ctx.wants_dw:
        return _gradients(ctx, _ops.gather(grad, weights, *rest), None, weights)
    dy, dw = _ops.scatter_backward(y, grad, weights, weights.dtype, *rest)
    return _gradients(ctx, dy, dw, weights)


for _name, _backward in (("gather", _backward_of_gather), ("scatter", _backward_of_scatter)):
    torch.library.register_autograd(f"binmoe_ascend::{_name}", _backward, setup_context=_save, lib=_library)


def _call(operation, plan, rows, weights, options):
    if options.tile is not None:
        raise ValueError(f"[{operation}] a tile of one's own is for launch alone: the backward needs another")
    if options.check:
        check_plan(plan, operation)
    return getattr(_ops, operation)(rows, weights, *_write(plan, options))


def gather(plan, x, weights=None, options=launch.Options()):  # noqa: B008  frozen
    """launch.gather with gradients of x and weights (in their own dtypes). The plan has none."""
    return _call("gather", plan, x, weights, options)


def scatter(plan, y, weights=None, options=launch.Options()):  # noqa: B008
    """launch.scatter with gradients of y and weights (in their own dtypes)."""
    return _call("scatter", plan, y, weights, options)
