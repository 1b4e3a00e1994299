"""Between the oracle's arrays (tests/cli/oracle.py) and tensors, and tensors with awkward strides."""

import ml_dtypes
import numpy as np
import oracle
import torch
from hypothesis import strategies as st

DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}
DTYPE_NAMES = sorted(DTYPES)
WEIGHT_NAMES = {name: ["f32", "bf16", "f16", None] + (["f64"] if name == "f64" else []) for name in DTYPE_NAMES}


def to_tensor(array, device="cpu"):
    """A copy. bf16 crosses as int16."""
    if array is None:
        return None
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16).to(device)
    return torch.from_numpy(array.copy()).to(device)


def to_array(tensor):
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def in_layout(tensor, layout):
    """The same values in other strides."""
    if layout == "contiguous" or tensor.dim() < 2:
        return tensor
    if layout == "offset":  # rows apart, the first at an odd element
        wide = tensor.new_full((*tensor.shape[:-1], tensor.shape[-1] + 3), float("nan"))
        wide[..., 1:-2] = tensor
        return wide[..., 1:-2]
    if layout == "transposed":  # columns apart
        return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "every_other":  # a 3-D tensor whose rows do not stand at one distance
        wide = tensor.new_full((tensor.shape[0], 2 * tensor.shape[1], *tensor.shape[2:]), float("nan"))
        wide[:, ::2] = tensor
        return wide[:, ::2] if tensor.dim() == 2 else wide[:, : tensor.shape[1]].copy_(tensor)
    raise ValueError(layout)


LAYOUTS = ["contiguous", "offset", "transposed", "every_other"]


def nan_like(shape, dtype, device, layout="contiguous"):
    return in_layout(torch.full(shape, float("nan"), dtype=dtype, device=device), layout)


def random_values(rng, shape, name):
    """Random values of a dtype by the oracle's name, some of them subnormal or large."""
    values = rng.standard_normal(shape)
    values[rng.random(shape) < 0.02] *= 1e-6
    return values.astype(oracle.ROW_DTYPES[name])


@st.composite
def batches(draw, routings):
    """(plan, oracle's plan, rng, H, dtype name, weights' dtype name or None, layout)."""
    ids, num_experts, capacity, policy, priority, seed = draw(routings)
    name = draw(st.sampled_from(DTYPE_NAMES))
    return {
        "ids": ids,
        "priority": priority,
        "policy": policy,
        "plan": oracle.plan(ids, num_experts, capacity, policy, priority),
        "rng": np.random.default_rng(seed),
        "hidden": draw(st.sampled_from([0, 1, 2, 7, 33, 64, 130])),
        "dtype": name,
        "weights": draw(st.sampled_from(WEIGHT_NAMES[name])),
        "layout": draw(st.sampled_from(LAYOUTS)),
    }
