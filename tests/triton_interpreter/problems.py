"""Problems for the kernels, with NaN wherever nothing may be read, and comparison by bits."""

from dataclasses import dataclass, replace

import torch
from binmoe.ascend import library
from binmoe.ascend.routing import Plan

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
GRIDS = (1, 7, 40, 48)
FORMS = (("token", "element_insert"), *(("expert", form) for form in library.ROW_COPIES))


@dataclass
class Problem:
    plan: Plan
    x: torch.Tensor
    y: torch.Tensor
    grad: torch.Tensor
    weights: torch.Tensor | None


def spread(values, extra):
    """The same rows, `extra` elements further apart, NaN between and around."""
    rows, columns = values.shape
    room = torch.full((rows + 2, columns + extra), float("nan"), dtype=values.dtype)
    view = room[1:-1, :columns]
    view.copy_(values)
    return view


def problem(seed, dtype, tokens, hidden_size, num_experts, top_k, capacity, weights="f32", masked=True, extra=3):
    """Random routing and rows; a plan of the library. Rows and weights that have no influence are NaN."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(-1 if masked else 0, num_experts, (tokens, top_k), generator=random, dtype=torch.int32)
    plan = library.make_plan(ids, num_experts, capacity, backend="reference")
    rows = plan.row_of_assignment
    is_used = torch.zeros(plan.expert_rows, dtype=torch.bool)
    is_used[rows[rows >= 0].long()] = True
    keeps = (rows >= 0).any(dim=1)

    def matrix(is_read):
        values = torch.randn((len(is_read), hidden_size), generator=random)
        values[~is_read] = float("nan")
        return spread(values.to(DTYPES[dtype]), extra)

    w = torch.randn(rows.shape, generator=random).masked_fill(rows < 0, float("nan"))
    w = None if weights is None else w.to(DTYPES[weights])
    return Problem(plan, matrix(keeps), matrix(is_used), matrix(keeps), w)


def small_tiles(plan, op, dtype, hidden_size, columns=32, rows=4, tokens=3, order="token", row_copy="element_insert"):
    """A tile plan so small that a small problem has several column tiles, sub-blocks and chunks of choices."""
    tile = library.tile_plan(
        op=op,
        order=order if op == "gather" else None,
        row_copy="element_insert",
        rows=DTYPES[dtype],
        tokens=plan.tokens,
        hidden_size=hidden_size,
        num_experts=plan.num_experts,
        top_k=plan.top_k,
        expert_capacity=plan.expert_capacity,
    )
    return replace(tile, block_x=columns, sub_block_size=rows, items_per_block=tokens, row_copy=row_copy)


def ordered_bits(tensor):
    """Bits as integers that grow with the number; every NaN alike, -0 next below +0."""
    clean = torch.where(tensor.isnan(), torch.full_like(tensor, float("nan")), tensor).contiguous()
    bits = clean.view(torch.int32 if tensor.element_size() == 4 else torch.int16).long()
    lowest = -(1 << (8 * tensor.element_size() - 1))
    return torch.where(bits < 0, lowest - bits - 1, bits)


def assert_same(got, want, what, steps=0):
    """Equal within `steps` numbers of the dtype: 0 is bit for bit."""
    got = got.reshape(want.shape)
    assert got.dtype == want.dtype, (what, got.dtype, want.dtype)
    wrong = (ordered_bits(got) - ordered_bits(want)).abs() > steps
    if wrong.any():
        place = tuple(int(i) for i in wrong.nonzero()[0])
        raise AssertionError(f"{what}{place} is {got[place]}, not {want[place]}; {int(wrong.sum())} differ")


def rounding_steps(dtype):
    """The interpreter cuts f32 to bf16 where a device rounds: its results may be a step off."""
    return 1 if dtype == "bf16" else 0


def assert_dw(got, problem, dtype=torch.float32):
    """dw within hidden_size * 2^-24 * sum |y * grad| of the sum in f64, then rounded; +0 where nothing was kept."""
    rows = problem.plan.row_of_assignment
    kept = rows >= 0
    products = problem.y.double()[rows.clamp(min=0).long()] * problem.grad.double()[:, None, :]
    value = products.sum(-1).masked_fill(~kept, 0.0)
    allowed = products.abs().sum(-1).masked_fill(~kept, 0.0) * problem.y.shape[1] * 2.0**-24
    allowed = allowed + value.abs() * {torch.float32: 0, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-7}[dtype]
    assert got.dtype == dtype and got.shape == rows.shape
    assert ((got.double() - value).abs() <= allowed).all(), f"dw is {got}, not {value}"
    assert_same(got[~kept], torch.zeros_like(got[~kept]), "dw of dropped assignments")
