"""Tensors as the kernels want them: matrices of rows, vectors of weights, maps on the device. Refusals by name."""

import torch

ROW_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MAP_DTYPES = (torch.int32, torch.int64)
MOST_STRIDE = 2**31 // 64  # a tile's addresses are 32-bit beside its first row: at most 64 rows


def _names(dtypes):
    return ", ".join(str(t).removeprefix("torch.") for t in dtypes)


def matrix(operation, name, tensor, num_rows):
    """A view [num_rows, hidden_size] of rows with one distance. Errors: ValueError."""
    if tensor.dtype not in ROW_DTYPES:
        raise ValueError(f"[{operation}] {name} is {tensor.dtype}, but the kernels take {_names(ROW_DTYPES)}")
    if tensor.dim() not in (2, 3):
        raise ValueError(f"[{operation}] {name} has {tensor.dim()} dimensions, but must have 2, or 3 of expert rows")
    rows = tensor.shape[:-1].numel()
    if rows != num_rows:
        raise ValueError(f"[{operation}] {name} has {rows} rows, but the plan was made for {num_rows}")
    try:
        view = tensor.view(rows, tensor.shape[-1])
    except RuntimeError as error:
        raise ValueError(f"[{operation}] {name}: its rows must stand at one distance: {error}") from error
    if view.shape[1] > 1 and view.stride(1) != 1:
        raise ValueError(f"[{operation}] {name}: its columns are {view.stride(1)} apart, but rows must be contiguous")
    if view.shape[0] == 1 or view.numel() == 0:  # a lone row's distance is anything
        return view.as_strided(view.shape, (view.shape[1], 1))
    if view.stride(0) > MOST_STRIDE:
        raise ValueError(f"[{operation}] {name}: rows are {view.stride(0)} elements apart, but at most {MOST_STRIDE}")
    return view


def weights_vector(operation, weights, plan, rows):
    """Weights as the kernels read them, or None. Errors: ValueError."""
    if weights is None:
        return None
    if tuple(weights.shape) not in ((plan.tokens, plan.top_k), (plan.tokens * plan.top_k,)):
        raise ValueError(
            f"[{operation}] weights have shape {list(weights.shape)}, but the plan has [{plan.tokens}, {plan.top_k}]"
        )
    if weights.dtype not in ROW_DTYPES:
        raise ValueError(f"[{operation}] weights are {weights.dtype}, but the kernels take {_names(ROW_DTYPES)}")
    if weights.device != rows.device:
        raise ValueError(f"[{operation}] weights are on {weights.device}, but the rows are on {rows.device}")
    return weights.contiguous()


def check_map(plan, name, operation="plan"):
    """Refuse a map that is no tensor of integers, or not as long as the plan's sizes say. Errors: ValueError."""
    values = getattr(plan, name)
    by_expert = name in ("bins", "tokens_per_expert", "kept_per_expert")
    length = plan.num_experts if by_expert else plan.tokens * plan.top_k
    if values.numel() != length:
        sizes = "num_experts" if by_expert else "tokens * top_k"
        raise ValueError(f"[{operation}] the plan's {name} has {values.numel()} entries, but {sizes} is {length}")
    if values.dtype not in MAP_DTYPES:
        raise ValueError(f"[{operation}] the plan's {name} is {values.dtype}, but must be {_names(MAP_DTYPES)}")


def map_of(plan, name, device):
    """A map of the plan as int32 on the rows' device. Errors: ValueError."""
    check_map(plan, name)
    return getattr(plan, name).to(device=device, dtype=torch.int32).contiguous()


def _bytes_of(tensor):
    """[begin, end) of the bytes that a tensor spans."""
    if tensor.numel() == 0:
        return 0, 0
    span = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return tensor.data_ptr(), tensor.data_ptr() + span * tensor.element_size()


def check_out(operation, name, out, shape, like, inputs):
    """Refuse an output of another kind, one whose rows overlap, or one that overlaps an input. Errors: ValueError."""
    if tuple(out.shape) != tuple(shape) or out.dtype != like.dtype or out.device != like.device:
        raise ValueError(
            f"[{operation}] {name} is {list(out.shape)} {out.dtype} on {out.device}, "
            f"but must be {list(shape)} {like.dtype} on {like.device}"
        )
    rows = matrix(operation, name, out, out.shape[:-1].numel())
    if rows.shape[0] > 1 and rows.stride(0) < rows.shape[1]:
        raise ValueError(f"[{operation}] {name}: its rows overlap: {rows.stride(0)} apart, {rows.shape[1]} long")
    begin, end = _bytes_of(out)
    for tensor in inputs:
        if tensor is not None and max(begin, _bytes_of(tensor)[0]) < min(end, _bytes_of(tensor)[1]):
            raise ValueError(f"[{operation}] {name} overlaps an input")
