"""What numpy's and torch's plans share: sizes, load, drop policies, and the block that holds a plan's maps.

A plan is one block of int32, so that it costs one allocation: row_of_assignment and indices of T*K entries each; the
status, three int64 at an address that fits them; bin_ids of T*K entries; bins, tokens_per_expert and kept_per_expert of
E entries each (python/src/arguments.h). row_of_assignment comes first: kernels read the rows of a token as one vector.
"""

from typing import NamedTuple

# DropPolicy of include/binmoe/types.h.
POLICIES = {"token_order": 0, "choice_order": 1, "by_weight": 2}
# Memory of include/binmoe/context.h.
HOST, CUDA = 0, 1


class Sizes(NamedTuple):
    """T, K, E and C of a plan."""

    tokens: int
    top_k: int
    num_experts: int
    expert_capacity: int


class Load(NamedTuple):
    """What a plan does to a batch: assignments kept, dropped, masked; empty expert rows; the fullest expert's
    assignments over the mean (0 when there are none)."""

    kept: int
    dropped: int
    masked: int
    empty: int
    max_over_mean: float


_STATUS_ENTRIES = 6


def map_length(tokens, top_k, num_experts):
    """Entries of the block; 0 for sizes that the library will refuse."""
    if min(tokens, top_k) < 0 or tokens * top_k >= 1 << 31 or not 1 <= num_experts < 1 << 31:
        return 0
    return symbolic_map_length(tokens, top_k, num_experts)


def symbolic_map_length(tokens, top_k, num_experts):
    """map_length of sizes that a compiler may know by name only: no comparison."""
    return 3 * tokens * top_k + _STATUS_ENTRIES + 3 * num_experts


def map_range(name, tokens, top_k, num_experts):
    """(begin, end) of one map in the block, or of the status."""
    assignments = tokens * top_k
    lengths = {
        "row_of_assignment": assignments,
        "indices": assignments,
        "status": _STATUS_ENTRIES,
        "bin_ids": assignments,
        "bins": num_experts,
        "tokens_per_expert": num_experts,
        "kept_per_expert": num_experts,
    }
    begin = 0
    for other, length in lengths.items():
        if other == name:
            break
        begin += length
    return begin, begin + lengths[name]


def policy_code(policy):
    """The policy's number. Errors: ValueError for an unknown name."""
    try:
        return POLICIES[policy]
    except (KeyError, TypeError):
        raise ValueError(f"[plan] unknown policy {policy!r}; there are: {', '.join(POLICIES)}") from None


def load_of(counts, kept, sizes):
    """The Load of tokens_per_expert and kept_per_expert, given as lists."""
    unmasked, num_kept = sum(counts), sum(kept)
    return Load(
        kept=num_kept,
        dropped=unmasked - num_kept,
        masked=sizes.tokens * sizes.top_k - unmasked,
        empty=sizes.num_experts * sizes.expert_capacity - num_kept,
        max_over_mean=max(counts) * sizes.num_experts / unmasked if unmasked else 0.0,
    )


def row_stride(shape, strides):
    """Elements from one row to the next, when [T, H] or [E, C, H] of these strides is rows at one distance, each
    contiguous; else None. `strides` are in elements."""
    cols = shape[-1]
    if 0 in shape:
        return cols
    if cols > 1 and strides[-1] != 1:
        return None
    if len(shape) == 3 and shape[0] > 1:
        stride = strides[1] if shape[1] > 1 else strides[0]
        if strides[0] != shape[1] * stride:
            return None
    else:
        stride = strides[-2] if shape[-2] > 1 else cols
    return stride if stride >= 0 else None
