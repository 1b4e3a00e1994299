"""Between routers and plans: capacities, routing maps, one rank's experts, weights of what was kept."""

import math
from fractions import Fraction
from operator import index

import torch
from torch import Tensor

from binmoe import _native
from binmoe.torch import native
from binmoe.torch.plans import Plan


@torch.compiler.assume_constant_result
def _shortest_decimal(numerator, denominator):
    """The shortest decimal of the float numerator / denominator, as (numerator, denominator)."""
    fraction = Fraction(repr(numerator / denominator))
    return fraction.numerator, fraction.denominator


def expert_capacity(tokens: int, top_k: int, num_experts: int, factor: float, multiple: int = 1) -> int:
    """Capacity from a factor: ceil(factor*T*K/E), then up to a multiple.

    The factor is taken as its shortest decimal, so 1.1 x 10 is 11; T*K counts masked assignments too; 0 gives 0.
    Under torch.compile the tokens may be symbolic.
    Errors: factor negative or not finite; multiple < 1; a capacity with E*C >= 2^31.
    """
    if not torch.compiler.is_compiling() and not isinstance(tokens, torch.SymInt):
        return _native.expert_capacity(float(factor), index(tokens), index(top_k), index(num_experts), index(multiple))
    if not 0 <= factor < math.inf:
        raise ValueError(f"[expert_capacity] factor is {factor}, but must be finite and not negative")
    if multiple < 1:
        raise ValueError(f"[expert_capacity] multiple is {multiple}, but must be at least 1")
    # as_integer_ratio makes a float that torch.compile holds symbolic a constant of the graph.
    numerator, denominator = _shortest_decimal(*float(factor).as_integer_ratio())
    exact = -((-numerator * tokens * top_k) // (denominator * num_experts))
    return -(-exact // multiple) * multiple


def local_ids(ids: Tensor, first: int, count: int) -> Tensor:
    """The ids as one rank sees them that holds experts [first, first + count): id - first; those of others are -1.

    ids  [T, K] any integer dtype; unsigned ones come back as int16 (uint8) or int32 (uint16)
    """
    if ids.dtype in _SIGNED:
        ids = ids.to(_SIGNED[ids.dtype])
    wide = ids.long()  # first + count may be one more than the dtype of ids can say
    local = wide - first
    return torch.where((wide >= first) & (local < count), local, -1).to(ids.dtype)


_SIGNED = {torch.uint8: torch.int16, torch.uint16: torch.int32}


def from_routing_map(routing_map: Tensor, probs: Tensor) -> tuple[Tensor, Tensor]:
    """Megatron's and Transformer Engine's form of a routing as ids and weights: the map decides, not the probabilities.

    routing_map  [T, E] bool (or numbers: not zero = routed)
    probs        [T, E] any float dtype; read where the map is set
    Returns ids [T, K] int32 and weights [T, K] as probs: K = the most routes of a token, at least 1; expert ids rise
    along a row, then -1 with weight 0. Gradients flow into probs.
    Cost: waits for the device, because K is a shape.
    """
    if routing_map.dim() != 2 or routing_map.shape != probs.shape:
        raise ValueError(
            f"[from_routing_map] routing_map has the shape {list(routing_map.shape)} and probs {list(probs.shape)}, "
            "but both must be [tokens, num_experts]"
        )
    routed = routing_map != 0
    tokens = routed.shape[0]
    top_k = max(int(routed.sum(dim=1).max()) if routed.numel() else 0, 1)
    token, expert = routed.nonzero(as_tuple=True)
    place = routed.cumsum(dim=1)[token, expert] - 1
    ids = torch.full((tokens, top_k), -1, dtype=torch.int32, device=routed.device)
    ids[token, place] = expert.to(torch.int32)
    weights = probs.new_zeros((tokens, top_k)).index_put((token, place), probs[token, expert])
    return ids, weights


def renormalize(weights: Tensor, plan: Plan) -> Tensor:
    """Share each token's weight among the experts that kept it: w / (sum of the token's kept weights).

    weights  [T, K] or [T*K] float32, bfloat16, float16 or float64; what is dropped or masked is not read
    Returns the shape and dtype of weights: 0 for dropped and masked, all 0 when the sum is 0. Sum (in order of k) and
    quotient are taken in float32, those of float64 weights in float64. Differentiable.
    """
    native.require_float("renormalize", "weights", weights)
    tokens, top_k = plan.tokens, plan.top_k
    if weights.shape not in ((tokens, top_k), (tokens * top_k,)):
        raise ValueError(
            f"[renormalize] weights has the shape {list(weights.shape)}, but must have [{tokens}, {top_k}] "
            f"or [{tokens * top_k}]"
        )
    kept = plan.row_of_assignment >= 0
    table = weights.reshape(tokens, top_k)
    step = torch.float64 if weights.dtype == torch.float64 else torch.float32
    table = torch.where(kept, table.to(step), 0)
    total = table.new_zeros(tokens)
    for k in range(top_k):
        total = total + table[:, k]
    divisor = torch.where(total == 0, 1, total)[:, None]
    shares = torch.where((total == 0)[:, None], 0, table / divisor)
    return shares.to(weights.dtype).reshape(weights.shape)
