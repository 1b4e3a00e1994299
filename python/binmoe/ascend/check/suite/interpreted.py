"""The level "interpreter", in a process of its own: python -m binmoe.ascend.check.suite.interpreted

Prints one JSON object for each check. TRITON_INTERPRET=1 must be set; the report starts it so.
"""

import json
import os
import sys
from dataclasses import replace

import torch

from binmoe.ascend import interpreter, kernels

from .cases import CASES
from .checks import Check
from .problems import UNIT_ROUNDOFF, Problem
from .running import difference, dw_difference, output_of
from .table import KERNELS, forms_of

LEVEL = "interpreter"
CHOSEN = (
    "rows of f32, bf16 and f16",
    "the last row is gathered",
    "the last expert is full",
    "a capacity of 1",
    "the capacity exactly met",
    "experts change at every position of a sub-block",
)


def step_difference(got, want, name):
    """bf16: the interpreter truncates where the device rounds, so a step is allowed."""
    got, want = got.double(), want.double()
    allowed = 2 * UNIT_ROUNDOFF["bf16"] * want.abs()
    right = ((got - want).abs() <= allowed) | (got == want) | (got.isnan() & want.isnan())
    wrong = (~right).nonzero()
    if len(wrong) == 0:
        return None
    place = tuple(wrong[0].tolist())
    return f"{name}{list(place)} is {got[place].item()}, not {want[place].item()}; {len(wrong)} differ by over a step"


def complaints_of(variant, problem, grid):
    function = getattr(kernels, variant.entry.function)
    arguments, outputs, memories = problem.arguments(), {}, []
    arguments["weights"] = torch.full((1,), float("nan")) if variant.weights is None else problem.weights
    for name in variant.entry.outputs:
        memory, outputs[name], _ = output_of(variant, problem, name)
        arguments[name] = memory
        memories.append((name, memory))
    values = [getattr(arguments[name], "tensor", arguments[name]) for name in variant.signature(function)]
    function[(grid,)](*values, **variant.constexprs(function))
    found = [f"the guard zone of {name} changed" for name, memory in memories if not memory.margins_are_clean()]
    expected = problem.expected(variant.entry.op, variant.weights is not None)
    for name, got in outputs.items():
        if name == "dw":
            found.append(dw_difference(got, expected[name], problem, variant.dw))
        else:
            found.append((step_difference if variant.rows == "bf16" else difference)(got, expected[name], name))
    return [text for text in found if text]


def check(kernel, row_copy, case_name):
    num_runs, label = 0, ""
    for launch in CASES[case_name]():
        problem = Problem(replace(launch.case, has_subnormals=False))  # it takes those of bf16 for 0
        for variant in launch.variants(kernel, row_copy):
            label = variant.label
            found = complaints_of(variant, problem, launch.grid)
            num_runs += 1
            if found:
                return Check(label, case_name, LEVEL, False, f"{variant}: " + "; ".join(found))
    return Check(label, case_name, LEVEL, True, f"{num_runs} runs")


def main():
    if os.environ.get("TRITON_INTERPRET") != "1":
        sys.exit("set TRITON_INTERPRET=1")
    torch.set_num_threads(1)
    interpreter.install()
    for kernel in KERNELS:
        for row_copy in forms_of(kernel):
            for case_name in CHOSEN:
                print(json.dumps(check(kernel, row_copy, case_name).__dict__), flush=True)


if __name__ == "__main__":
    main()
