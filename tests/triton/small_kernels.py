"""Kernels that do one thing each, right or wrong, for the tests of the checker."""

import triton
import triton.language as tl


@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    """y = x in blocks dealt round robin."""
    lanes = tl.arange(0, BLOCK)
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        mask = lanes < n - block * BLOCK
        values = tl.load(x + block * BLOCK + lanes, mask=mask, other=0.0)
        tl.store(y + block * BLOCK + lanes, values, mask=mask)


@triton.jit
def unmasked_copy_kernel(x, y, n, BLOCK: tl.constexpr):
    """Reads and writes past the end unless BLOCK divides n."""
    lanes = tl.arange(0, BLOCK)
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        tl.store(y + block * BLOCK + lanes, tl.load(x + block * BLOCK + lanes))


@triton.jit
def first_block_kernel(x, y, n, BLOCK: tl.constexpr):
    """Every program writes the first block, and nobody the others."""
    lanes = tl.arange(0, BLOCK)
    tl.store(y + lanes, tl.load(x + lanes), mask=lanes < n)


@triton.jit
def store_to_input_kernel(x, y, n, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    values = tl.load(x + lanes, mask=lanes < n, other=0.0)
    tl.store(x + lanes, values, mask=lanes < n)
    tl.store(y + lanes, values, mask=lanes < n)


@triton.jit
def read_back_kernel(x, y, n, BLOCK: tl.constexpr):
    """Only positive values are stored: the mask depends on data."""
    lanes = tl.arange(0, BLOCK)
    values = tl.load(x + lanes, mask=lanes < n, other=0.0)
    tl.store(y + lanes, values, mask=values > 0.0)


@triton.jit
def insert_below_kernel(x, y, n, BLOCK: tl.constexpr):
    """The second row goes to row 2 of a tile of 2."""
    lanes = tl.arange(0, BLOCK)
    rows = tl.arange(0, 2)
    tile = tl.zeros((2, BLOCK), dtype=x.dtype.element_ty)
    for r in range(0, n):
        row = tl.load(x + r * BLOCK + lanes)
        tile = tl.insert_slice(tile, row[None, :], (r + 1, 0), (1, BLOCK), (1, 1))
    tl.store(y + rows[:, None] * BLOCK + lanes[None, :], tile)


@triton.jit
def half_sum_kernel(x, y, n, BLOCK: tl.constexpr):
    """y = x + 2^-9 in f32, rounded once to y's type."""
    lanes = tl.arange(0, BLOCK)
    values = tl.load(x + lanes, mask=lanes < n, other=0.0).to(tl.float32) + 0.001953125
    tl.store(y + lanes, values.to(y.dtype.element_ty), mask=lanes < n)


@triton.jit
def tile_kernel(x, y, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A tile in a loop: loaded twice over, stored twice over."""
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    for block in range(tl.program_id(0), n, tl.num_programs(0)):
        offsets = (block * ROWS + rows)[:, None] * COLUMNS + columns[None, :]
        tl.store(y + offsets, tl.load(x + offsets))
