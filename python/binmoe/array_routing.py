"""Between routers and plans, on numpy arrays; binmoe.torch.routing is the same for tensors."""

from operator import index

import numpy as np
from numpy.typing import ArrayLike

from binmoe import _native
from binmoe.arrays import Plan, require_plan, weights_argument


def expert_capacity(tokens: int, top_k: int, num_experts: int, factor: float, multiple: int = 1) -> int:
    """Capacity from a factor: ceil(factor*T*K/E), then up to a multiple.

    The factor is taken as its shortest decimal, so 1.1 x 10 is 11; T*K counts masked assignments too; 0 gives 0.
    Errors: factor negative or not finite; multiple < 1; a capacity with E*C >= 2^31.
    """
    return _native.expert_capacity(float(factor), index(tokens), index(top_k), index(num_experts), index(multiple))


def local_ids(ids: ArrayLike, first: int, count: int) -> np.ndarray:
    """The ids as one rank sees them that holds experts [first, first + count): id - first; those of others are -1.

    ids  [T, K] any integer dtype; unsigned ones come back as int16 (uint8) or int32 (uint16)
    """
    ids = np.asarray(ids)
    dtype = {np.dtype(np.uint8): np.int16, np.dtype(np.uint16): np.int32}.get(ids.dtype, ids.dtype)
    wide = ids.astype(np.int64)
    local = wide - first
    return np.where((wide >= first) & (local < count), local, -1).astype(dtype)


def from_routing_map(routing_map: ArrayLike, probs: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Megatron's and Transformer Engine's form of a routing as ids and weights: the map decides, not the probabilities.

    routing_map  [T, E] bool (or numbers: not zero = routed)
    probs        [T, E] any float dtype; read where the map is set
    Returns ids [T, K] int32 and weights [T, K] as probs: K = the most routes of a token, at least 1; expert ids rise
    along a row, then -1 with weight 0.
    """
    routed, probs = np.asarray(routing_map) != 0, np.asarray(probs)
    if routed.ndim != 2 or routed.shape != probs.shape:
        raise ValueError(
            f"[from_routing_map] routing_map has the shape {list(routed.shape)} and probs {list(probs.shape)}, "
            "but both must be [tokens, num_experts]"
        )
    top_k = max(int(routed.sum(axis=1).max(initial=0)), 1)
    token, expert = routed.nonzero()
    place = routed.cumsum(axis=1)[token, expert] - 1
    ids = np.full((len(routed), top_k), -1, np.int32)
    weights = np.zeros(ids.shape, probs.dtype)
    ids[token, place] = expert
    weights[token, place] = probs[token, expert]
    return ids, weights


def renormalize(weights: ArrayLike, plan: Plan) -> np.ndarray:
    """Share each token's weight among the experts that kept it: w / (sum of the token's kept weights).

    weights  [T, K] or [T*K] float32, float64, bfloat16 or float16; what is dropped or masked is not read
    Returns the shape and dtype of weights: 0 for dropped and masked, all 0 when the sum is 0. Sum (in order of k) and
    quotient are taken in float32, those of float64 weights in float64.
    """
    require_plan("renormalize", plan)
    _, weights = weights_argument("renormalize", "weights", np.asarray(weights), plan.sizes)
    step = np.float64 if weights.dtype == np.float64 else np.float32
    table = weights.reshape(plan.sizes.tokens, plan.sizes.top_k).astype(step)
    table = np.where(plan.row_of_assignment >= 0, table, step(0))
    total = np.zeros(len(table), step)
    for k in range(plan.sizes.top_k):
        total = total + table[:, k]
    shares = np.divide(table, total[:, None], out=np.zeros_like(table), where=(total != 0)[:, None])
    return shares.astype(weights.dtype).reshape(weights.shape)
