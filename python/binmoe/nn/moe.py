"""The layer: router -> plan -> gather -> experts -> scatter."""

from typing import NamedTuple

import torch
from torch import Tensor

import binmoe.torch as _binmoe
from binmoe.nn.losses import load_balancing_loss, router_z_loss
from binmoe.nn.router import Routing

POLICIES = ("token_order", "choice_order", "by_weight")


class MoEOutput(NamedTuple):
    """What MoE returns. Its parts may be passed on; the losses are computed when asked for."""

    out: Tensor  # as the layer's input; a token whose assignments were all dropped has 0
    routing: Routing
    plan: _binmoe.Plan

    def load_balancing_loss(self) -> Tensor:
        """binmoe.nn.load_balancing_loss of this batch."""
        counts = self.plan.tokens_per_expert
        return load_balancing_loss(self.routing.probabilities, counts, self.routing.expert_ids.shape[1])

    def z_loss(self) -> Tensor:
        """binmoe.nn.router_z_loss of this batch."""
        return router_z_loss(self.routing.logits)


class MoE(torch.nn.Module):
    """Send each token to its experts and add up what they return, weighted by the router.

    router           a Router, or a module with num_experts and top_k that returns a Routing for x [T, H]
    experts          a module from [E, C, H] to [E, C, H'], such as ExpertMLP
    capacity_factor  F: C = ceil(F*T*K/E), from the T of each call; it may be changed between calls. 0 drops all; E/K
                     drops nothing, since the experts of a token differ
    policy           who keeps a row when an expert overflows: token_order, choice_order, by_weight (docs/design.md)
    multiple         round C up to a multiple of this
    Add the input outside: a dropped token then keeps its value.
    """

    def __init__(
        self,
        router: torch.nn.Module,
        experts: torch.nn.Module,
        capacity_factor: float = 1.25,
        policy: str = "token_order",
        *,
        multiple: int = 1,
    ) -> None:
        super().__init__()
        if policy not in POLICIES:
            raise ValueError(f"[MoE] policy is {policy!r}, but one of {', '.join(POLICIES)} is wanted")
        self.router = router
        self.experts = experts
        self.capacity_factor = capacity_factor
        self.policy = policy
        self.multiple = multiple

    def expert_capacity(self, tokens: int) -> int:
        """C for that many tokens."""
        router = self.router
        return _binmoe.expert_capacity(tokens, router.top_k, router.num_experts, self.capacity_factor, self.multiple)

    def forward(self, x: Tensor) -> MoEOutput:
        """x [..., H] -> MoEOutput, with out [..., H']. T is the product of the leading sizes."""
        tokens = x.reshape(-1, x.shape[-1])
        routing = self.router(tokens)
        priority = routing.weights.detach() if self.policy == "by_weight" else None
        capacity = self.expert_capacity(tokens.shape[0])
        plan = _binmoe.plan(routing.expert_ids, self.router.num_experts, capacity, self.policy, weights=priority)
        rows = self.experts(_binmoe.gather(tokens, plan))
        out = _binmoe.scatter(rows, plan, routing.weights)
        return MoEOutput(out.reshape(*x.shape[:-1], out.shape[-1]), routing, plan)

    def extra_repr(self) -> str:
        return f"capacity_factor={self.capacity_factor}, policy={self.policy}, multiple={self.multiple}"
