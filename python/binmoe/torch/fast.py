"""The short way of the ordinary call: no gradient, contiguous arguments, nothing that looks on.

torch's dispatcher adds 5 us to an operator written in Python, and the checks of native.py 3 more. So plan, gather and
scatter of ordinary tensors are one call of the native module; where it returns None the caller takes the operator.
"""

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version

from binmoe import _native
from binmoe.maps import POLICIES

_PLAIN = (torch.Tensor, torch.nn.Parameter)

# torch says these through torch._C alone. Where a version lacks one, every call takes the operator.
_NAMES = (
    "_len_torch_dispatch_stack",
    "_is_torch_function_mode_enabled",
    "_are_functorch_transforms_active",
    "_get_tracing_state",
)
_observers = tuple(getattr(torch._C, name, None) for name in _NAMES)
# Where torch.compile's own code allocates.
_guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
_allocators = {
    "empty_cpu": getattr(_guards, "_empty_strided_cpu", None),
    "empty_cuda": getattr(_guards, "_empty_strided_cuda", None),
}
_known = None not in (*_observers, *_allocators.values()) and hasattr(forward_ad, "_current_level")
_is_compiling, _is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
_movers = None


def take_plans(plan_type):
    """Names the class of plans; before that no call is ordinary."""
    global _movers
    functions = _allocators | {
        "observers": _observers,
        "forward_ad": forward_ad,
        "is_grad_enabled": _is_grad_enabled,
        "current_device": torch.cuda.current_device,
        "increment_version": increment_version,
        "int32": torch.int32,
        "uint8": torch.uint8,
    }
    _movers = _native.TorchMovers(plan_type, POLICIES, _PLAIN, functions)


def unobserved():
    """No compiler, mode, transform, tracer or forward-mode differentiation would see an operator."""
    return not _is_compiling() and _known and _movers.unobserved()


def plan(expert_ids, num_experts, expert_capacity, policy, weights, out):
    """The plan, or None."""
    if not _known or _is_compiling():
        return None
    return _movers.plan(expert_ids, num_experts, expert_capacity, policy, weights, out)


def gather(x, plan, weights, out):
    """The result, or None."""
    return _movers.gather(x, plan, weights, out) if _known and not _is_compiling() else None


def scatter(y, plan, weights, out):
    """The result, or None."""
    return _movers.scatter(y, plan, weights, out) if _known and not _is_compiling() else None


def has_tangent(tensor):
    """Is it a dual number of forward-mode differentiation?"""
    return getattr(forward_ad, "_current_level", 0) >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


def skips_dispatch(*arguments):
    """May a kernel that checks its arguments itself be called as it is, or as an autograd.Function?"""
    if not unobserved():  # first: a compiler cannot trace is_neg()
        return False
    return all(_is_plain(value) for value in arguments if isinstance(value, torch.Tensor))


def _is_plain(tensor):
    """Its address says all about it: no subclass, no lazy negation or zero, memory of the host or a GPU."""
    return (
        type(tensor) in _PLAIN
        and (tensor.is_cpu or tensor.is_cuda)
        and tensor.layout is torch.strided
        and not (tensor.is_quantized or tensor.is_nested)
        and not (tensor.is_neg() or tensor.is_conj() or tensor._is_zerotensor())
    )


def needs_gradient(*arguments):
    return _is_grad_enabled() and any(isinstance(value, torch.Tensor) and value.requires_grad for value in arguments)
