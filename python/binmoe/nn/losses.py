"""Losses of a router, as published. Both are scalars in float32, 0 for a batch without tokens, not yet scaled."""

import torch
from torch import Tensor


def load_balancing_loss(probabilities: Tensor, tokens_per_expert: Tensor, top_k: int) -> Tensor:
    """Penalise a router whose assignments and probabilities favour the same experts.

      E * sum over e of f_e * P_e;  f_e = tokens_per_expert[e] / (T*K),  P_e = mean over tokens of probabilities[:, e]
    probabilities      [T, E] each row sums to 1; the gradient goes here
    tokens_per_expert  [E] assignments before the capacity cut (a plan's), no gradient
    Returns            1 when every expert gets the same share; scale it by about 1e-2.
    Source: Fedus, Zoph, Shazeer: Switch Transformers (arXiv 2101.03961), equations 4 to 6, where K = 1. For K > 1 f_e
    is a share of the T*K assignments, as in DeepSeek-V3 (arXiv 2412.19437, equations 17 to 20).
    """
    tokens, num_experts = probabilities.shape
    # Sums and one division, not means: without tokens they are 0, and still connected to autograd.
    products = probabilities.float().sum(dim=0) * tokens_per_expert.float()
    return products.sum() * (num_experts / max(tokens * tokens * top_k, 1))


def router_z_loss(logits: Tensor) -> Tensor:
    """Penalise large router logits, whose rounding errors grow with them.

      mean over tokens of (log sum over e of exp(logits[t, e]))^2
    logits   [T, E]
    Returns  scale it by about 1e-3.
    Source: Zoph et al.: ST-MoE (arXiv 2202.08906), equation 5.
    """
    squares = torch.logsumexp(logits.float(), dim=-1).square()
    return squares.sum() / max(logits.shape[0], 1)
