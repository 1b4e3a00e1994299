"""The level "lowered run": every case of cases.py on what the compiler made of a kernel."""

import functools

from ..lowering import LoweringError
from ..x86 import RunError
from .cases import CASES
from .checks import Check
from .problems import Problem
from .running import complaints_of

LEVEL = "lowered run"


@functools.cache
def problem_of(case):
    return Problem(case)


def check(kernel, row_copy, case_name):
    """All launches of a case: outputs to the last bit, faults, guard zones, each output byte written once."""
    num_runs, label = 0, ""
    for launch in CASES[case_name]():
        problem = problem_of(launch.case)
        for variant in launch.variants(kernel, row_copy):
            label = variant.label
            try:
                found = complaints_of(variant, problem, launch.grid, launch.programs)
            except (LoweringError, RunError) as error:
                found = [str(error)]
            num_runs += 1
            if found:
                return Check(label, case_name, LEVEL, False, f"{variant}: " + "; ".join(found))
    return Check(label, case_name, LEVEL, True, f"{num_runs} runs")


def checks(kernel, row_copy):
    return [check(kernel, row_copy, case_name) for case_name in CASES]
