"""Triton-Ascend kernels of the gather: in expert order and in token order."""

import triton
import triton.language as tl

from binmoe.ascend.rows import (
    ELEMENT_INSERT,
    INDEX_SELECT,
    extension,
    index_library,
    is_kept,
    kernel,
    load_columns,
    num_blocks,
    row_at,
    start_of,
    store_rows,
    store_to_kept_rows,
    zero_empty_rows,
)


@triton.jit
def _tokens_of(indices, num_rows, TOP_K: tl.constexpr, SUB_BLOCK_SIZE: tl.constexpr):
    """Tokens of assignments, divided one by one: a vector of int32 is divided in f32, wrong from 2^24 on."""
    lanes = tl.arange(0, SUB_BLOCK_SIZE)
    tokens = tl.zeros((SUB_BLOCK_SIZE,), dtype=tl.int32)
    for r in range(0, num_rows):
        tokens = tl.where(lanes == r, extension.get_element(indices, (r,)) // TOP_K, tokens)
    return tokens


@triton.jit
def _gather_tile(
    x,
    x_stride,
    num_tokens,
    indices,
    tokens,
    weights,
    y_rows,
    y_stride,
    num_rows,
    column,
    num_columns,
    TOP_K: tl.constexpr,
    SUB_BLOCK_SIZE: tl.constexpr,
    BLOCK_X: tl.constexpr,
    ROW_COPY: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    IS_TAIL: tl.constexpr,
):
    """Collect num_rows rows of one expert in UB, and flush them by one store."""
    if ROW_COPY == ELEMENT_INSERT or IS_TAIL:  # an indexed load of a tail would read past the rows
        tile = tl.zeros((SUB_BLOCK_SIZE, BLOCK_X), dtype=x.dtype.element_ty)
        for r in range(0, num_rows):
            token = extension.get_element(indices, (r,)) // TOP_K
            row = load_columns(row_at(x, token, x_stride), column, num_columns, BLOCK_X, IS_TAIL)
            if HAS_WEIGHTS:
                row = (row.to(tl.float32) * extension.get_element(weights, (r,))).to(x.dtype.element_ty)
            tile = extension.insert_slice(tile, row[None, :], (r, 0), (1, BLOCK_X), (1, 1))
    else:
        if ROW_COPY == INDEX_SELECT:
            tile = index_library.index_select_simd(x, 0, tokens, (num_tokens, x_stride), (-1, column), (-1, BLOCK_X))
        else:
            rows = (indices // TOP_K).to(tl.int64) * x_stride
            tile = tl.load(x + rows[:, None] + column + tl.arange(0, BLOCK_X)[None, :])
        if HAS_WEIGHTS:
            tile = (tile.to(tl.float32) * weights[:, None]).to(x.dtype.element_ty)
    store_rows(y_rows, y_stride, num_rows, column, num_columns, tile, BLOCK_X, IS_TAIL)


@kernel
def binned_gather_kernel(
    x,
    indices,
    bin_ids,
    bins,
    weights,
    y,
    num_tokens,
    num_experts,
    expert_capacity,
    hidden_size,
    x_stride,
    y_stride,
    TOP_K: tl.constexpr,
    SUB_BLOCK_SIZE: tl.constexpr,
    BLOCK_X: tl.constexpr,
    ROW_COPY: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    HAS_TAIL: tl.constexpr,
):
    """y[e,c] = w[a] * x[a / TOP_K], a = indices[start_e + c]; empty rows are +0. Walks the sorted positions.

    A sub-block falls into runs of one expert. A run ends where the expert changes, where it is full, and where the
    sub-block ends: its rows are collected in UB and flushed by one store. What the capacity cuts is in no run.
    """
    lanes = tl.arange(0, SUB_BLOCK_SIZE)
    tail = hidden_size % BLOCK_X
    num_positions = tl.minimum(tl.load(bins + num_experts - 1), num_tokens * TOP_K)
    for block in range(tl.program_id(0), num_blocks(num_positions, SUB_BLOCK_SIZE), tl.num_programs(0)):
        first = block * SUB_BLOCK_SIZE
        last = first + tl.minimum(SUB_BLOCK_SIZE, num_positions - first)
        first_expert = tl.maximum(tl.load(bin_ids + first), 0)
        last_expert = tl.minimum(tl.load(bin_ids + last - 1), num_experts - 1)
        for expert in range(first_expert, last_expert + 1):
            start = start_of(bins, expert)
            kept = tl.minimum(tl.load(bins + expert) - start, expert_capacity)
            begin = tl.maximum(first, start)
            num_rows = tl.minimum(last, start + kept) - begin
            if num_rows > 0:
                # Lanes past the run read assignment 0, which is there; their rows are not stored.
                index = tl.load(indices + begin + lanes, mask=lanes < num_rows, other=0)
                index = tl.minimum(tl.maximum(index, 0), num_tokens * TOP_K - 1)
                tokens = index
                if ROW_COPY == INDEX_SELECT:
                    tokens = _tokens_of(index, num_rows, TOP_K, SUB_BLOCK_SIZE)
                weight = index
                if HAS_WEIGHTS:
                    weight = tl.load(weights + index).to(tl.float32)
                y_rows = row_at(y, expert * expert_capacity + (begin - start), y_stride)
                for column in range(0, hidden_size - tail, BLOCK_X):
                    _gather_tile(
                        x, x_stride, num_tokens, index, tokens, weight, y_rows, y_stride, num_rows, column, BLOCK_X,
                        TOP_K, SUB_BLOCK_SIZE, BLOCK_X, ROW_COPY, HAS_WEIGHTS, False,
                    )  # fmt: skip
                if HAS_TAIL:
                    _gather_tile(
                        x, x_stride, num_tokens, index, tokens, weight, y_rows, y_stride, num_rows,
                        hidden_size - tail, tail, TOP_K, SUB_BLOCK_SIZE, BLOCK_X, ROW_COPY, HAS_WEIGHTS, True,
                    )  # fmt: skip
    zero_empty_rows(y, bins, num_experts, expert_capacity, hidden_size, y_stride, SUB_BLOCK_SIZE, BLOCK_X, HAS_TAIL)


@triton.jit
def _gather_token_columns(
    x_row,
    y,
    y_stride,
    rows,
    weights,
    lane,
    num_expert_rows,
    column,
    num_columns,
    TOP_K: tl.constexpr,
    BLOCK_X: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    IS_TAIL: tl.constexpr,
):
    """Read columns of one token's row once, and write them to its kept rows."""
    values = load_columns(x_row, column, num_columns, BLOCK_X, IS_TAIL)
    store_to_kept_rows(
        y, y_stride, values, rows, weights, lane, TOP_K, num_expert_rows, column, num_columns, BLOCK_X, HAS_WEIGHTS,
        IS_TAIL,
    )  # fmt: skip


@kernel
def binned_gather_by_token_kernel(
    x,
    row_of_assignment,
    bins,
    weights,
    y,
    num_tokens,
    num_experts,
    expert_capacity,
    hidden_size,
    x_stride,
    y_stride,
    TOP_K: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    SUB_BLOCK_SIZE: tl.constexpr,
    BLOCK_X: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    HAS_TAIL: tl.constexpr,
):
    """y[row_of_assignment[t,k]] = w[t,k] * x[t]; empty rows are +0. Each row of x is read once."""
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
        for i in range(0, block_tokens):
            x_row = row_at(x, first + i, x_stride)
            lane = i * TOP_K
            if is_kept(rows, lane, TOP_K):
                for column in range(0, hidden_size - tail, BLOCK_X):
                    _gather_token_columns(
                        x_row, y, y_stride, rows, weight, lane, num_rows, column, BLOCK_X,
                        TOP_K, BLOCK_X, HAS_WEIGHTS, False,
                    )  # fmt: skip
                if HAS_TAIL:
                    _gather_token_columns(
                        x_row, y, y_stride, rows, weight, lane, num_rows, hidden_size - tail, tail,
                        TOP_K, BLOCK_X, HAS_WEIGHTS, True,
                    )  # fmt: skip
    zero_empty_rows(y, bins, num_experts, expert_capacity, hidden_size, y_stride, SUB_BLOCK_SIZE, BLOCK_X, HAS_TAIL)
