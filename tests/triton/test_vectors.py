"""tests/data/vectors.json, bit for bit, by what the compiler made of the kernels: every value stands in the file."""

import json
from pathlib import Path

import pytest
import torch

VECTORS = json.loads((Path(__file__).resolve().parents[1] / "data/vectors.json").read_text())
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
STRIDES = ("x_stride", "y_stride", "grad_stride", "out_stride", "dy_stride")


def rows_of(vector, name, columns):
    return torch.tensor(vector[name], dtype=torch.float64).reshape(-1, columns).to(DTYPES[vector["dtype"]])


def arguments_of(vector):
    """What every kernel takes of a vector, by argument."""
    maps = {
        name: torch.tensor(vector["plan"][name], dtype=torch.int32).reshape(-1)
        for name in ("indices", "bin_ids", "bins", "row_of_assignment")
    }
    hidden, experts, capacity = (vector[n] for n in ("hidden_size", "num_experts", "expert_capacity"))
    sizes = {"num_tokens": vector["tokens"], "num_experts": experts, "expert_capacity": capacity}
    sizes |= {"num_expert_rows": experts * capacity, "hidden_size": hidden} | dict.fromkeys(STRIDES, hidden)
    room = vector["tokens"] * vector["top_k"]
    for name, past in (("indices", -1), ("bin_ids", experts)):  # as the library fills them up
        maps[name] = torch.cat([maps[name], torch.full((room - len(maps[name]),), past, dtype=torch.int32)])
    return maps | sizes


def launches(vector):
    """(kernel, weighted, inputs, output argument, expected) of every operation that the vector has."""
    hidden = vector["hidden_size"]
    for kernel in ("gather by expert", "gather by token"):
        for name, weighted in (("gather", False), ("gather_weighted", True)):
            if name in vector:
                yield kernel, weighted, {"x": rows_of(vector, "x", hidden)}, "y", rows_of(vector, name, hidden)
    if "scatter" in vector:
        y = rows_of(vector, "y" if "y" in vector else "gather", hidden)
        yield "scatter", "weights" in vector, {"y": y}, "out", rows_of(vector, "scatter", hidden)
    if "wgrad" in vector:
        inputs = {"y": rows_of(vector, "y" if "y" in vector else "gather", hidden)}
        inputs["grad"] = rows_of(vector, "grad", hidden)
        yield "wgrad", False, inputs, "dw", torch.tensor(vector["wgrad"], dtype=torch.float32).reshape(-1)


def variants(vector, kernel, weighted):
    from binmoe.ascend.check.suite.table import Variant, forms_of

    weights = "f32" if weighted else None
    for row_copy in forms_of(kernel):
        yield Variant(kernel, vector["dtype"], weights, "f32", vector["top_k"], 4, 4, 32, row_copy, True)


def same_bits(got, want):
    return torch.equal(got.isnan(), want.isnan()) and torch.equal(
        got.nan_to_num(0.0).signbit(), want.nan_to_num(0.0).signbit()
    ) and torch.equal(got.nan_to_num(0.0), want.nan_to_num(0.0))  # fmt: skip


@pytest.mark.parametrize("vector", VECTORS, ids=[v["name"] for v in VECTORS])
def test_the_lowered_kernels_reproduce(ascend_check, vector):
    from binmoe.ascend import kernels
    from binmoe.ascend.check.suite.running import lowered

    if vector["expert_capacity"] == 0:
        pytest.skip("a capacity of 0 launches no kernel; tests/triton_interpreter has it")
    tried = 0
    for kernel, weighted, inputs, output, want in launches(vector):
        for variant in variants(vector, kernel, weighted):
            arguments = arguments_of(vector) | inputs
            arguments["weights"] = torch.tensor(vector.get("weights", [0.0]), dtype=torch.float32)
            arguments[output] = torch.full(want.shape, float("nan"), dtype=want.dtype)
            names = variant.signature(getattr(kernels, variant.entry.function))
            result = ascend_check.run_lowered(lowered(variant), (3,), [arguments[n] for n in names], [output])
            assert result.num_faults == 0, f"{variant}: {result.faults[0]}"
            assert same_bits(arguments[output], want), f"{variant}: {arguments[output]}, not {want}"
            tried += 1
    assert tried > 0
