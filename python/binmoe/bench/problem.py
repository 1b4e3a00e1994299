"""What is measured: models and routings of docs/design.md, section 6, as tensors, with the maps that torch wants."""

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

import binmoe.torch as binmoe_torch


class Model(NamedTuple):
    name: str
    hidden_size: int
    num_experts: int
    top_k: int


class Shape(NamedTuple):
    """One row of a table."""

    model: Model
    tokens: int
    capacity_factor: float
    routing: str


MODELS = {
    model.name: model
    for model in (
        Model("mixtral-8x7b", 4096, 8, 2),
        Model("gpt-oss-120b", 2880, 128, 4),
        Model("qwen3-30b", 2048, 128, 8),
        Model("deepseek-v3", 7168, 256, 8),
        Model("llama4-maverick", 5120, 128, 1),
    )
}
ROUTINGS = ("uniform", "zipf", "one")
SEED = 2024


def find_model(name):
    """A model by its name, or by its sizes: "64x8x2" has hidden_size 64, 8 experts and top_k 2."""
    if name in MODELS:
        return MODELS[name]
    sizes = re.fullmatch(r"(\d+)x(\d+)x(\d+)", name)
    if not sizes:
        raise ValueError(f"no model {name!r}: one of {', '.join(MODELS)}, or HIDDENxEXPERTSxTOP_K")
    return Model(name, *(int(size) for size in sizes.groups()))


def _mix(z):
    """The finalizer of SplitMix64 (Steele, Lea, Flood 2014) on uint64 arrays."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def make_routing(routing, tokens, top_k, num_experts):
    """Expert ids [T, K] int32, the same as bench/routing.cc makes: Gumbel top-k of p_e equal or 1/(e+1), or all 0."""
    if routing == "one":
        return np.zeros((tokens, top_k), np.int32)
    with np.errstate(over="ignore"):
        step = np.uint64(0x9E3779B97F4A7C15)
        stream = _mix(np.full(1, SEED, np.uint64))
        bits = _mix(stream + np.arange(tokens * num_experts, dtype=np.uint64) * step)
    u = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54
    p = 1.0 / np.arange(1, num_experts + 1) if routing == "zipf" else np.ones(num_experts)
    score = np.log(p) - np.log(-np.log(u)).reshape(tokens, num_experts)
    order = np.argsort(-score, axis=1, kind="stable")[:, : min(top_k, num_experts)]
    return order[:, np.arange(top_k) % order.shape[1]].astype(np.int32, order="C")


@dataclass
class Buffers:
    """One set of tensors. x0, y0 and grad0 carry a row of zeros at the end, for torch; x, y and grad are without it.

    x0 [T+1, H], y0 [E*C+1, H], grad0 [T+1, H]; outputs y_out [E, C, H], out [T, H], dw_out [T, K]
    """

    x0: torch.Tensor
    y0: torch.Tensor
    grad0: torch.Tensor
    y_out: torch.Tensor
    out: torch.Tensor
    dw_out: torch.Tensor

    def __post_init__(self):
        # Views are made once: no way pays for them in its time.
        self.x = self.x0[:-1]
        self.y_rows = self.y0[:-1]
        self.y = self.y_rows.view(self.y_out.shape)
        self.grad = self.grad0[:-1]
        self.y_out_rows = self.y_out.flatten(0, 1)

    def bytes(self):
        tensors = (self.x0, self.y0, self.grad0, self.y_out, self.out, self.dw_out)
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@dataclass
class Problem:
    """Ids, weights [T, K] f32, the plan, and the maps that the torch ways use; these are made outside of every timing.

    source_of_row [E*C] token of a row, T where empty; used [E*C]; weight_of_row [E*C] f32
    row_of_choice [T, K] row of an assignment, E*C where dropped; row_weights [T, K] weights in the dtype of the rows
    """

    shape: Shape
    ids: torch.Tensor
    weights: torch.Tensor
    plan: binmoe_torch.Plan
    source_of_row: torch.Tensor
    used: torch.Tensor
    weight_of_row: torch.Tensor
    row_of_choice: torch.Tensor
    row_weights: torch.Tensor
    dtype: torch.dtype

    def __post_init__(self):
        self.capacity = self.plan.expert_capacity

    def new_buffers(self, seed):
        """Random rows, other ones for each seed; outputs are NaN, and their pages touched."""
        model, device = self.shape.model, self.ids.device
        generator = torch.Generator(device=device).manual_seed(seed)

        def rows(count):
            values = torch.empty(count, model.hidden_size, dtype=self.dtype, device=device)
            return values.normal_(generator=generator)

        expert_shape = (model.num_experts, self.capacity, model.hidden_size)
        x0, y0 = rows(self.shape.tokens + 1), rows(model.num_experts * self.capacity + 1)
        grad0 = rows(self.shape.tokens + 1)
        x0[-1], y0[-1], grad0[-1] = 0, 0, 0
        y_out = torch.full(expert_shape, torch.nan, dtype=self.dtype, device=device)
        out = torch.full_like(x0[:-1], torch.nan)
        return Buffers(x0, y0, grad0, y_out, out, torch.full_like(self.weights, torch.nan))

    def least_bytes(self, operation):
        """What the operation must move: docs/design.md, section 6."""
        tokens, top_k = self.ids.shape
        kept_of_token = (self.plan.row_of_assignment >= 0).sum(dim=1)
        kept, used_tokens = int(kept_of_token.sum()), int((kept_of_token > 0).sum())
        row = self.shape.model.hidden_size * self.dtype.itemsize
        assignments = tokens * top_k
        expert_rows = self.used.numel()
        map_bytes, weight_bytes = 4 * assignments, 4 * assignments
        return {
            "plan": 4 * assignments + 8 * int(self.plan.bins[-1]) + 4 * assignments,
            "gather": (used_tokens + expert_rows) * row + 4 * kept,
            "scatter": (kept + tokens) * row + map_bytes + weight_bytes,
            "wgrad": (used_tokens + kept) * row + map_bytes + weight_bytes,
            "backward": (used_tokens + kept + expert_rows) * row + map_bytes + 2 * weight_bytes,
        }[operation]


def make_problem(shape, dtype, device):
    model = shape.model
    ids = torch.from_numpy(make_routing(shape.routing, shape.tokens, model.top_k, model.num_experts)).to(device)
    capacity = binmoe_torch.expert_capacity(shape.tokens, model.top_k, model.num_experts, shape.capacity_factor)
    plan = binmoe_torch.plan(ids, model.num_experts, capacity)
    weights = torch.rand(ids.shape, generator=torch.Generator().manual_seed(SEED)).to(device)

    rows = plan.row_of_assignment.long().flatten()
    kept = torch.nonzero(rows >= 0).flatten()
    num_rows = model.num_experts * capacity
    source = torch.full((num_rows,), shape.tokens, device=device)
    source[rows[kept]] = kept // model.top_k
    weight_of_row = torch.zeros(num_rows, device=device)
    weight_of_row[rows[kept]] = weights.flatten()[kept]
    row_of_choice = torch.where(rows >= 0, rows, num_rows).view(ids.shape)
    used = source < shape.tokens
    return Problem(shape, ids, weights, plan, source, used, weight_of_row, row_of_choice, weights.to(dtype), dtype)
