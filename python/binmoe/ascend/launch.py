"""Run the Triton-Ascend kernels on tensors: checks, tile plan, grid, launch.

The tensors are on an NPU (torch_npu). That path is wired and was never run: no device was at hand. With
TRITON_INTERPRET=1 set before the first import, CPU tensors run through Triton's interpreter, slowly: for tests.
"""

from contextlib import nullcontext
from dataclasses import dataclass

import torch

from binmoe.ascend import library, tiles
from binmoe.ascend.arguments import check_out, map_of, matrix, weights_vector
from binmoe.ascend.plan_check import check_plan

__all__ = ["NoDeviceError", "Options", "gather", "gather_backward", "scatter", "scatter_backward", "wgrad"]

INTERPRETED_SOC = "910B3"  # whose tile plans the interpreter runs when no SoC is named


class NoDeviceError(RuntimeError):
    """The tensors are not where a kernel can run; the text says why."""


@dataclass(frozen=True)
class Options:
    """How a call runs.

    check         look at the plan's maps before the launch and wait for the answer; False: the caller vouches for them
                  (an address stays inside its tensor either way)
    order         of a gather: "token", "expert", or None: expert order when a row copy is named, else token order
    row_copy      of a gather in expert order: "element_insert", "indexed_load", "index_select", or None for the cheaper
                  by the planner's estimate; not used in token order
    soc           name of the chip; None: the device's own
    num_programs  None: one a vector core
    tile          a library.TilePlan in place of the planner's
    """

    check: bool = True
    order: str | None = None
    row_copy: str | None = None
    soc: str | None = None
    num_programs: int | None = None
    tile: library.TilePlan | None = None


def _kernels():
    try:
        from binmoe.ascend import kernels
    except ImportError as error:
        raise NoDeviceError(f"Triton-Ascend is not here ({error}): pip install triton-ascend==3.2.0") from error
    return kernels


def _is_interpreted(kernels):
    return type(kernels.binned_scatter_kernel).__name__ == "InterpretedFunction"


def _soc_of(operation, device, options):
    """The SoC whose tile plan is asked for. Errors: NoDeviceError."""
    if device.type == "npu":
        try:
            import torch_npu  # noqa: F401  gives torch.npu
        except ImportError as error:
            raise NoDeviceError(f"[{operation}] tensors are on an NPU, but torch_npu is not here: {error}") from error
        return options.soc or torch.npu.get_device_name(device)
    if device.type != "cpu":
        raise NoDeviceError(f"[{operation}] tensors are on {device}, but the Triton-Ascend kernels run on an NPU alone")
    if not _is_interpreted(_kernels()):
        raise NoDeviceError(
            f"[{operation}] tensors are on the CPU, but the Triton-Ascend kernels run on an NPU: move them to one "
            "(torch_npu), or set TRITON_INTERPRET=1 before the first import to have them interpreted, slowly"
        )
    return options.soc or INTERPRETED_SOC


def _tile(op, plan, rows, hidden_size, soc, options, weights=None, dw=torch.float32):
    if options.tile is not None:
        return options.tile
    return library.tile_plan(
        soc,
        op=op,
        order=(options.order or (options.row_copy and "expert")) if op == "gather" else None,
        row_copy=options.row_copy,
        rows=rows,
        weights=None if weights is None else weights.dtype,
        dw=dw,
        tokens=plan.tokens,
        hidden_size=hidden_size,
        num_experts=plan.num_experts,
        top_k=plan.top_k,
        expert_capacity=plan.expert_capacity,
    )


def _launch(tile, plan, rows, has_weights, options, *arguments):
    kernels = _kernels()
    kernel = getattr(kernels, tiles.kernel_name(tile))
    values = tiles.constexprs(
        tile,
        top_k=plan.top_k,
        hidden_size=rows.shape[1],
        element_bytes=rows.element_size(),
        has_weights=has_weights,
    )
    if _is_interpreted(kernels):
        from binmoe.ascend import interpreter

        interpreter.install()
    with torch.npu.device(rows.device) if rows.device.type == "npu" else nullcontext():
        kernel[(options.num_programs or tile.num_programs,)](*arguments, **values)


def _prepare(operation, plan, device, options):
    soc = _soc_of(operation, device, options)
    if options.check:
        check_plan(plan, operation)
    return soc


def _new(out, shape, like, operation, name, inputs):
    if out is None:
        return like.new_empty(shape)
    check_out(operation, name, out, shape, like, inputs)
    return out


def gather(plan, x, weights=None, *, out=None, options=Options()):
    """Gather token rows into expert order: y[e,c] = w[a] * x[a / top_k], a = indices[start_e + c]; empty rows are +0.

      x        [tokens, hidden_size] f32, bf16, f16; rows contiguous, any row stride
      weights  [tokens, top_k] f32, bf16, f16; optional
    Returns y [num_experts, expert_capacity, hidden_size] as x, in `out` if given.
    Errors: ValueError: shapes, dtypes, devices, overlap; library.LibraryError: a plan that is not sound, a tile that
    does not fit; NoDeviceError.
    Order: the bits of every backend of the library.
    """
    x = matrix("gather", "x", x, plan.tokens)
    weights = weights_vector("gather", weights, plan, x)
    shape = (plan.num_experts, plan.expert_capacity, x.shape[1])
    result = _new(out, shape, x, "gather", "out", (x, weights))
    y = matrix("gather", "out", result, plan.expert_rows)
    soc = _prepare("gather", plan, x.device, options)
    if y.numel() == 0:
        return result
    if plan.tokens == 0:
        return result.zero_()
    tile = _tile("gather", plan, x.dtype, x.shape[1], soc, options, weights)
    names = ("indices", "bin_ids", "bins") if tile.order == "expert" else ("row_of_assignment", "bins")
    maps = [map_of(plan, name, x.device) for name in names]
    sizes = (plan.tokens, plan.num_experts, plan.expert_capacity, x.shape[1], x.stride(0), y.stride(0))
    w = x if weights is None else weights
    _launch(tile, plan, x, weights is not None, options, x, *maps, w, y, *sizes)
    return result


def scatter(plan, y, weights=None, *, out=None, options=Options()):
    """Sum expert rows back to tokens: out[t] = sum over k ascending of w[t,k] * y[row_of_assignment[t,k]].

      y        [num_experts, expert_capacity, hidden_size], or as a matrix of rows; f32, bf16, f16
      weights  [tokens, top_k] f32, bf16, f16; optional
    Returns out [tokens, hidden_size] as y. f32 sum, one rounding; no atomics.
    Errors, order: as gather.
    """
    y = matrix("scatter", "y", y, plan.expert_rows)
    weights = weights_vector("scatter", weights, plan, y)
    result = _new(out, (plan.tokens, y.shape[1]), y, "scatter", "out", (y, weights))
    soc = _prepare("scatter", plan, y.device, options)
    if result.numel() == 0 or plan.expert_rows == 0:
        return result.zero_()
    tile = _tile("scatter", plan, y.dtype, y.shape[1], soc, options, weights)
    out_matrix = matrix("scatter", "out", result, plan.tokens)
    sizes = (plan.tokens, plan.expert_rows, y.shape[1], y.stride(0), out_matrix.stride(0))
    rows, w = map_of(plan, "row_of_assignment", y.device), y if weights is None else weights
    _launch(tile, plan, y, weights is not None, options, y, rows, w, out_matrix, *sizes)
    return result


def wgrad(plan, y, grad, *, dtype=torch.float32, options=Options()):
    """Gradient of the router weights: dw[t,k] = dot(y[row_of_assignment[t,k]], grad[t]); +0 where dropped or masked.

      y      as in scatter; grad [tokens, hidden_size] as y
      dtype  of dw: f32, bf16, f16
    Returns dw [tokens, top_k]. Products and sum in f32: |error| <= hidden_size * 2^-24 * sum |y * grad|.
    Errors: as gather.
    """
    y, grad = matrix("wgrad", "y", y, plan.expert_rows), matrix("wgrad", "grad", grad, plan.tokens)
    _same("wgrad", y, grad)
    soc = _prepare("wgrad", plan, y.device, options)
    dw = grad.new_empty((plan.tokens, plan.top_k), dtype=dtype)
    if y.numel() == 0 or grad.numel() == 0:
        return dw.zero_()
    tile = _tile("wgrad", plan, y.dtype, y.shape[1], soc, options, dw=dtype)
    sizes = (plan.tokens, plan.expert_rows, y.shape[1], y.stride(0), grad.stride(0))
    rows = map_of(plan, "row_of_assignment", y.device)
    _launch(tile, plan, y, False, options, y, grad, rows, dw, *sizes)
    return dw


def scatter_backward(plan, y, grad, weights=None, *, dw_dtype=None, options=Options()):
    """Both gradients of scatter in one pass: dy = gather(grad, weights), dw = wgrad(y, grad).

      dw_dtype  of dw; None: no dw is wanted, y is not read and may be None
    Returns (dy [num_experts, expert_capacity, hidden_size], dw [tokens, top_k] or None).
    Errors, order: as gather and wgrad.
    """
    if dw_dtype is None:
        return gather(plan, grad, weights, options=options), None
    name = "scatter_backward"
    if y is None:
        raise ValueError(f"[{name}] dw_dtype is given, but y is None: dw needs the rows that were scattered")
    y, grad = matrix(name, "y", y, plan.expert_rows), matrix(name, "grad", grad, plan.tokens)
    _same(name, y, grad)
    weights = weights_vector(name, weights, plan, y)
    soc = _prepare(name, plan, y.device, options)
    dy = grad.new_empty((plan.num_experts, plan.expert_capacity, grad.shape[1]))
    dw = grad.new_empty((plan.tokens, plan.top_k), dtype=dw_dtype)
    if y.numel() == 0 or grad.numel() == 0:
        return dy.zero_(), dw.zero_()
    tile = _tile(name, plan, y.dtype, y.shape[1], soc, options, weights, dw_dtype)
    sizes = (plan.tokens, plan.num_experts, plan.expert_capacity, y.shape[1])
    strides = (y.stride(0), grad.stride(0), dy.stride(1))
    maps = (map_of(plan, "row_of_assignment", y.device), map_of(plan, "bins", y.device))
    w = y if weights is None else weights
    _launch(tile, plan, y, weights is not None, options, y, grad, *maps, w, dy, dw, *sizes, *strides)
    return dy, dw


def gather_backward(plan, dy, weights=None, x=None, *, dw_dtype=None, options=Options()):
    """Gradients of gather: dx = scatter(dy, weights), dw = wgrad(dy, x) when dw_dtype is given. Returns (dx, dw)."""
    if dw_dtype is not None and x is None:
        raise ValueError("[gather_backward] dw_dtype is given, but x is None: dw needs the rows that were gathered")
    dx = scatter(plan, dy, weights, options=options)
    return dx, None if dw_dtype is None else wgrad(plan, dy, x, dtype=dw_dtype, options=options)


def _same(operation, y, grad):
    for what in ("dtype", "device"):
        if getattr(y, what) != getattr(grad, what):
            raise ValueError(f"[{operation}] grad has {what} {getattr(grad, what)}, but y has {getattr(y, what)}")
    if y.shape[1] != grad.shape[1]:
        raise ValueError(f"[{operation}] grad has {grad.shape[1]} columns, but y has {y.shape[1]}")
