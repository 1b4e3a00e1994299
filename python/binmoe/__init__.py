"""binmoe: tokens to the experts of a capacity-limited Mixture-of-Experts layer, and back.

Here the operations work on numpy arrays; binmoe.torch has them for tensors, with gradients. Words and semantics:
docs/design.md. Nothing is imported before it is used, so `import binmoe` alone needs neither numpy nor the native
module.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from binmoe.array_routing import expert_capacity, from_routing_map, local_ids, renormalize
    from binmoe.arrays import (
        Plan,
        gather,
        gather_backward,
        plan,
        scatter,
        scatter_backward,
        wgrad,
    )
    from binmoe.maps import Load, Sizes

__version__ = "0.1.0"

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
_ROUTING = ("expert_capacity", "from_routing_map", "local_ids", "renormalize")
_SUBMODULES = ("array_routing", "arrays", "ascend", "bench", "maps", "megablocks", "nn", "torch")


def __getattr__(name):
    if name in _SUBMODULES:
        return import_module(f"binmoe.{name}")
    if name in __all__:
        module = "binmoe.array_routing" if name in _ROUTING else "binmoe.arrays"
        value = getattr(import_module(module), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'binmoe' has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__, *_SUBMODULES])
