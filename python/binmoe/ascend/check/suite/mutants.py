"""Faults planted in our kernels, one at a time: at least one level must report each.

A mutant is the kernels' source with one text replaced, loaded as a package of its own and tried on the lowered run, the
pinned numbers of the IR and the UB budget.
"""

import functools
import importlib
import itertools
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from binmoe.ascend import kernels

from ..lowering import LoweringError
from ..ub import UbError, ub_usage
from ..x86 import RunError
from . import ir_level, lowered_level, ub_level
from .cases import CASES
from .mutant_table import MUTANTS
from .running import complaints_of, lowered

SOURCES = ("rows", "gather_kernels", "scatter_kernels", "kernels")


@dataclass(frozen=True)
class Found:
    name: str
    found_by: tuple  # levels
    detail: str  # what the first of them says


@functools.cache
def _folder():
    """Of the mutants' sources; lives as long as the process, for Triton reads a kernel's source when it lowers it."""
    folder = tempfile.TemporaryDirectory(prefix="binmoe_mutants_")
    sys.path.insert(0, folder.name)
    return folder


def replaced(text, mutant):
    for old, new in ((mutant.old, mutant.new), mutant.also):
        if old and text.count(old) != 1:
            raise ValueError(f"mutant '{mutant.name}' is stale: {mutant.file}.py has '{old}' {text.count(old)} times")
        text = text.replace(old, new) if old else text
    return text


def module_of(mutant):
    """The mutant's kernels. Errors: ValueError when the text to replace does not stand there exactly once."""
    package = f"binmoe_mutant_{MUTANTS.index(mutant)}"
    place = Path(_folder().name, package)
    place.mkdir()
    for name in SOURCES:
        text = Path(kernels.__file__).with_name(f"{name}.py").read_text()
        if name == mutant.file:
            text = replaced(text, mutant)
        place.joinpath(f"{name}.py").write_text(text.replace("binmoe.ascend.", f"{package}."))
    place.joinpath("__init__.py").touch()
    importlib.invalidate_caches()
    return importlib.import_module(f"{package}.kernels")


def _by_lowered_run(mutant, module):
    for launch in itertools.chain.from_iterable(CASES[name]() for name in mutant.cases):
        problem = lowered_level.problem_of(launch.case)
        for variant in launch.variants(mutant.kernel, mutant.row_copy):
            complaints = complaints_of(variant, problem, launch.grid, launch.programs, module)
            if complaints:
                return complaints[0]
    return None


def _by_ir(mutant, module):
    for variant in ir_level.variants(mutant.kernel, mutant.row_copy):
        text = ir_level.complaint(variant, module)
        if text:
            return text
    return None


def _by_ub(mutant, module):
    plan = ub_level.planned(mutant.kernel, mutant.row_copy, "deepseek-v3", "910B3", "bf16", None)
    usage = ub_usage(lowered(plan.variant, module), "Ascend910B3")
    return f"{usage.used_bytes} bytes, {plan.budget_bytes} planned" if usage.used_bytes > plan.budget_bytes else None


LEVELS = {lowered_level.LEVEL: _by_lowered_run, ir_level.LEVEL: _by_ir, ub_level.LEVEL: _by_ub}


def find(mutant):
    """Which levels report a mutant.

    A refusal of the tools counts as a find only where the mutant says that it expects one.
    Errors: LoweringError, RunError, UbError of a mutant that does not: its text is no kernel, and shows nothing.
    """
    module = module_of(mutant)
    details = {}
    for level, look in LEVELS.items():
        try:
            text = look(mutant, module)
        except (LoweringError, RunError, UbError) as error:
            if level not in mutant.refused_by:
                raise
            text = f"refused: {str(error)[:200]}"
        if text:
            details[level] = text
    return Found(mutant.name, tuple(details), next(iter(details.values()), "nobody found it"))
