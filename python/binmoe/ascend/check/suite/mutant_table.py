"""The faults that are planted: text of our kernels and what stands there instead."""

from dataclasses import dataclass

GATHER, TOKEN, SCATTER, WGRAD = "gather by expert", "gather by token", "scatter", "wgrad"
SOME_CHOICES = ("1, 2, 3 and 8 choices a token",)
TILE_STORE = """    if IS_TAIL:
        tl.store(addresses, tile, mask=(lanes < num_rows)[:, None] & (columns < num_columns)[None, :])
    else:
        tl.store(addresses, tile, mask=(lanes < num_rows)[:, None])"""
SAFE_INDEX = """mask=lanes < num_rows, other=0)
                index = tl.minimum(tl.maximum(index, 0), num_tokens * TOP_K - 1)"""
KEPT_ROW = "y_row = row_at(y, tl.minimum(row, num_expert_rows - 1), y_stride)\n"
ALL_RUNS = "for expert in range(first_expert, last_expert + 1):"


@dataclass(frozen=True)
class Mutant:
    """file, old, new: what is replaced; it stands there exactly once. also: a second (old, new).

    kernel, cases, row_copy: what it is tried on. refused_by: levels whose tools must refuse it instead of running it.
    """

    name: str
    kernel: str
    file: str
    old: str
    new: str
    cases: tuple = SOME_CHOICES
    row_copy: str = "element_insert"
    also: tuple = ("", "")
    refused_by: tuple = ()


MUTANTS = (
    # Those that the issue names: what went wrong in public code, or nearly did here (docs/triton_ascend.md).
    Mutant(
        "masked bins[e-1]",
        GATHER,
        "rows",
        "tl.load(bins + tl.maximum(expert - 1, 0))",
        "tl.load(bins + expert - 1, mask=expert > 0, other=0)",
    ),
    Mutant(
        "mask written with >",
        SCATTER,
        "rows",
        "values = tl.load(row + column + columns, mask=columns < num_columns, other=0.0)",
        "values = tl.load(row + column + columns, mask=num_columns > columns, other=0.0)",
    ),
    Mutant(
        "store mask written with >",
        GATHER,
        "rows",
        TILE_STORE,
        TILE_STORE.replace("lanes < num_rows", "num_rows > lanes").replace(
            "columns < num_columns", "num_columns > columns"
        ),
    ),
    Mutant(
        "insert one row low", GATHER, "gather_kernels", "row[None, :], (r, 0), (1,", "row[None, :], (r + 1, 0), (1,"
    ),
    Mutant(
        "index == T*K",
        GATHER,
        "gather_kernels",
        SAFE_INDEX,
        "mask=lanes < num_rows, other=num_tokens * TOP_K)",
        row_copy="indexed_load",
    ),
    Mutant(
        "data-dependent store mask",
        WGRAD,
        "scatter_kernels",
        "tl.store(dw + offsets, tl.where(kept, dots, 0.0).to(dw.dtype.element_ty), mask=mask)",
        "tl.store(dw + offsets, dots.to(dw.dtype.element_ty), mask=mask & kept)",
    ),
    Mutant(
        "missing capacity test",
        GATHER,
        "gather_kernels",
        "kept = tl.minimum(tl.load(bins + expert) - start, expert_capacity)",
        "kept = tl.load(bins + expert) - start",
        ("a capacity of 1",),
    ),
    Mutant(
        "missing flush at the end",
        GATHER,
        "gather_kernels",
        ALL_RUNS,
        ALL_RUNS.replace("last_expert + 1", "last_expert"),
    ),
    Mutant(
        "missing flush at the change",
        GATHER,
        "gather_kernels",
        ALL_RUNS,
        ALL_RUNS.replace("first_expert", "last_expert"),
        ("experts change at every position of a sub-block",),
    ),
    Mutant(
        "tail lanes counted as expert 0",
        TOKEN,
        "gather_kernels",
        "mask=lanes < block_tokens * TOP_K, other=-1)",
        "mask=lanes < block_tokens * TOP_K, other=0)",
        also=("for i in range(0, block_tokens)", "for i in range(0, BLOCK_TOKENS)"),
    ),
    # Ours.
    Mutant(
        "32-bit row base",
        TOKEN,
        "rows",
        "base + row.to(tl.int64) * stride",
        "base + row * stride",
        ("offsets beyond 2^31 elements",),
    ),
    Mutant(
        "32-bit base of a row that is summed",
        SCATTER,
        "rows",
        KEPT_ROW + "            values = ",
        KEPT_ROW.replace("row_at(y, ", "y + ").replace(", y_stride)", " * y_stride") + "            values = ",
        ("offsets beyond 2^31 elements",),
    ),
    Mutant(
        "32-bit base of a run that is stored",
        GATHER,
        "gather_kernels",
        "row_at(y, expert * expert_capacity + (begin - start), y_stride)",
        "y + (expert * expert_capacity + (begin - start)) * y_stride",
        ("offsets beyond 2^31 elements",),
    ),
    Mutant(
        "empty rows not zeroed", TOKEN, "rows", "        if num_rows > 0:\n", "        if num_rows > SUB_BLOCK_SIZE:\n"
    ),
    Mutant(
        "sum rounded at every step",
        SCATTER,
        "scatter_kernels",
        "            total += values\n",
        "            total = (total + values).to(y.dtype.element_ty).to(tl.float32)\n",
    ),
    Mutant(
        "weights of dropped choices used",
        SCATTER,
        "scatter_kernels",
        "weight = tl.where(rows >= 0, weight.to(tl.float32), 0.0)",
        "weight = weight.to(tl.float32)",
    ),
    Mutant(
        "dropped choices not cleared in dw",
        WGRAD,
        "scatter_kernels",
        "tl.where(kept, dots, 0.0).to(dw.dtype.element_ty)",
        "dots.to(dw.dtype.element_ty)",
        ("rows with infinities",),
    ),
    Mutant(
        "indices divided as a vector",
        GATHER,
        "gather_kernels",
        "tokens = _tokens_of(index, num_rows, TOP_K, SUB_BLOCK_SIZE)",
        "tokens = index // TOP_K",
        row_copy="index_select",
    ),
    Mutant(
        "a select over the rows of a tile",
        GATHER,
        "rows",
        TILE_STORE,
        "    tile = tl.where((lanes < num_rows)[:, None], tile, 0.0)\n" + TILE_STORE,
    ),
)
