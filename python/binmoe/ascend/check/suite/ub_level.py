"""The level "UB": the tile plans that a launch would take, compiled with double buffering, against their budgets."""

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from binmoe.ascend import library, tiles

from ..ub import ub_usage
from .checks import Check
from .problems import DTYPES
from .running import lowered
from .table import KERNELS, Variant

LEVEL = "UB"
# docs/design.md, section 6: hidden_size, num_experts, top_k, and tokens as there on a GPU; capacity factor 1.25.
MODELS = {
    "mixtral-8x7b": (4096, 8, 2, 16384),
    "gpt-oss-120b": (2880, 128, 4, 16384),
    "qwen3-30b": (2048, 128, 8, 16384),
    "deepseek-v3": (7168, 256, 8, 8192),
    "llama4-maverick": (5120, 128, 1, 16384),
}
SOCS = ("910B1", "910B3", "910_9382")
MOST_OVER = 1.25


@dataclass(frozen=True)
class Planned:
    """A tile plan and the compile-time side of the launch that it stands for."""

    model: str
    variant: Variant
    tile: library.TilePlan

    @property
    def budget_bytes(self):
        return self.tile.ub_bytes


def planned(kernel, row_copy, model, soc, rows, weights, sizes=None):
    """sizes: those of a model that is not in the table."""
    hidden, experts, top_k, tokens = sizes or MODELS[model]
    entry = KERNELS[kernel]
    tile = library.tile_plan(
        soc, op=entry.op, order=entry.order or None, row_copy=row_copy, rows=DTYPES[rows],
        weights=DTYPES[weights] if weights else None, tokens=tokens, hidden_size=hidden, num_experts=experts,
        top_k=top_k, expert_capacity=-(-tokens * top_k * 5 // (4 * experts)),
    )  # fmt: skip
    given = tiles.constexprs(
        tile, top_k=top_k, hidden_size=hidden, element_bytes=DTYPES[rows].itemsize, has_weights=bool(weights)
    )
    variant = Variant(
        kernel, rows, weights, "f32", top_k, given.get("BLOCK_TOKENS", 0), given["SUB_BLOCK_SIZE"], given["BLOCK_X"],
        row_copy, bool(given["HAS_TAIL"]),
    )  # fmt: skip
    return Planned(model, variant, tile)


def plans_of(kernel, row_copy, soc, rows):
    weights = (None,) if KERNELS[kernel].op == "wgrad" else (None, "f32")
    return [planned(kernel, row_copy, model, soc, rows, w) for model, w in itertools.product(MODELS, weights)]


def usages(variants, target):
    """[UbUsage]: lowered one after the other, planned by as many processes as there are cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [job.result() for job in [pool.submit(ub_usage, lowered(v), target) for v in variants]]


def complaint(plan, usage):
    """What is wrong with a plan whose kernel takes this much, or None."""
    over = plan.budget_bytes / usage.used_bytes
    numbers = f"{plan.model}, {plan.variant}: {usage.used_bytes} bytes by the compiler, {plan.budget_bytes} by the plan"
    if not usage.fits:
        return f"{numbers}: an overflow"
    if plan.budget_bytes > plan.tile.ub_limit_bytes:
        return f"{numbers}, but {plan.tile.ub_limit_bytes} may be used"
    if not 1 <= over <= MOST_OVER:
        return f"{numbers}: {over:.2f} times as much, not 1 to {MOST_OVER}"
    return None


def check(kernel, row_copy, soc, rows):
    """Every model, with and without weights: fits, and the budget is an upper bound within 25 %."""
    plans = plans_of(kernel, row_copy, soc, rows)
    found = usages([plan.variant for plan in plans], f"Ascend{soc}")
    complaints = [text for text in map(complaint, plans, found) if text]
    most = max(usage.used_bytes for usage in found)
    over = max(plan.budget_bytes / usage.used_bytes for plan, usage in zip(plans, found, strict=True))
    detail = "; ".join(complaints) or f"{len(plans)} plans, up to {most} bytes, budget at most {over:.3f} times that"
    return Check(plans[0].variant.label, f"tile plans of the models, {soc}, {rows}", LEVEL, not complaints, detail)


def check_950(kernel, row_copy):
    """The 950's compiler, for one model. Its buffers are not doubled: the budget is an upper bound and no more."""
    plans = [planned(kernel, row_copy, "deepseek-v3", "950_959x", rows, None) for rows in ("bf16", "f32")]
    found = [ub_usage(lowered(plan.variant, compile_on_910_95=True), "Ascend950PR_9599") for plan in plans]
    complaints = []
    for plan, usage in zip(plans, found, strict=True):
        if not usage.fits or usage.used_bytes > plan.budget_bytes:
            complaints.append(f"{plan.variant}: {usage.used_bytes} bytes, {plan.budget_bytes} planned")
    detail = "; ".join(complaints) or ", ".join(f"{usage.used_bytes} bytes" for usage in found)
    return Check(plans[0].variant.label, "tile plans of deepseek-v3, 950", LEVEL, not complaints, detail)


def check_overflow(kernel, row_copy):
    """The test can fail: for some model a tile of twice the rows or columns does overflow."""
    soc = "910B3"
    for rows in ("f32", "bf16"):
        plans = plans_of(kernel, row_copy, soc, rows)
        for plan in sorted(plans, key=lambda p: -p.budget_bytes):
            for name in ("sub_block_size", "block_x"):
                larger = replace(plan.variant, **{name: 2 * getattr(plan.variant, name)})
                usage = usages([larger], f"Ascend{soc}")[0]
                if not usage.fits:
                    detail = f"{plan.model}, {larger}: {usage.used_bytes} of {usage.limit_bytes} bytes"
                    return Check(larger.label, "a tile of the next size overflows", LEVEL, True, detail)
    return Check(plans[0].variant.label, "a tile of the next size overflows", LEVEL, False, "nothing overflowed")


def checks(kernel, row_copy):
    fits = [check(kernel, row_copy, soc, rows) for soc, rows in itertools.product(SOCS, DTYPES)]
    return [*fits, check_overflow(kernel, row_copy), check_950(kernel, row_copy)]
