"""binmoe for PyTorch: plan, gather and scatter with gradients, under torch.compile, where the tensors are.

    plan = binmoe.torch.plan(expert_ids, num_experts, expert_capacity)
    y = binmoe.torch.gather(x, plan)                    # [E, C, H]
    out = binmoe.torch.scatter(experts(y), plan, weights)  # [T, H]

docs/python.md tells more; words and semantics: docs/design.md.
"""

from binmoe.maps import Load, Sizes
from binmoe.torch.movers import gather, gather_backward, scatter, scatter_backward, wgrad
from binmoe.torch.plans import Plan, plan
from binmoe.torch.routing import expert_capacity, from_routing_map, local_ids, renormalize

__all__ = [
    "Load",
    "Plan",
    "Sizes",
    "expert_capacity",
    "from_routing_map",
    "gather",
    "gather_backward",
    "local_ids",
    "plan",
    "renormalize",
    "scatter",
    "scatter_backward",
    "wgrad",
]
