"""One call of each operation: routing, tensors full of traps, and what the C++ library makes of them.

The traps: NaN wherever design.md says that a value has no influence (dropped tokens' rows of x, empty rows of y, grad
rows of tokens without a kept assignment, weights of dropped and masked assignments, the gaps between rows), no byte
past the last row's last element.
"""

import functools
from dataclasses import dataclass

import torch

from binmoe.ascend import library

from ..guard import Guarded

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
UNIT_ROUNDOFF = {"f32": 2.0**-24, "bf16": 2.0**-8, "f16": 2.0**-11}
SMALLEST = {"f32": 2.0**-149, "bf16": 2.0**-133, "f16": 2.0**-24}


@dataclass(frozen=True)
class Case:
    """expert_ids: T tuples of K; gap: elements between two rows; has_infinities: among the rows' values."""

    expert_ids: tuple
    num_experts: int
    expert_capacity: int
    hidden_size: int = 70
    rows: str = "bf16"
    weights: str = "f32"
    dw: str = "f32"
    gap: int = 0
    has_infinities: bool = False
    has_subnormals: bool = True
    seed: int = 1


def pitched(rows, columns, gap, dtype):
    """A matrix of NaN whose rows are `gap` elements apart, nothing after the last row's last element.

    Returns (Guarded flat memory, view). Gaps larger than a page stay untouched: they cost no memory.
    """
    count = max(rows - 1, 0) * (columns + gap) + (columns if rows else 0)
    memory = Guarded((count,), dtype)
    view = memory.tensor.as_strided((rows, columns), (columns + gap, 1), memory.tensor.storage_offset())
    (memory.tensor if gap < 1024 else view).fill_(float("nan"))
    return memory, view


def random_values(shape, dtype, generator, has_subnormals=True):
    """Normal numbers of many magnitudes; some +0, -0, large and small ones, subnormals if wanted."""
    values = torch.randn(shape, generator=generator) * 2.0 ** torch.randint(-6, 6, shape, generator=generator)
    odd = torch.tensor([0.0, -0.0, 1e-7, 60000.0] + [1e-40, -1e-40] * has_subnormals)
    picked = odd[torch.randint(0, len(odd), shape, generator=generator)]
    return torch.where(torch.rand(shape, generator=generator) < 0.05, picked, values).to(dtype)


class Problem:
    """Tensors of a case by kernel argument, and the expected outputs."""

    def __init__(self, case):
        self.case = case
        ids = torch.tensor(case.expert_ids, dtype=torch.int32)
        self.tokens, self.top_k = ids.shape
        self.plan = library.make_plan(ids, case.num_experts, case.expert_capacity)
        rows = self.plan.row_of_assignment.view(self.tokens, self.top_k)
        self.num_rows = case.num_experts * case.expert_capacity
        dtype, hidden = DTYPES[case.rows], case.hidden_size
        generator = torch.Generator().manual_seed(case.seed)
        has_kept = (rows >= 0).any(1)
        is_full = torch.zeros(self.num_rows, dtype=torch.bool)
        is_full[rows[rows >= 0].long()] = True
        self.memory, self.views = {}, {}
        for name, count, is_live in (("x", self.tokens, has_kept), ("grad", self.tokens, has_kept),
                                     ("y", self.num_rows, is_full)):  # fmt: skip
            self.memory[name], view = pitched(count, hidden, case.gap, dtype)
            live = is_live.nonzero().view(-1)
            values = random_values((len(live), hidden), dtype, generator, case.has_subnormals)
            if case.has_infinities:
                values[torch.rand(values.shape, generator=generator) < 1 / hidden] = float("inf")
            view[live] = values
            self.views[name] = view
        self.weights = None
        if case.weights:
            self.weights = random_values(rows.shape, DTYPES[case.weights], generator, case.has_subnormals)
            self.weights[rows < 0] = float("nan")

    def scalars(self):
        case = self.case
        pitch = case.hidden_size + case.gap
        return {
            "num_tokens": self.tokens,
            "num_experts": case.num_experts,
            "expert_capacity": case.expert_capacity,
            "num_expert_rows": self.num_rows,
            "hidden_size": case.hidden_size,
        } | {f"{name}_stride": pitch for name in ("x", "y", "grad", "out", "dy")}

    def arguments(self):
        """Inputs by name."""
        plan = self.plan
        given = {name: getattr(plan, name) for name in ("indices", "bin_ids", "bins", "row_of_assignment")}
        given["weights"] = self.weights
        return given | self.memory | self.scalars()

    def output_rows(self, name):
        return self.tokens if name == "out" else self.num_rows

    @functools.cache  # noqa: B019  a problem lives as long as its case
    def expected(self, op, weights):
        """Outputs by name of the operation on the C++ library's reference backend."""
        weights = self.weights if weights else None
        x, y, grad = (self.views[name] for name in ("x", "y", "grad"))
        if op == "gather":
            return {"y": library.gather(self.plan, x, weights, backend="reference")}
        if op == "scatter":
            return {"out": library.scatter(self.plan, y, weights, backend="reference")}
        if op == "wgrad":
            return {"dw": library.wgrad(self.plan, y, grad, backend="reference")}
        return {
            "dy": library.gather(self.plan, grad, weights, backend="reference"),
            "dw": library.wgrad(self.plan, y, grad, backend="reference"),
        }

    def dw_bound(self):
        """design.md, section 2: H * 2^-24 * sum |y * grad| for each assignment; 0 where that is not finite."""
        rows = self.plan.row_of_assignment.view(-1).long()
        y = self.views["y"][rows.clamp(min=0)].double()
        grad = self.views["grad"].double().repeat_interleave(self.top_k, 0)
        bound = (y * grad).abs().sum(1) * self.case.hidden_size * 2.0**-24
        return torch.where((rows >= 0) & bound.isfinite(), bound, 0.0)
