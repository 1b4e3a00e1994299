"""What the Triton-Ascend kernels share: where experts and rows stand, and how columns of rows are moved."""

import inspect

import triton
import triton.language as tl

try:  # 3.2.1 and later
    import triton.language.extra.cann.extension as extension

    index_library = extension
except ImportError:  # 3.2.0
    from triton.language.extra.ascend import libdevice as index_library  # noqa: F401

    extension = tl

INDEXED_LOAD = tl.constexpr(0)
ELEMENT_INSERT = tl.constexpr(1)
INDEX_SELECT = tl.constexpr(2)


def kernel(function):
    """As triton.jit. No run-time argument makes a variant: else each batch with new lengths would compile again."""
    parameters = inspect.signature(function).parameters.values()
    return triton.jit(function, do_not_specialize=[p.name for p in parameters if p.annotation is not tl.constexpr])


@triton.jit
def start_of(bins, expert):
    """First sorted position of an expert. A scalar load keeps no mask: the address is clamped instead."""
    before = tl.load(bins + tl.maximum(expert - 1, 0))
    return tl.where(expert > 0, before, 0)


@triton.jit
def num_blocks(items, BLOCK: tl.constexpr):
    """Blocks that hold the items; no sum that could pass 2^31."""
    return items // BLOCK + tl.minimum(items % BLOCK, 1)


@triton.jit
def row_at(base, row, stride):
    """Address of a row: 64-bit from the first multiplication."""
    return base + row.to(tl.int64) * stride


@triton.jit
def load_columns(row, column, num_columns, BLOCK_X: tl.constexpr, IS_TAIL: tl.constexpr):
    """BLOCK_X columns of a row; in a tail num_columns of them, then zeros."""
    columns = tl.arange(0, BLOCK_X)
    if IS_TAIL:
        values = tl.load(row + column + columns, mask=columns < num_columns, other=0.0)
    else:
        values = tl.load(row + column + columns)
    return values


@triton.jit
def store_columns(row, column, num_columns, values, BLOCK_X: tl.constexpr, IS_TAIL: tl.constexpr):
    columns = tl.arange(0, BLOCK_X)
    if IS_TAIL:
        tl.store(row + column + columns, values, mask=columns < num_columns)
    else:
        tl.store(row + column + columns, values)


@triton.jit
def store_rows(rows, stride, num_rows, column, num_columns, tile, BLOCK_X: tl.constexpr, IS_TAIL: tl.constexpr):
    """The first num_rows rows of a tile, to rows that stand `stride` apart."""
    lanes = tl.arange(0, tile.shape[0])
    columns = tl.arange(0, BLOCK_X)
    addresses = rows + column + lanes[:, None] * stride + columns[None, :]
    if IS_TAIL:
        tl.store(addresses, tile, mask=(lanes < num_rows)[:, None] & (columns < num_columns)[None, :])
    else:
        tl.store(addresses, tile, mask=(lanes < num_rows)[:, None])


@triton.jit
def zero_empty_rows(
    y,
    bins,
    num_experts,
    expert_capacity,
    hidden_size,
    y_stride,
    SUB_BLOCK_SIZE: tl.constexpr,
    BLOCK_X: tl.constexpr,
    HAS_TAIL: tl.constexpr,
):
    """Store +0 to the rows of each expert past its kept ones, SUB_BLOCK_SIZE rows at a time."""
    zeros = tl.zeros((SUB_BLOCK_SIZE, BLOCK_X), dtype=y.dtype.element_ty)
    tail = hidden_size % BLOCK_X
    units = num_blocks(expert_capacity, SUB_BLOCK_SIZE)
    for unit in range(tl.program_id(0), num_experts * units, tl.num_programs(0)):
        expert = unit // units
        # Turned by the expert: else a program would meet the same unit, full or empty, of every expert.
        unit_begin = (unit % units + expert % units) % units * SUB_BLOCK_SIZE
        unit_end = unit_begin + tl.minimum(SUB_BLOCK_SIZE, expert_capacity - unit_begin)
        begin = tl.maximum(unit_begin, tl.load(bins + expert) - start_of(bins, expert))
        num_rows = unit_end - begin
        if num_rows > 0:
            rows = row_at(y, expert * expert_capacity + begin, y_stride)
            for column in range(0, hidden_size - tail, BLOCK_X):
                store_rows(rows, y_stride, num_rows, column, BLOCK_X, zeros, BLOCK_X, False)
            if HAS_TAIL:
                store_rows(rows, y_stride, num_rows, hidden_size - tail, tail, zeros, BLOCK_X, True)


@triton.jit
def is_kept(rows, lane, num_lanes):
    """Whether any of a token's choices has a row: the rows of tokens without one are not read."""
    last = -1
    for j in range(0, num_lanes):
        last = tl.maximum(last, extension.get_element(rows, (lane + j,)))
    return last >= 0


@triton.jit
def kept_tile(
    y,
    y_stride,
    rows,
    first_lane,
    num_lanes,
    num_expert_rows,
    column,
    num_columns,
    SUB_BLOCK_SIZE: tl.constexpr,
    BLOCK_X: tl.constexpr,
    IS_TAIL: tl.constexpr,
):
    """Rows of y of one token: row j of the tile belongs to choice j; it is 0 where the choice was not kept."""
    tile = tl.zeros((SUB_BLOCK_SIZE, BLOCK_X), dtype=y.dtype.element_ty)
    for j in range(0, num_lanes):
        row = extension.get_element(rows, (first_lane + j,))
        if row >= 0:
            y_row = row_at(y, tl.minimum(row, num_expert_rows - 1), y_stride)
            values = load_columns(y_row, column, num_columns, BLOCK_X, IS_TAIL)
            tile = extension.insert_slice(tile, values[None, :], (j, 0), (1, BLOCK_X), (1, 1))
    return tile


@triton.jit
def store_to_kept_rows(
    y,
    y_stride,
    values,
    rows,
    weights,
    lane,
    num_lanes,
    num_expert_rows,
    column,
    num_columns,
    BLOCK_X: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    IS_TAIL: tl.constexpr,
):
    """Store columns of one token's row to its kept expert rows: one multiply in f32, one rounding."""
    for j in range(0, num_lanes):
        row = extension.get_element(rows, (lane + j,))
        if row >= 0:
            y_row = row_at(y, tl.minimum(row, num_expert_rows - 1), y_stride)
            if HAS_WEIGHTS:
                scaled = values.to(tl.float32) * extension.get_element(weights, (lane + j,))
                store_columns(y_row, column, num_columns, scaled.to(y.dtype.element_ty), BLOCK_X, IS_TAIL)
            else:
                store_columns(y_row, column, num_columns, values, BLOCK_X, IS_TAIL)
