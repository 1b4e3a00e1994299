"""From tensors to the native module: what only tensors know is checked here, the rest by the library.

Each function writes the caller's outputs. Tensors whose rows do not stand at one distance are copied first, outputs
back afterwards. On a GPU a call launches on the current stream of the tensors' device and returns. A plan is its block
of maps and its sizes: tokens, top_k, num_experts, expert_capacity (binmoe/maps.py).
"""

from contextlib import nullcontext

import torch

from binmoe import _native
from binmoe.maps import CUDA, HOST, map_length, policy_code, row_stride

# DType and IdType of include/binmoe/types.h.
FLOATS = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
_BYTES = 4
IDS = {
    torch.int8: 0,
    torch.uint8: 1,
    torch.int16: 2,
    torch.uint16: 3,
    torch.int32: 4,
    torch.int64: 5,
}
_FLOAT_NAMES = "float32, float64, bfloat16 or float16"
_HOST_PLACE = (HOST, 0)
_ABSENT = (0, 0, 0)


def plan_into(expert_ids, sizes, policy, weights, maps):
    operation = "plan"
    code = policy_code(policy)
    ids_type = IDS.get(expert_ids.dtype)
    if ids_type is None:
        raise TypeError(f"[plan] expert_ids has dtype {expert_ids.dtype}, but must be int8 to int64, uint8 or uint16")
    index = expert_ids.get_device()
    ids = expert_ids.contiguous()
    priority, _held = _weights(operation, "weights", weights, sizes, index)
    out = (_block(operation, "out", maps, sizes, index), *sizes)
    argument = (ids.data_ptr(), ids.numel(), ids_type)
    if index < 0:
        _native.plan(argument, code, priority, out, 0, 0, _HOST_PLACE)
        return
    with _on(index):
        place = _place(index)
        wanted = _native.plan_workspace_bytes(out, code, priority[2], place)
        workspace = torch.empty(wanted, dtype=torch.uint8, device=maps.device)
        _native.plan(argument, code, priority, out, workspace.data_ptr(), wanted, place)


def plan_from_bins_into(indices, bin_ids, bins, sizes, maps):
    operation, index, count = "plan_from_bins", bins.get_device(), indices.numel()
    out = (_block(operation, "out", maps, sizes, index), *sizes)
    entries = _map(operation, "indices", indices, count, index)
    ids = 0 if bin_ids is None else _map(operation, "bin_ids", bin_ids, count, index)
    ends = _map(operation, "bins", bins, sizes[2], index)
    _call(_native.plan_from_bins, index, entries, ids, count, ends, bins.numel(), out)


def check(maps, sizes):
    """Raise ValueError at the first fault of a plan. Waits for the device."""
    index = maps.get_device()
    _call(_native.check, index, (_block("check", "the plan", maps, sizes, index), *sizes))


def gather_into(x, maps, weights, sizes, y):
    require_rank("gather", "x", x, 2)
    require_experts("gather", "out", y, sizes)
    _move("gather", maps, sizes, {"x": x, "weights": weights}, {"out": y})


def scatter_into(y, maps, weights, sizes, out):
    require_experts("scatter", "y", y, sizes)
    require_rank("scatter", "out", out, 2)
    require_float("scatter", "y", y)
    _move("scatter", maps, sizes, {"y": y, "weights": weights}, {"out": out})


def wgrad_into(y, grad, maps, sizes, dw):
    require_experts("wgrad", "y", y, sizes)
    require_rank("wgrad", "grad", grad, 2)
    require_float("wgrad", "y", y)
    _move("wgrad", maps, sizes, {"y": y, "grad": grad}, {"dw": dw})


def scatter_backward_into(y, grad, maps, weights, sizes, dy, dw):
    operation = "scatter_backward"
    require_experts(operation, "y", y, sizes)
    require_float(operation, "y", y)
    require_rank(operation, "grad", grad, 2)
    require_experts(operation, "dy", dy, sizes)
    _move(operation, maps, sizes, {"y": y, "grad": grad, "weights": weights}, {"dy": dy, "dw": dw})


def gather_backward_into(dy, x, maps, weights, sizes, dx, dw):
    operation = "gather_backward"
    require_experts(operation, "dy", dy, sizes)
    require_float(operation, "dy", dy)
    require_rank(operation, "x", x, 2)
    require_rank(operation, "dx", dx, 2)
    _move(operation, maps, sizes, {"dy": dy, "weights": weights, "x": x}, {"dx": dx, "dw": dw})


def _move(operation, maps, sizes, inputs, outputs):
    """Run an operation on tensors by name, in the order of the native function; an input may be None."""
    index = next(iter(inputs.values())).get_device()
    plan = (_block(operation, "the plan", maps, sizes, index), *sizes)
    tensors = inputs | outputs
    taken = {}  # name: (argument, the tensor that it is of)
    for name, tensor in tensors.items():
        convert = _weights if name in ("weights", "dw") else _rows
        taken[name] = convert(operation, name, tensor, sizes, index)
    copies = {name for name, tensor in tensors.items() if tensor is not taken[name][1]}
    if copies:
        _require_apart(operation, tensors | {"the plan": maps}, outputs, copies)
    _call(getattr(_native, operation), index, plan, *(argument for argument, _ in taken.values()))
    for name, out in outputs.items():
        if name in copies:
            out.copy_(taken[name][1])


def _require_apart(operation, tensors, outputs, copies):
    """The library compares what it is given; this, the outputs with tensors of which it is given a copy."""
    for name, out in outputs.items():
        for other_name, other in tensors.items():
            if other_name == name or other is None or not {name, other_name} & copies:
                continue
            (begin, end), (other_begin, other_end) = _extent(out), _extent(other)
            if begin < other_end and other_begin < end:
                raise ValueError(f"[{operation}] {name} overlaps {other_name} in memory; an output needs its own")


def _extent(tensor):
    """Addresses of the first byte and past the last."""
    begin = tensor.data_ptr()
    if tensor.numel() == 0:
        return begin, begin
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * tensor.element_size()


def _on(index):
    """The device of that index as the current one."""
    return nullcontext() if index == torch.cuda.current_device() else torch.cuda.device(index)


def _place(index):
    return (CUDA, torch._C._cuda_getCurrentRawStream(index))  # the public way takes 2 us


def _call(function, index, *arguments):
    """Run on the device of that index, -1 for the host."""
    if index < 0:
        return function(*arguments, _HOST_PLACE)
    with _on(index):
        return function(*arguments, _place(index))


def _device(index):
    return "the host" if index < 0 else f"cuda:{index}"


def _require_device(operation, name, tensor, index):
    if tensor.get_device() != index:
        raise ValueError(
            f"[{operation}] {name} is on {_device(tensor.get_device())}, but another argument is on {_device(index)}"
        )


def new_rows(shape, like):
    """A tensor of that shape, as `like`; large ones on the host in huge pages where the system has them."""
    rows = torch.empty(shape, dtype=like.dtype, device=like.device)
    if rows.is_cpu:
        _native.advise_huge_pages(rows.data_ptr(), rows.nbytes)
    return rows


def require_rank(operation, name, tensor, rank):
    if tensor.dim() != rank:
        raise ValueError(f"[{operation}] {name} has {tensor.dim()} dimensions, but must be [tokens, hidden_size]")


def require_experts(operation, name, tensor, sizes):
    shape = tensor.shape
    if len(shape) != 3 or shape[0] != sizes[2] or shape[1] != sizes[3]:
        raise ValueError(
            f"[{operation}] {name} has the shape {list(shape)}, but must have "
            f"[num_experts, expert_capacity, hidden_size] = [{sizes[2]}, {sizes[3]}, H]"
        )


def require_float(operation, name, tensor):
    if tensor.dtype not in FLOATS:
        raise TypeError(f"[{operation}] {name} has dtype {tensor.dtype}, but must be {_FLOAT_NAMES}")


def _block(operation, name, maps, sizes, index):
    """Address of the block of a plan of these sizes."""
    address = _map(operation, name, maps, map_length(*sizes[:3]), index)
    if address % 8:
        raise ValueError(f"[{operation}] the block of {name} begins at no multiple of 8 bytes")
    return address


def _map(operation, name, tensor, length, index):
    """Address of a contiguous tensor of int32 of that length."""
    _require_device(operation, name, tensor, index)
    if tensor.dtype != torch.int32 or tensor.numel() != length or not tensor.is_contiguous():
        raise ValueError(
            f"[{operation}] {name} is {list(tensor.shape)} of {tensor.dtype}, but must be {length} contiguous int32"
        )
    return tensor.data_ptr()


def _rows(operation, name, tensor, _sizes, index):
    """(argument, the tensor that it is of: a copy where rows do not stand at one distance)."""
    _require_device(operation, name, tensor, index)
    shape = tensor.shape
    if tensor.is_contiguous():
        stride = shape[-1]
    else:
        stride = row_stride(shape, tensor.stride())
        if stride is None:
            tensor, stride = tensor.contiguous(), shape[-1]
    rows = shape[0] if len(shape) == 2 else shape[0] * shape[1]
    code = FLOATS.get(tensor.dtype, _BYTES)
    return (tensor.data_ptr(), rows, shape[-1], stride, code, tensor.element_size()), tensor


def _weights(operation, name, tensor, sizes, index):
    """(argument, the tensor that it is of: a copy where it is not contiguous)."""
    if tensor is None:
        return _ABSENT, None
    code = FLOATS.get(tensor.dtype)
    if code is None:
        raise TypeError(f"[{operation}] {name} has dtype {tensor.dtype}, but must be {_FLOAT_NAMES}")
    _require_device(operation, name, tensor, index)
    tokens, top_k = sizes[0], sizes[1]
    if tensor.shape not in ((tokens, top_k), (tokens * top_k,)):
        raise ValueError(
            f"[{operation}] {name} has the shape {list(tensor.shape)}, but must have [{tokens}, {top_k}] "
            f"or [{tokens * top_k}]"
        )
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    return (tensor.data_ptr(), tokens * top_k, code), tensor
