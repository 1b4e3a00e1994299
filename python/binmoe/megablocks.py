"""MegaBlocks' operations by their own names, on CPU and CUDA: `from binmoe import megablocks as ops`.

Names, argument order, shapes, dtypes and autograd are MegaBlocks'; docs/megablocks.md lists what differs on purpose.
binned_gather and binned_scatter run on binmoe's kernels: each call builds a plan from indices and bins (O(T*K + E));
binmoe.torch makes it once and uses it for both. The other operations are plain torch.

T, H, E, K, C: tokens, hidden_size, num_experts, top_k, bin_size. Row dtypes: float32, float64, bfloat16, float16.
Arguments on the CPU are checked (ValueError, TypeError); on CUDA shapes are, and what the arrays hold is not looked at.
"""

from collections.abc import Sequence
from typing import NoReturn

import torch
from torch import Tensor

import binmoe.torch as _binmoe

__all__ = [
    "binned_gather",
    "binned_scatter",
    "exclusive_cumsum",
    "gather",
    "histogram",
    "inclusive_cumsum",
    "padded_gather",
    "padded_scatter",
    "repeat",
    "replicate",
    "round_up",
    "scatter",
    "sort",
    "sum",
    "topology",
]

_SORTABLE = (torch.int16, torch.int32, torch.int64)


def _require(condition, operation, message):
    if not condition:
        raise ValueError(f"[{operation}] {message}")


def _require_vector(operation, **tensors):
    for name, tensor in tensors.items():
        _require(tensor.ndim == 1, operation, f"{name} has {tensor.ndim} dimensions, but 1 is wanted")


def _integers(operation, **tensors):
    for name, tensor in tensors.items():
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype == torch.bool:
            raise TypeError(f"[{operation}] {name} is {tensor.dtype}, but an integer dtype is wanted")


def _num_tokens(operation, indices, top_k):
    _require(top_k >= 1, operation, f"top_k is {top_k}, but at least 1 is wanted")
    count = indices.shape[0]
    _require(count % top_k == 0, operation, f"indices has {count} entries, not a multiple of top_k = {top_k}")
    return count // top_k


def _require_all_assignments(operation, x, indices, top_k):
    _require(top_k >= 1, operation, f"top_k is {top_k}, but at least 1 is wanted")
    count = indices.shape[0]
    wanted = x.shape[0] * top_k
    _require(count == wanted, operation, f"indices has {count} entries, but x has {x.shape[0]} rows: {wanted} wanted")


# The binned operations.


def binned_gather(x: Tensor, indices: Tensor, bins: Tensor, bin_size: int | Tensor, top_k: int) -> Tensor:
    """Gather token rows into expert order.

      y[e, c] = x[indices[start_e + c] // top_k] for c < min(count_e, bin_size); the other rows are 0.
    x         [T, H]
    indices   [T*K] any integer dtype: assignments by expert
    bins      [E] any integer dtype: inclusive cumulative counts
    bin_size  C, an int or a tensor of one element (a CUDA tensor makes the call wait)
    Returns   [E, C, H] as x; differentiable in x.
    Errors: ValueError, TypeError; on the CPU also for bins or indices that are no plan.
    """
    operation = "binned_gather"
    _require(x.ndim == 2, operation, f"x has {x.ndim} dimensions, but 2 are wanted")
    _require_vector(operation, indices=indices, bins=bins)
    _require_all_assignments(operation, x, indices, top_k)
    if isinstance(bin_size, torch.Tensor):
        bin_size = int(bin_size)
    plan = _binmoe.Plan.from_bins(indices, bins, top_k, x.shape[0], bin_size)
    return _binmoe.gather(x, plan)


def binned_scatter(x: Tensor, indices: Tensor, weights: Tensor | None, bins: Tensor, top_k: int) -> Tensor:
    """Combine expert rows per token.

      out[t] = sum over k of weights[t*K + k] * x[e, c], in f32, in order of k, rounded once; dropped ones add nothing.
    x        [E, C, H]
    weights  [T*K] a float dtype, by assignment; or None
    Returns  [T, H] as x, T = len(indices) // top_k; differentiable in x and weights.
    """
    operation = "binned_scatter"
    _require(x.ndim == 3, operation, f"x has {x.ndim} dimensions, but 3 are wanted")
    _require_vector(operation, indices=indices, bins=bins)
    num_experts, bin_size, _ = x.shape
    _require(bins.shape[0] == num_experts, operation, f"bins has {bins.shape[0]} entries, but x has {num_experts} bins")
    tokens = _num_tokens(operation, indices, top_k)
    plan = _binmoe.Plan.from_bins(indices, bins, top_k, tokens, bin_size)
    return _binmoe.scatter(x, plan, weights)


# Sorting and counting.


def sort(x: Tensor, end_bit: int | None = None) -> tuple[Tensor, Tensor]:
    """Sort ascending and stably.

    x        [N] int16, int32 or int64
    end_bit  compare bits [0, end_bit) only, unsigned; None = all bits, signed
    Returns  (values, indices), both in x's dtype.
    Errors: N positions that x's dtype cannot hold.
    """
    _require_vector("sort", x=x)
    if x.dtype not in _SORTABLE:
        raise TypeError(f"[sort] x is {x.dtype}, but int16, int32 or int64 is wanted")
    limits = torch.iinfo(x.dtype)
    count = x.shape[0]
    _require(count <= limits.max + 1, "sort", f"x has {count} entries, whose positions {x.dtype} cannot hold")
    if end_bit is None:
        end_bit = limits.bits
    _require(0 <= end_bit <= limits.bits, "sort", f"end_bit is {end_bit}, but {x.dtype} has {limits.bits} bits")
    if end_bit == limits.bits:
        values, order = torch.sort(x, stable=True)
        return values, order.to(x.dtype)
    order = torch.sort(x & ((1 << end_bit) - 1), stable=True).indices
    return x[order], order.to(x.dtype)


def histogram(x: Tensor, max_val: int) -> Tensor:
    """Count the values 0 .. max_val - 1; others are not counted.

    x        [N] or [M, N] an integer dtype
    Returns  [max_val] or [M, max_val] int32
    """
    _require(x.ndim in (1, 2), "histogram", f"x has {x.ndim} dimensions, but 1 or 2 are wanted")
    _require(max_val >= 0, "histogram", f"max_val is {max_val}, but at least 0 is wanted")
    _integers("histogram", x=x)
    rows = (x if x.ndim == 2 else x.unsqueeze(0)).to(torch.int64)
    # One counter a row for what is not counted, so that no index depends on the data being in range.
    counter = torch.where((rows >= 0) & (rows < max_val), rows, max_val)
    counts = torch.zeros(rows.shape[0], max_val + 1, dtype=torch.int32, device=x.device)
    counts.scatter_add_(1, counter, torch.ones_like(counter, dtype=torch.int32))
    counts = counts[:, :max_val]
    return counts.contiguous() if x.ndim == 2 else counts[0]


def _cumsum(operation, x, dim):
    _require(x.ndim in (1, 2), operation, f"x has {x.ndim} dimensions, but 1 or 2 are wanted")
    _integers(operation, x=x)
    return torch.cumsum(x, 0 if x.ndim == 1 else dim, dtype=x.dtype)


def inclusive_cumsum(x: Tensor, dim: int) -> Tensor:
    """Sums up to and with each entry, in x's dtype (which wraps). x [N] (dim is ignored) or [M, N], integers."""
    return _cumsum("inclusive_cumsum", x, dim)


def exclusive_cumsum(x: Tensor, dim: int) -> Tensor:
    """Sums of the entries before each, in x's dtype (which wraps). x [N] (dim is ignored) or [M, N], integers."""
    return _cumsum("exclusive_cumsum", x, dim) - x


# Dropless rows: bin e stands at rows [padded_bins[e-1], padded_bins[e-1] + count_e).


def _starts(bins):
    bins = bins.to(torch.int64)
    return torch.cat((bins.new_zeros(1), bins[:-1]))


def _rows_of_entries(operation, indices, bin_ids, bins, padded_bins, top_k):
    """Row of each sorted entry [T*K] int64; on the CPU every argument is checked."""
    _integers(operation, indices=indices, bin_ids=bin_ids, bins=bins, padded_bins=padded_bins)
    _require_vector(operation, indices=indices, bin_ids=bin_ids, bins=bins, padded_bins=padded_bins)
    count = indices.shape[0]
    _require(bin_ids.shape[0] == count, operation, f"bin_ids has {bin_ids.shape[0]} entries, but indices has {count}")
    _require(
        bins.shape == padded_bins.shape,
        operation,
        f"bins has {bins.shape[0]} entries, but padded_bins has {padded_bins.shape[0]}",
    )
    starts, padded_starts = _starts(bins), _starts(padded_bins)
    experts = bin_ids.to(torch.int64)
    if indices.device.type == "cpu":
        # Refuses what is no plan: indices out of range or repeated, bins that decrease, bin_ids of other bins.
        _binmoe.Plan.from_bins(indices, bins, top_k, _num_tokens(operation, indices, top_k), 0, bin_ids=bin_ids)
        roomy = bool((padded_bins.to(torch.int64) - padded_starts >= bins.to(torch.int64) - starts).all())
        _require(roomy, operation, "padded_bins has less room than bins wants")
    return torch.arange(count, device=indices.device) - starts[experts] + padded_starts[experts]


class _GatherRows(torch.autograd.Function):
    """out[rows[p]] = x[indices[p] // top_k], other rows 0. A Function, so that backward sums the choices in f32."""

    @staticmethod
    def forward(ctx, x, indices, rows, num_rows, top_k):
        ctx.save_for_backward(indices, rows)
        ctx.top_k = top_k
        return x.new_zeros(num_rows, x.shape[1]).index_copy_(0, rows, x.index_select(0, indices // top_k))

    @staticmethod
    def backward(ctx, grad):
        indices, rows = ctx.saved_tensors
        return _scatter_rows(grad, indices, rows, None, ctx.top_k), None, None, None, None


def _scatter_rows(x, indices, rows, weights, top_k):
    """out[t] = sum over k of weights[a] * x[row of a], a = t*K + k; products and sum are each rounded to x's dtype."""
    row_of_assignment = torch.empty_like(rows).index_copy_(0, indices, rows)
    products = x.index_select(0, row_of_assignment)
    if weights is not None:
        step = torch.float64 if x.dtype == torch.float64 else torch.float32
        products = (products.to(step) * weights.reshape(-1, 1).to(step)).to(x.dtype)
    return products.view(len(rows) // top_k, top_k, x.shape[1]).sum(dim=1) if top_k > 1 else products


def _gather(operation, x, indices, bin_ids, bins, padded_bins, top_k, num_rows=None):
    _require(x.ndim == 2, operation, f"x has {x.ndim} dimensions, but 2 are wanted")
    _require_all_assignments(operation, x, indices, top_k)
    rows = _rows_of_entries(operation, indices, bin_ids, bins, padded_bins, top_k)
    if num_rows is None:
        num_rows = int(padded_bins[-1])
    return _GatherRows.apply(x, indices.to(torch.int64), rows, num_rows, top_k)


def _scatter(operation, x, indices, bin_ids, weights, bins, padded_bins, top_k):
    _require(x.ndim == 2, operation, f"x has {x.ndim} dimensions, but 2 are wanted")
    _num_tokens(operation, indices, top_k)
    if weights is not None and weights.numel() != indices.shape[0]:
        raise ValueError(f"[{operation}] weights has {weights.numel()} entries, but indices has {indices.shape[0]}")
    rows = _rows_of_entries(operation, indices, bin_ids, bins, padded_bins, top_k)
    if x.device.type == "cpu":
        wanted = int(padded_bins[-1])
        _require(x.shape[0] >= wanted, operation, f"x has {x.shape[0]} rows, but padded_bins ends at {wanted}")
    return _scatter_rows(x, indices.to(torch.int64), rows, weights, top_k)


def gather(x: Tensor, indices: Tensor, bin_ids: Tensor, bins: Tensor, top_k: int) -> Tensor:
    """y[p] = x[indices[p] // top_k]: every assignment, by expert, none dropped. x [T, H] -> [T*K, H]."""
    return _gather("gather", x, indices, bin_ids, bins, bins, top_k, num_rows=indices.shape[0])


def scatter(x: Tensor, indices: Tensor, bin_ids: Tensor, weights: Tensor | None, bins: Tensor, top_k: int) -> Tensor:
    """Combine what gather laid out: x [T*K, H] -> [T, H]; weights [T*K] or None. Products are rounded to x's dtype."""
    return _scatter("scatter", x, indices, bin_ids, weights, bins, bins, top_k)


def padded_gather(x: Tensor, indices: Tensor, bin_ids: Tensor, bins: Tensor, padded_bins: Tensor, top_k: int) -> Tensor:
    """As gather, but bin e begins at row padded_bins[e-1]; the rows between are 0. Returns [padded_bins[-1], H].

    Cost: on CUDA the call waits for padded_bins[-1], as MegaBlocks' does.
    """
    return _gather("padded_gather", x, indices, bin_ids, bins, padded_bins, top_k)


def padded_scatter(
    x: Tensor,
    indices: Tensor,
    bin_ids: Tensor,
    weights: Tensor | None,
    bins: Tensor,
    padded_bins: Tensor,
    top_k: int,
) -> Tensor:
    """Combine what padded_gather laid out: x [padded_bins[-1], H] -> [T, H]. Products are rounded to x's dtype."""
    return _scatter("padded_scatter", x, indices, bin_ids, weights, bins, padded_bins, top_k)


# Small helpers.


def replicate(x: Tensor, bins: Tensor, num_outputs: int) -> Tensor:
    """out[b, j] = x[b, i] for j in [bins[i-1], bins[i]). x [M, len(bins)] -> [M, num_outputs]; differentiable in x.

    Errors: on the CPU bins that do not end at num_outputs; on CUDA columns past bins[-1] are 0.
    """
    _require(x.ndim == 2, "replicate", f"x has {x.ndim} dimensions, but 2 are wanted")
    _require_vector("replicate", bins=bins)
    _integers("replicate", bins=bins)
    num_bins = bins.shape[0]
    _require(x.shape[1] == num_bins, "replicate", f"x has {x.shape[1]} columns, but bins has {num_bins} entries")
    if bins.device.type == "cpu":
        end = int(bins[-1]) if num_bins else 0
        _require(end == num_outputs, "replicate", f"bins ends at {end}, but num_outputs is {num_outputs}")
        _require(bool((bins.diff() >= 0).all()) and end >= 0, "replicate", "bins decreases")
    columns = torch.arange(num_outputs, device=x.device)
    source = torch.searchsorted(bins.to(torch.int64), columns, right=True)
    # Half rows go through f32, so that backward sums a bin in f32.
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    padded = torch.nn.functional.pad(wide, (0, 1))
    return padded.index_select(1, source).to(x.dtype)


def repeat(x: Tensor, tiling: Sequence[int]) -> Tensor:
    """x.repeat(*tiling); x itself when every factor is 1."""
    return x if all(factor == 1 for factor in tiling) else x.repeat(*tiling)


def round_up(x: Tensor, value: int) -> Tensor:
    """Each entry of x (int32, >= 0) rounded up to a multiple of value."""
    if x.dtype != torch.int32:
        raise TypeError(f"[round_up] x is {x.dtype}, but int32 is wanted")
    if not isinstance(value, int):
        raise TypeError(f"[round_up] value is {type(value).__name__}, but int is wanted")
    _require(value >= 1, "round_up", f"value is {value}, but at least 1 is wanted")
    return -torch.div(-x, value, rounding_mode="floor") * value


def sum(x: Tensor, dim: int = 0) -> Tensor:
    """x.sum(dim), without a copy when that dimension is 1."""
    return x.squeeze(dim) if x.shape[dim] == 1 else x.sum(dim)


def topology(*args: object, **kwargs: object) -> NoReturn:
    """Left out: it describes block-sparse matrices for the package stk, which binmoe neither needs nor replaces."""
    raise NotImplementedError(f"binmoe.megablocks leaves topology out. {topology.__doc__}")
