"""binmoe on Ascend by Triton: the plan and the movers on tensors, with gradients. Never run on a device so far.

    plan, plan_from_bins, Plan   torch operations                     routing.py
    gather, scatter              with gradients                       autograd.py
    wgrad, scatter_backward, gather_backward, Options                 launch.py
    check_plan                                                        plan_check.py
    tile_plan                    of the C++ library, by ctypes        library.py

Importing this loads nothing; a name loads what it needs: torch, libbinmoe.so, triton-ascend.
"""

import importlib

_MODULE_OF = {
    "plan": "routing",
    "plan_from_bins": "routing",
    "Plan": "routing",
    "gather": "autograd",
    "scatter": "autograd",
    "wgrad": "launch",
    "scatter_backward": "launch",
    "gather_backward": "launch",
    "Options": "launch",
    "check_plan": "plan_check",
    "tile_plan": "library",
}


def __getattr__(name):
    if name not in _MODULE_OF:
        raise AttributeError(f"binmoe.ascend has no {name}")
    return getattr(importlib.import_module(f"binmoe.ascend.{_MODULE_OF[name]}"), name)


def __dir__():
    return sorted(_MODULE_OF)
