"""From a tile plan to the constexprs of a kernel: what a launch compiles, and what the checker compiles."""

from binmoe.ascend.library import ROW_COPIES, TilePlan

UB_LINE = 32  # bytes: rows of a tile are whole lines


def kernel_name(tile: TilePlan) -> str:
    if tile.op == "gather":
        return "binned_gather_kernel" if tile.order == "expert" else "binned_gather_by_token_kernel"
    return {
        "scatter": "binned_scatter_kernel",
        "wgrad": "binned_scatter_wgrad_kernel",
        "scatter_backward": "binned_scatter_backward_kernel",
    }[tile.op]


def constexprs(
    tile: TilePlan, *, top_k: int, hidden_size: int, element_bytes: int, has_weights: bool
) -> dict[str, int]:
    """The constexprs of kernel_name(tile), in the order of its signature. No length of a batch is among them."""
    unit = UB_LINE // element_bytes
    if kernel_name(tile) == "binned_gather_kernel" and tile.sub_block_size < 2:
        raise ValueError(
            "a gather in expert order wants 2 rows a sub-block at least: the compiler takes no vector of 1"
        )
    block_x = -(-tile.block_x // unit) * unit
    values = {"TOP_K": top_k}
    if kernel_name(tile) != "binned_gather_kernel":
        values["BLOCK_TOKENS"] = tile.items_per_block
    values |= {"SUB_BLOCK_SIZE": tile.sub_block_size, "BLOCK_X": block_x}
    if kernel_name(tile) == "binned_gather_kernel":
        values["ROW_COPY"] = ROW_COPIES.index(tile.row_copy)
    if tile.op != "wgrad":
        values["HAS_WEIGHTS"] = int(has_weights)
    return values | {"HAS_TAIL": int(hidden_size % block_x != 0)}
