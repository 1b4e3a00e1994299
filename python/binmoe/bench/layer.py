"""A training step (forward and backward) of the MoE layer: with binmoe, with torch indexing, each also compiled."""

from typing import NamedTuple

import torch

import binmoe.torch as binmoe_torch
from binmoe import nn
from binmoe.bench.ways import OURS, sort_plan


class Layer(NamedTuple):
    name: str
    tokens: int
    hidden_size: int
    num_experts: int
    top_k: int
    ffn_size: int
    gated: bool


# On the CPU the matrix products decide, so the layers are small; on a GPU they are those of the models.
CPU_LAYERS = (
    Layer("mixtral-like", 1024, 1024, 8, 2, 2048, True),
    Layer("switch-like", 2048, 768, 64, 1, 1024, False),
)
CUDA_LAYERS = (
    Layer("mixtral-8x7b", 16384, 4096, 8, 2, 14336, True),
    Layer("qwen3-30b", 16384, 2048, 128, 8, 768, True),
    Layer("llama4-maverick", 16384, 5120, 128, 1, 2048, True),
)


class TorchIndexing(torch.nn.Module):
    """The same layer in plain torch: stable sort, index_copy into zeros, index_select, sum over the choices.

    Of the plain forms this is the one whose backward needs no accumulating index: rows of the bins are unique.
    """

    def __init__(self, layer):
        super().__init__()
        self.router = layer.router
        self.experts = layer.experts
        self.capacity_factor = layer.capacity_factor

    def forward(self, x):
        tokens, hidden_size = x.shape
        num_experts, top_k = self.router.num_experts, self.router.top_k
        routing = self.router(x)
        capacity = binmoe_torch.expert_capacity(tokens, top_k, num_experts, self.capacity_factor)
        _, _, rows = sort_plan(routing.expert_ids, num_experts, capacity)
        num_rows = num_experts * capacity
        # Dropped assignments share one more row.
        expanded = x.unsqueeze(1).expand(-1, top_k, -1).reshape(-1, hidden_size)
        y = x.new_zeros(num_rows + 1, hidden_size).index_copy(0, rows.flatten(), expanded)
        z = self.experts(y[:-1].view(num_experts, capacity, hidden_size)).reshape(num_rows, -1)
        kept = rows < num_rows
        picked = z.index_select(0, rows.clamp(max=num_rows - 1).flatten()).view(tokens, top_k, -1)
        weights = torch.where(kept, routing.weights, 0.0)
        return (picked.float() * weights.unsqueeze(-1)).sum(dim=1).to(z.dtype)


class OutOnly(torch.nn.Module):
    """The layer's tensor alone, so that all ways return the same."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x).out


def make_ways(layer, dtype, device, compiled=True):
    """({name: module}, x [T, H]): the modules share their parameters."""
    torch.manual_seed(0)
    # The router stays in float32, as models keep it.
    normalize = "after_top_k" if layer.top_k > 1 else "before_top_k"  # one weight alone would always be 1
    router = nn.Router(layer.hidden_size, layer.num_experts, layer.top_k, normalize=normalize, device=device)
    experts = nn.ExpertMLP(
        layer.num_experts,
        layer.hidden_size,
        layer.ffn_size,
        activation="silu" if layer.gated else "relu",
        gated=layer.gated,
        device=device,
        dtype=dtype,
    )
    ours = nn.MoE(router, experts, 1.25)
    ways = {OURS: OutOnly(ours), "torch indexing": TorchIndexing(ours)}
    if compiled:
        torch.compiler.reset()
        for name in list(ways):
            ways[name + ", compiled"] = torch.compile(ways[name], dynamic=False)
    x = torch.randn(layer.tokens, layer.hidden_size, device=device).to(dtype).requires_grad_()
    return ways, x


def step(module, x, grad, parameters):
    """Forward and backward; the gradients are made anew."""
    x.grad = None
    for parameter in parameters:
        parameter.grad = None
    out = module(x)
    out.backward(grad)
    return out


def results_of(module, x, grad, parameters):
    """Output and gradients."""
    out = step(module, x, grad, parameters)
    return [out.detach(), x.grad, *(parameter.grad for parameter in parameters)]


def verify(way, results, expected):
    """ValueError when a way's output or gradients are too far from the eager torch ones."""
    for index, (ours, theirs) in enumerate(zip(results, expected, strict=True)):
        size = theirs.float().square().mean().sqrt()
        error = (ours.float() - theirs.float()).square().mean().sqrt()
        # Other orders of roundings: a few units of the first dtype, as a share of the tensor's root mean square.
        if not error <= 8 * torch.finfo(expected[0].dtype).eps * size:
            raise ValueError(f"layer by {way}: tensor {index} is off by {error:.3g}, its size is {size:.3g}")


def measure(layer, dtype, device, clock, compiled=True):
    """({name: Time} of the training step, {way of torch that failed: why}); each way is verified first."""
    ways, x = make_ways(layer, dtype, device, compiled)
    parameters = list(ways[OURS].parameters())
    grad = torch.randn(layer.tokens, layer.hidden_size, device=device).to(dtype)
    expected = results_of(ways["torch indexing"], x, grad, parameters)
    clock.sets_for(2**40)  # parameters and activations are larger than any cache
    prepared, failed = {}, {}
    for name, module in ways.items():
        try:
            verify(name, results_of(module, x, grad, parameters), expected)
            prepared[name] = clock.prepare(lambda _, module=module: step(module, x, grad, parameters))
        except Exception as error:  # as in __main__.times_of
            if name == OURS:
                raise
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return clock.measure(prepared), failed
