"""The short way of the ordinary call, for decoding: no gradient, contiguous arguments, nothing that looks on.

torch's dispatcher adds 5 us to an operator written in Python, and the checks of native.py 3 more. These functions
return None for whatever is not ordinary; then the caller takes the operator, which says what is wrong if something is.
"""

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version

from binmoe import _native
from binmoe.maps import CUDA, HOST
from binmoe.torch.native import FLOATS

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_HOST_PLACE = (HOST, 0)
_ABSENT = (0, 0, 0)

# torch says these through torch._C alone. Where a version lacks one, every call takes the operator.
_NAMES = (
    "_len_torch_dispatch_stack",
    "_is_torch_function_mode_enabled",
    "_are_functorch_transforms_active",
    "_get_tracing_state",
)
_found = [getattr(torch._C, name, None) for name in _NAMES]
_known = None not in _found and hasattr(forward_ad, "_current_level")
_dispatch_modes, _function_modes, _transforms, _tracing = _found
_is_compiling, _is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled


def unobserved():
    """No compiler, mode, transform, tracer or forward-mode differentiation would see an operator."""
    return (
        not _is_compiling()
        and _known
        and not _dispatch_modes()
        and not _function_modes()
        and not _transforms()
        and _tracing() is None
        and forward_ad._current_level < 0
    )


def has_tangent(tensor):
    """Is it a dual number of forward-mode differentiation?"""
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


def _place(index):
    """Where a call on the device of that index runs; None when that is not the current device."""
    if index < 0:
        return _HOST_PLACE
    if index != torch.cuda.current_device():
        return None
    return (CUDA, torch._C._cuda_getCurrentRawStream(index))


def _is_ordinary(tensor, index, grad_enabled):
    return (
        type(tensor) in _PLAIN
        and not (grad_enabled and tensor.requires_grad)
        and tensor.get_device() == index
        and tensor.is_contiguous()
        and not tensor.is_neg()
    )


def skips_dispatch(tensor, other=None):
    """May a kernel that checks its arguments itself, and whose results take no gradient, be called as it is?"""
    if not unobserved():  # first: a compiler cannot trace is_neg()
        return False
    known = type(tensor) in _PLAIN and (tensor.is_cpu or tensor.is_cuda) and not tensor.is_neg()
    return known and (other is None or (type(other) in _PLAIN and not other.is_neg()))


def _weights(weights, tokens, top_k):
    """The native argument of ordinary weights, or None."""
    code = FLOATS.get(weights.dtype)
    shape = weights.shape
    if code is None or (shape != (tokens, top_k) and shape != (tokens * top_k,)):
        return None
    return (weights.data_ptr(), tokens * top_k, code)


def gather(x, plan, weights, out):
    return _move(_native.gather, x, plan, weights, out, 2)


def scatter(y, plan, weights, out):
    return _move(_native.scatter, y, plan, weights, out, 3)


def _move(function, source, plan, weights, out, rank):
    """`source` is [T, H] (rank 2, gather) or [E, C, H] (rank 3, scatter); the result is the other one."""
    if not unobserved():
        return None
    maps, tokens, top_k = plan.maps, plan.tokens, plan.top_k
    num_experts, capacity = plan.num_experts, plan.expert_capacity
    if plan.known_maps is not maps:
        if type(maps) is not torch.Tensor or maps.dtype is not torch.int32 or not maps.is_contiguous():
            return None
        if maps.numel() != 3 * (tokens * top_k + num_experts):
            return None
        plan.known_maps = maps
    index, grad_enabled = maps.get_device(), _is_grad_enabled()
    place = _place(index)
    if place is None or (index < 0 and not maps.is_cpu) or not _is_ordinary(source, index, grad_enabled):
        return None
    shape, code = source.shape, FLOATS.get(source.dtype)
    if len(shape) != rank or code is None:
        return None
    cols = shape[-1]
    expert_rows = num_experts * capacity
    if rank == 2:
        count, out_count, out_shape = shape[0], expert_rows, (num_experts, capacity, cols)
    elif shape[0] == num_experts and shape[1] == capacity:
        count, out_count, out_shape = expert_rows, tokens, (tokens, cols)
    else:
        return None
    w = _ABSENT
    if weights is not None:
        w = _weights(weights, tokens, top_k) if _is_ordinary(weights, index, grad_enabled) else None
        if w is None:
            return None
    result = out
    if out is None:
        result = source.new_empty(out_shape)
    elif not _is_ordinary(out, index, grad_enabled) or out.shape != out_shape or out.dtype is not source.dtype:
        return None
    rows = (source.data_ptr(), count, cols, cols, code, 0)
    plan_argument = (maps.data_ptr(), 0, tokens, top_k, num_experts, capacity)
    function(plan_argument, rows, w, (result.data_ptr(), out_count, cols, cols, code, 0), place)
    if out is not None:
        increment_version(out)
    return result
