"""The router: which experts a token goes to, and with what weights."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

SCORES = ("softmax", "sigmoid")
NORMALIZE = ("before_top_k", "after_top_k")


class Routing(NamedTuple):
    """What a router says about T tokens. MoE takes any module that returns one and has num_experts and top_k."""

    expert_ids: Tensor  # [T, K] int32, the best expert first
    weights: Tensor  # [T, K] float32
    logits: Tensor  # [T, E] float32
    probabilities: Tensor  # [T, E] float32, each row sums to 1; for load_balancing_loss


def top_k_of(logits: Tensor, top_k: int) -> Tensor:
    """Expert ids [T, K] int64 of the largest logits, the largest first; of equal ones the lower id comes first.

    torch.topk leaves ties open, so the ids are made part of the key: the float's bits, mapped to integers of the same
    order, above the reversed id. NaN is larger or smaller than every number, by its sign.
    """
    bits = (logits.float() + 0.0).view(torch.int32)  # + 0.0 makes one zero of two
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    reversed_ids = torch.arange(logits.shape[-1] - 1, -1, -1, device=logits.device)
    return torch.topk((ordered.to(torch.int64) << 32) | reversed_ids, top_k, dim=-1).indices


class Router(torch.nn.Module):
    """Choose top_k experts for each token by a linear map, without bias, computed in float32 also under autocast.

    score      normalize       weights of the chosen                              as in
    softmax    before_top_k    softmax over all experts                           Switch; needed for K = 1
    softmax    after_top_k     softmax over the chosen: they sum to 1             Mixtral
    sigmoid    before_top_k    sigmoid of each logit                              Llama 4
    sigmoid    after_top_k     sigmoid, divided by the sum over the chosen        DeepSeek-V3, without its bias

    The choice is by the logits, largest first; equal logits: the lower expert id. Where float32 rounds the scores of
    different logits to the same number, the logits still decide.
    Parameter: weight [num_experts, hidden_size], initialised as torch.nn.Linear.
    """

    def __init__(
        self,
        hidden_size: int,
        num_experts: int,
        top_k: int,
        *,
        score: str = "softmax",
        normalize: str = "before_top_k",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not 1 <= top_k <= num_experts:
            raise ValueError(f"[Router] top_k is {top_k}, but 1 to num_experts = {num_experts} is wanted")
        if score not in SCORES:
            raise ValueError(f"[Router] score is {score!r}, but one of {', '.join(SCORES)} is wanted")
        if normalize not in NORMALIZE:
            raise ValueError(f"[Router] normalize is {normalize!r}, but one of {', '.join(NORMALIZE)} is wanted")
        self.hidden_size = hidden_size
        self.num_experts = num_experts
        self.top_k = top_k
        self.score = score
        self.normalize = normalize
        self.weight = torch.nn.Parameter(torch.empty(num_experts, hidden_size, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = self.hidden_size**-0.5
        torch.nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, x: Tensor) -> Routing:
        """x [T, hidden_size] -> Routing."""
        # Switch Transformers, section 2.4: the router in float32, whatever the model is in.
        with torch.autocast(x.device.type, enabled=False):
            logits = functional.linear(x.float(), self.weight.float())
            expert_ids = top_k_of(logits.detach(), self.top_k)
            weights, probabilities = self._weights(logits, expert_ids)
        return Routing(expert_ids.to(torch.int32), weights, logits, probabilities)

    def _weights(self, logits, expert_ids):
        after = self.normalize == "after_top_k"
        if self.score == "softmax":
            probabilities = logits.softmax(dim=-1)
            chosen = logits.gather(-1, expert_ids).softmax(dim=-1) if after else probabilities.gather(-1, expert_ids)
            return chosen, probabilities
        # DeepSeek-V3's small term: scores that all underflow give weights of 0, not NaN.
        tiny = 1e-20
        scores = logits.sigmoid()
        chosen = scores.gather(-1, expert_ids)
        if after:
            chosen = chosen / (chosen.sum(dim=-1, keepdim=True) + tiny)
        return chosen, scores / (scores.sum(dim=-1, keepdim=True) + tiny)

    def extra_repr(self) -> str:
        return (
            f"hidden_size={self.hidden_size}, num_experts={self.num_experts}, top_k={self.top_k}, "
            f"score={self.score}, normalize={self.normalize}"
        )
