"""Tensors to the experts and back: gather, scatter and their gradients.

Words, formulas and rounding: docs/design.md, sections 1 and 2. Rows are float32, float64, bfloat16 or float16, one
dtype in a call; weights have their own, float64 with rows of float64 only. Gradients come in the dtype of their tensor.
Differentiable to any order, except into out=, which takes no gradient.
"""

import torch
from torch import Tensor

from binmoe.torch import fast, ops
from binmoe.torch.plans import Plan, require_all_or_none_on_meta


def gather(x: Tensor, plan: Plan, weights: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """Gather token rows into expert order.

    y[e, c] = w[a] * x[a // K], a = indices[start_e + c]; empty rows are 0; without weights a byte copy of any dtype.
    x        [T, H]; rows at one distance are taken as they are, other strides are copied first
    weights  [T, K] or [T*K]; optional
    out      [E, C, H] as x; must not overlap an input; every element is written
    Gradient: dx = scatter(dy, w), dw = wgrad(dy, x). x is saved only when the weights need a gradient.
    Cost: reads U*H, writes E*C*H elements (U: tokens with a kept row); no wait.
    Order: bit-identical on every backend.
    """
    result = fast.gather(x, plan, weights, out)
    if result is not None:
        return result
    sizes = _sizes("gather", plan)
    _require_tensors("gather", plan, x=x, weights=weights)
    if out is None:
        return ops.gather(x, plan.maps, weights, *sizes)
    _require_out("gather", plan, "out", out, x, x, weights)
    ops.gather_out(x, plan.maps, weights, *sizes, out)
    return out


def scatter(y: Tensor, plan: Plan, weights: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """Combine expert rows per token.

    out[t] = sum over k = 0..K-1, in that order, of w[t, k] * y[row_of_assignment[t, k]] in float32 (float64 rows:
    float64), rounded once; -1 adds nothing.
    y        [E, C, H]
    weights  as in gather
    out      [T, H] as y
    Gradient: dy = gather(grad, w), dw = wgrad(y, grad), in one pass. y is saved only when the weights need a gradient.
    Cost: reads A*H, writes T*H elements (A: kept rows); no wait. Order: bit-identical on every backend.
    """
    result = fast.scatter(y, plan, weights, out)
    if result is not None:
        return result
    sizes = _sizes("scatter", plan)
    _require_tensors("scatter", plan, y=y, weights=weights)
    if out is None:
        return ops.scatter(y, plan.maps, weights, *sizes)
    _require_out("scatter", plan, "out", out, y, y, weights)
    ops.scatter_out(y, plan.maps, weights, *sizes, out)
    return out


def wgrad(
    y: Tensor, grad: Tensor, plan: Plan, dtype: torch.dtype | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Gradient of scatter with respect to the weights: dw[t, k] = dot(y[row_of_assignment[t, k]], grad[t]), 0 where -1.

    y      [E, C, H]
    grad   [T, H] as y
    dtype  of dw; None = that of out, else float32 (float64 rows: float64)
    out    [T, K] or [T*K]
    Order: fixed per backend; |error| <= H * 2^-24 * sum |y*grad|.
    """
    sizes = _sizes("wgrad", plan)
    _require_tensors("wgrad", plan, y=y, grad=grad)
    if out is None:
        return ops.wgrad(y, grad, plan.maps, *sizes, _gradient_dtype(y) if dtype is None else dtype)
    _require_out("wgrad", plan, "out", out, None, y, grad)
    if dtype not in (None, out.dtype):
        raise TypeError(f"[wgrad] out has dtype {out.dtype}, but dtype is {dtype}")
    ops.wgrad_out(y, grad, plan.maps, *sizes, out)
    return out


def scatter_backward(
    y: Tensor | None,
    grad: Tensor,
    plan: Plan,
    weights: Tensor | None = None,
    *,
    need_dw: bool = True,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Backward of scatter in one pass: (dy, dw) = (gather(grad, weights), wgrad(y, grad)).

    need_dw  False: dw is None, and y may be None
    out      (dy, dw); dw in the dtype and shape of the weights (none: as in wgrad)
    """
    if not need_dw:
        return gather(grad, plan, weights, out=None if out is None else out[0]), None
    sizes = _sizes("scatter_backward", plan)
    _require_tensors("scatter_backward", plan, y=y, grad=grad, weights=weights)
    if out is None:
        dtype = _gradient_dtype(y) if weights is None else weights.dtype
        dy, dw = ops.scatter_backward(y, grad, plan.maps, weights, *sizes, dtype)
        return dy, dw if weights is None else dw.view(weights.shape)
    dy, dw = out
    _require_out("scatter_backward", plan, "dy", dy, grad, y, grad, weights)
    _require_out("scatter_backward", plan, "dw", dw, weights, y, grad, weights)
    ops.scatter_backward_out(y, grad, plan.maps, weights, *sizes, dy, dw)
    return dy, dw


def gather_backward(
    dy: Tensor,
    x: Tensor | None,
    plan: Plan,
    weights: Tensor | None = None,
    *,
    need_dw: bool = True,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Backward of gather: (dx, dw) = (scatter(dy, weights), wgrad(dy, x)). Empty rows of dy are not read.

    need_dw  False: dw is None, and x may be None
    out      (dx, dw); dw in the dtype and shape of the weights (none: as in wgrad)
    """
    if not need_dw:
        return scatter(dy, plan, weights, out=None if out is None else out[0]), None
    if out is None:
        dw = wgrad(dy, x, plan, None if weights is None else weights.dtype)
        return scatter(dy, plan, weights), dw if weights is None else dw.view(weights.shape)
    sizes, (dx, dw) = _sizes("gather_backward", plan), out
    _require_tensors("gather_backward", plan, dy=dy, x=x, weights=weights)
    _require_out("gather_backward", plan, "dx", dx, dy, dy, x, weights)
    _require_out("gather_backward", plan, "dw", dw, weights, dy, x, weights)
    ops.gather_backward_out(dy, x, plan.maps, weights, *sizes, dx, dw)
    return dx, dw


def _sizes(operation, plan):
    if not isinstance(plan, Plan):
        raise TypeError(f"[{operation}] plan is {type(plan).__name__}, but must be a binmoe.torch.Plan")
    return plan.sizes


def _require_tensors(operation, plan, **arguments):
    for name, value in arguments.items():
        if not isinstance(value, torch.Tensor) and not (name == "weights" and value is None):
            raise TypeError(f"[{operation}] {name} is {type(value).__name__}, but must be a torch.Tensor")
        # torch would drop the tangent without a word.
        if value is not None and not torch.compiler.is_compiling() and fast.has_tangent(value):
            raise NotImplementedError(f"[{operation}] {name} has a tangent, but there is no forward-mode gradient")
    require_all_or_none_on_meta(operation, plan.maps, **arguments)


def _gradient_dtype(rows):
    return torch.float64 if rows.dtype == torch.float64 else torch.float32


def _require_out(operation, plan, name, out, like, *inputs):
    """What out= asks for: the dtype of `like`, and no gradient through the call. The shape is checked with the rows."""
    _require_tensors(operation, plan, **{name: out})
    if like is not None and out.dtype != like.dtype:
        raise TypeError(f"[{operation}] {name} has dtype {out.dtype}, but must have {like.dtype}")
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in (out, *inputs)):
        raise ValueError(f"[{operation}] {name} was given, but an argument needs a gradient; out= records none")
