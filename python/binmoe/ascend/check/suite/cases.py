"""The cases of the lowered run: each a sentence, and the problems and launches it stands for."""

import random
from dataclasses import dataclass, replace

from .problems import Case
from .table import KERNELS, Variant


@dataclass(frozen=True)
class Launch:
    """A problem, the compile-time side that fits it, and how it is started; shuffled: programs out of order."""

    case: Case
    tile: Variant
    grid: int = 7
    shuffled: bool = False

    @property
    def programs(self):
        """In the order in which they run."""
        order = list(range(self.grid))
        if self.shuffled:
            random.Random(self.grid).shuffle(order)
        return order

    def variants(self, kernel, row_copy):
        """With and without weights."""
        weights = (None,) if KERNELS[kernel].op == "wgrad" else (None, self.case.weights)
        return [replace(self.tile, kernel=kernel, weights=w, row_copy=row_copy) for w in weights]


def _ids(tokens, top_k, num_experts, seed=0, masked=0.1):
    rng = random.Random(seed)
    return tuple(
        tuple(-1 if rng.random() < masked else rng.randrange(num_experts) for _ in range(top_k)) for _ in range(tokens)
    )


# Small, so that few tokens fill sub-blocks, blocks and tiles.
TILE = Variant("", block_tokens=4, sub_block_size=4, block_x=32)


def _launch(ids, num_experts, capacity, grid=7, **case):
    case = Case(ids, num_experts, capacity, **case)
    has_tail = case.hidden_size % TILE.block_x != 0
    tile = replace(TILE, rows=case.rows, weights=case.weights, dw=case.dw, top_k=len(ids[0]), has_tail=has_tail)
    return Launch(case, tile, grid)


def _choices_per_token():
    return [_launch(_ids(37, k, 5, seed=k), 5, 9) for k in (1, 2, 3, 8)]


def _row_dtypes():
    ids = _ids(29, 2, 4, seed=5)
    return [_launch(ids, 4, 9, rows=rows) for rows in ("f32", "bf16", "f16")]


def _weight_dtypes():
    ids = _ids(29, 2, 4, seed=6)
    pairs = (("bf16", "f32"), ("bf16", "bf16"), ("bf16", "f16"), ("f16", "bf16"), ("f32", "f16"))
    return [_launch(ids, 4, 9, rows=rows, weights=dtype, dw=dtype) for rows, dtype in pairs]


def _infinities():
    """0 times infinity is NaN: what a dropped choice must not leave behind."""
    return [_launch(_ids(29, 3, 4, seed=14), 4, 9, has_infinities=True)]


def _grids():
    ids = _ids(90, 2, 5, seed=7)
    return [_launch(ids, 5, 20, grid=grid) for grid in (1, 7, 40, 48)]


def _order_of_programs():
    ids = _ids(90, 2, 5, seed=13)
    return [replace(_launch(ids, 5, 20, grid=grid), shuffled=True) for grid in (13, 40)]


def _hidden_sizes():
    """Below a tile, a tile, one more, no multiple of 32 bytes, one element, without a tail path."""
    ids = _ids(13, 2, 3, seed=8)
    return [_launch(ids, 3, 6, hidden_size=hidden) for hidden in (1, 15, 31, 32, 33, 64, 95, 100)]


def _strides():
    ids = _ids(21, 2, 4, seed=9)
    return [_launch(ids, 4, 9, hidden_size=hidden, gap=gap) for hidden, gap in ((64, 1), (70, 29))]


def _last_rows():
    """Only the last token is kept, at the last row that there is."""
    dropped = ((-1, -1),) * 11
    return [
        _launch((*dropped, (2, 2)), 3, 2),
        _launch((*dropped, (2, -1)), 3, 1),
        _launch((*dropped, (-1, 0)), 1, 1, hidden_size=64),
    ]


def _last_expert_full():
    return [_launch(((4, 3),) * 12 + ((0, 4),) * 3, 5, 12), _launch(((4, 4),) * 9, 5, 18)]


def _large_capacity():
    """More rows for an expert than there are tokens; the last share ragged."""
    return [_launch(_ids(5, 2, 3, seed=10), 3, 23), _launch(_ids(1, 2, 2, seed=11, masked=0), 2, 9)]


def _capacity_one():
    return [_launch(_ids(17, 2, 4, seed=12), 4, 1)]


def _empty_experts():
    """First, last and those between without a row; a run of empty ones longer than a sub-block."""
    return [_launch(((3, 9), (9, 3), (3, 3)) * 4, 14, 7), _launch(((-1, -1),) * 6, 3, 4)]


def _capacity_met():
    """Counts that equal the capacity, pass it by one, miss it by one."""
    ids = tuple((e, -1) for e, count in enumerate((8, 9, 7, 8)) for _ in range(count))
    return [_launch(ids, 4, 8), _launch(ids, 4, 9), _launch(ids, 4, 7)]


def _transitions():
    """The expert changes after p positions, for every p of two sub-blocks; one more change right behind."""
    launches = []
    for p in range(9):
        ids = ((0,),) * p + ((1,),) * (p % 3) + ((2,),) * (10 - p)
        launches.append(_launch(ids, 3, 6, hidden_size=40, grid=2))
    return launches


def _one_of_each():
    return [_launch(((0,),), 1, 1, hidden_size=1, grid=1), _launch(((0,),), 1, 1, hidden_size=32, grid=3)]


def _far_offsets():
    """Rows so far apart that the last ones stand beyond 2^31 elements, of tokens and of experts; few are kept."""
    tokens = 2100
    ids = [(-1,)] * tokens
    for t, expert in ((0, 0), (1, 699), (1000, 700), (tokens - 2, 700), (tokens - 1, 699)):
        ids[t] = (expert,)
    return [_launch(tuple(ids), 701, 3, hidden_size=40, gap=1 << 20, grid=40)]


CASES = {
    "1, 2, 3 and 8 choices a token": _choices_per_token,
    "rows of f32, bf16 and f16": _row_dtypes,
    "weights of each dtype": _weight_dtypes,
    "rows with infinities": _infinities,
    "1, 7, 40 and 48 programs": _grids,
    "programs in any order": _order_of_programs,
    "rows of any length": _hidden_sizes,
    "gaps between rows": _strides,
    "the last row is gathered": _last_rows,
    "the last expert is full": _last_expert_full,
    "the capacity is larger than the tokens": _large_capacity,
    "a capacity of 1": _capacity_one,
    "empty experts": _empty_experts,
    "the capacity exactly met": _capacity_met,
    "experts change at every position of a sub-block": _transitions,
    "one token, one expert, one column": _one_of_each,
    "offsets beyond 2^31 elements": _far_offsets,
}
