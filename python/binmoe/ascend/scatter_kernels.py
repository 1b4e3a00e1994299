"""Triton-Ascend kernels of the scatter, its weight gradient, and both gradients in one pass."""

import triton
import triton.language as tl

from binmoe.ascend.rows import (
    extension,
    is_kept,
    kept_tile,
    kernel,
    load_columns,
    num_blocks,
    row_at,
    store_columns,
    store_to_kept_rows,
    zero_empty_rows,
)


@triton.jit
def _scatter_columns(
    y,
    y_stride,
    rows,
    weights,
    i,
    num_expert_rows,
    out_row,
    column,
    num_columns,
    TOP_K: tl.constexpr,
    SUB_BLOCK_SIZE: tl.constexpr,
    BLOCK_X: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    IS_TAIL: tl.constexpr,
):
    """Sum columns of one token's kept rows in f32, k ascending. A row of zeros adds nothing: the sum is never -0."""
    total = tl.zeros((1, BLOCK_X), dtype=tl.float32)
    for k in range(0, TOP_K, SUB_BLOCK_SIZE):
        num_lanes = tl.minimum(SUB_BLOCK_SIZE, TOP_K - k)
        lane = i * TOP_K + k
        tile = kept_tile(
            y, y_stride, rows, lane, num_lanes, num_expert_rows, column, num_columns, SUB_BLOCK_SIZE, BLOCK_X, IS_TAIL
        )
        for j in range(0, num_lanes):
            values = extension.extract_slice(tile, (j, 0), (1, BLOCK_X), (1, 1)).to(tl.float32)
            if HAS_WEIGHTS:
                values = values * extension.get_element(weights, (lane + j,))
            total += values
    store_columns(out_row, column, num_columns, tl.reshape(total, (BLOCK_X,)).to(y.dtype.element_ty), BLOCK_X, IS_TAIL)


@kernel
def binned_scatter_kernel(
    y,
    row_of_assignment,
    weights,
    out,
    num_tokens,
    num_expert_rows,
    hidden_size,
    y_stride,
    out_stride,
    TOP_K: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    SUB_BLOCK_SIZE: tl.constexpr,
    BLOCK_X: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    HAS_TAIL: tl.constexpr,
):
    """out[t] = sum over k ascending of w[t,k] * y[row_of_assignment[t,k]], in f32, rounded once."""
    lanes = tl.arange(0, BLOCK_TOKENS * TOP_K)
    tail = hidden_size % BLOCK_X
    for block in range(tl.program_id(0), num_blocks(num_tokens, BLOCK_TOKENS), tl.num_programs(0)):
        first = block * BLOCK_TOKENS
        block_tokens = tl.minimum(BLOCK_TOKENS, num_tokens - first)
        rows = tl.load(row_of_assignment + first * TOP_K + lanes, mask=lanes < block_tokens * TOP_K, other=-1)
        weight = rows
        if HAS_WEIGHTS:
            weight = tl.load(weights + first * TOP_K + lanes, mask=lanes < block_tokens * TOP_K, other=0.0)
            weight = tl.where(rows >= 0, weight.to(tl.float32), 0.0)  # a dropped choice may weigh NaN
        for i in range(0, block_tokens):
            out_row = row_at(out, first + i, out_stride)
            for column in range(0, hidden_size - tail, BLOCK_X):
                _scatter_columns(
                    y, y_stride, rows, weight, i, num_expert_rows, out_row, column, BLOCK_X,
                    TOP_K, SUB_BLOCK_SIZE, BLOCK_X, HAS_WEIGHTS, False,
                )  # fmt: skip
            if HAS_TAIL:
                _scatter_columns(
                    y, y_stride, rows, weight, i, num_expert_rows, out_row, hidden_size - tail, tail,
                    TOP_K, SUB_BLOCK_SIZE, BLOCK_X, HAS_WEIGHTS, True,
                )  # fmt: skip


@triton.jit
def _dots(
    y,
    y_stride,
    grad_row,
    rows,
    lane,
    num_lanes,
    num_expert_rows,
    column,
    num_columns,
    SUB_BLOCK_SIZE: tl.constexpr,
    BLOCK_X: tl.constexpr,
    IS_TAIL: tl.constexpr,
):
    """Dot products of one token's rows of y with its grad row over some columns: f32[SUB_BLOCK_SIZE]."""
    grad = load_columns(grad_row, column, num_columns, BLOCK_X, IS_TAIL).to(tl.float32)
    tile = kept_tile(
        y, y_stride, rows, lane, num_lanes, num_expert_rows, column, num_columns, SUB_BLOCK_SIZE, BLOCK_X, IS_TAIL
    )
    return tl.sum(tile.to(tl.float32) * grad[None, :], axis=1)


@triton.jit
def _store_dots(dw, row_of_assignment, dots, first, block_tokens, k, TOP_K: tl.constexpr, SUB_BLOCK_SIZE: tl.constexpr):
    """dw of a block's tokens and SUB_BLOCK_SIZE choices by one store; +0 where the choice was not kept."""
    tokens = tl.arange(0, dots.shape[0])
    choices = tl.arange(0, SUB_BLOCK_SIZE)
    offsets = first * TOP_K + k + tokens[:, None] * TOP_K + choices[None, :]
    mask = (tokens < block_tokens)[:, None] & (choices < TOP_K - k)[None, :]
    kept = tl.load(row_of_assignment + offsets, mask=mask, other=-1) >= 0
    tl.store(dw + offsets, tl.where(kept, dots, 0.0).to(dw.dtype.element_ty), mask=mask)


@kernel
def binned_scatter_wgrad_kernel(
    y,
    grad,
    row_of_assignment,
    dw,
    num_tokens,
    num_expert_rows,
    hidden_size,
    y_stride,
    grad_stride,
    TOP_K: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    SUB_BLOCK_SIZE: tl.constexpr,
    BLOCK_X: tl.constexpr,
    HAS_TAIL: tl.constexpr,
):
    """dw[t,k] = dot(y[row_of_assignment[t,k]], grad[t]) in f32; +0 where dropped. Results of a block are one store."""
    lanes = tl.arange(0, BLOCK_TOKENS * TOP_K)
    tail = hidden_size % BLOCK_X
    for block in range(tl.program_id(0), num_blocks(num_tokens, BLOCK_TOKENS), tl.num_programs(0)):
        first = block * BLOCK_TOKENS
        block_tokens = tl.minimum(BLOCK_TOKENS, num_tokens - first)
        rows = tl.load(row_of_assignment + first * TOP_K + lanes, mask=lanes < block_tokens * TOP_K, other=-1)
        for k in range(0, TOP_K, SUB_BLOCK_SIZE):
            num_lanes = tl.minimum(SUB_BLOCK_SIZE, TOP_K - k)
            dots = tl.zeros((BLOCK_TOKENS, SUB_BLOCK_SIZE), dtype=tl.float32)
            for i in range(0, block_tokens):
                grad_row = row_at(grad, first + i, grad_stride)
                lane = i * TOP_K + k
                total = tl.zeros((SUB_BLOCK_SIZE,), dtype=tl.float32)
                has_row = is_kept(rows, lane, num_lanes)
                for column in range(0, tl.where(has_row, hidden_size - tail, 0), BLOCK_X):
                    total += _dots(
                        y, y_stride, grad_row, rows, lane, num_lanes, num_expert_rows, column, BLOCK_X,
                        SUB_BLOCK_SIZE, BLOCK_X, False,
                    )  # fmt: skip
                if HAS_TAIL:  # noqa: SIM102  a constant and a tensor make no `and` here
                    if has_row:
                        total += _dots(
                            y, y_stride, grad_row, rows, lane, num_lanes, num_expert_rows, hidden_size - tail, tail,
                            SUB_BLOCK_SIZE, BLOCK_X, True,
                        )  # fmt: skip
                dots = extension.insert_slice(dots, total[None, :], (i, 0), (1, SUB_BLOCK_SIZE), (1, 1))
            _store_dots(dw, row_of_assignment, dots, first, block_tokens, k, TOP_K, SUB_BLOCK_SIZE)


@triton.jit
def _backward_columns(
    y,
    y_stride,
    grad_row,
    dy,
    dy_stride,
    rows,
    weights,
    lane,
    num_lanes,
    num_expert_rows,
    column,
    num_columns,
    SUB_BLOCK_SIZE: tl.constexpr,
    BLOCK_X: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    IS_TAIL: tl.constexpr,
):
    """Columns of one token's grad row, read once: to its kept rows of dy, and into the dot products it returns."""
    values = load_columns(grad_row, column, num_columns, BLOCK_X, IS_TAIL)
    tile = kept_tile(
        y, y_stride, rows, lane, num_lanes, num_expert_rows, column, num_columns, SUB_BLOCK_SIZE, BLOCK_X, IS_TAIL
    )
    store_to_kept_rows(
        dy, dy_stride, values, rows, weights, lane, num_lanes, num_expert_rows, column, num_columns, BLOCK_X,
        HAS_WEIGHTS, IS_TAIL,
    )  # fmt: skip
    return tl.sum(tile.to(tl.float32) * values.to(tl.float32)[None, :], axis=1)


@kernel
def binned_scatter_backward_kernel(
    y,
    grad,
    row_of_assignment,
    bins,
    weights,
    dy,
    dw,
    num_tokens,
    num_experts,
    expert_capacity,
    hidden_size,
    y_stride,
    grad_stride,
    dy_stride,
    TOP_K: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    SUB_BLOCK_SIZE: tl.constexpr,
    BLOCK_X: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    HAS_TAIL: tl.constexpr,
):
    """dy[row_of_assignment[t,k]] = w[t,k] * grad[t], empty rows +0, and dw as binned_scatter_wgrad_kernel: one pass."""
    lanes = tl.arange(0, BLOCK_TOKENS * TOP_K)
    tail = hidden_size % BLOCK_X
    num_rows = num_experts * expert_capacity
    for block in range(tl.program_id(0), num_blocks(num_tokens, BLOCK_TOKENS), tl.num_programs(0)):
        first = block * BLOCK_TOKENS
        block_tokens = tl.minimum(BLOCK_TOKENS, num_tokens - first)
        rows = tl.load(row_of_assignment + first * TOP_K + lanes, mask=lanes < block_tokens * TOP_K, other=-1)
        weight = rows
        if HAS_WEIGHTS:
            weight = tl.load(weights + first * TOP_K + lanes, mask=lanes < block_tokens * TOP_K, other=0.0)
            weight = weight.to(tl.float32)
        for k in range(0, TOP_K, SUB_BLOCK_SIZE):
            num_lanes = tl.minimum(SUB_BLOCK_SIZE, TOP_K - k)
            dots = tl.zeros((BLOCK_TOKENS, SUB_BLOCK_SIZE), dtype=tl.float32)
            for i in range(0, block_tokens):
                grad_row = row_at(grad, first + i, grad_stride)
                lane = i * TOP_K + k
                total = tl.zeros((SUB_BLOCK_SIZE,), dtype=tl.float32)
                has_row = is_kept(rows, lane, num_lanes)
                for column in range(0, tl.where(has_row, hidden_size - tail, 0), BLOCK_X):
                    total += _backward_columns(
                        y, y_stride, grad_row, dy, dy_stride, rows, weight, lane, num_lanes, num_rows, column, BLOCK_X,
                        SUB_BLOCK_SIZE, BLOCK_X, HAS_WEIGHTS, False,
                    )  # fmt: skip
                if HAS_TAIL:  # noqa: SIM102  a constant and a tensor make no `and` here
                    if has_row:
                        total += _backward_columns(
                            y, y_stride, grad_row, dy, dy_stride, rows, weight, lane, num_lanes, num_rows,
                            hidden_size - tail, tail, SUB_BLOCK_SIZE, BLOCK_X, HAS_WEIGHTS, True,
                        )  # fmt: skip
                dots = extension.insert_slice(dots, total[None, :], (i, 0), (1, SUB_BLOCK_SIZE), (1, 1))
            _store_dots(dw, row_of_assignment, dots, first, block_tokens, k, TOP_K, SUB_BLOCK_SIZE)
    zero_empty_rows(dy, bins, num_experts, expert_capacity, hidden_size, dy_stride, SUB_BLOCK_SIZE, BLOCK_X, HAS_TAIL)
