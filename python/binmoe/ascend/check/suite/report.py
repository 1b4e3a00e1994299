"""All levels over all kernels, in as many processes as there are cores, and the report of it."""

import importlib.metadata
import json
import multiprocessing
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed

from .. import environment
from .checks import Check
from .table import KERNELS, forms_of

# The longest first, so that no process is left with one at the end.
LEVELS = ("lowered run", "UB", "IR", "interpreter")


def _run_level(level, kernel, row_copy):
    """In a process of the pool."""
    import torch

    from . import ir_level, lowered_level, ub_level

    torch.set_num_threads(1)
    modules = {module.LEVEL: module for module in (ir_level, lowered_level, ub_level)}
    return modules[level].checks(kernel, row_copy)


def _find_mutant(number):
    import torch

    from . import mutants

    torch.set_num_threads(1)
    return mutants.find(mutants.MUTANTS[number])


def _interpreted():
    """The interpreter needs a process that was started for it."""
    command = [sys.executable, "-m", "binmoe.ascend.check.suite.interpreted"]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    checks = [Check(**json.loads(line)) for line in done.stdout.splitlines()]
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        checks.append(Check("all", "the process ends well", "interpreter", False, last))
    return checks


def _tasks(levels, kernel_part):
    chosen = [(kernel, form) for kernel in KERNELS if kernel_part in kernel for form in forms_of(kernel)]
    return [(level, *pair) for level in levels if level != "interpreter" for pair in chosen]


def collect(levels=LEVELS, kernel_part="", with_mutants=True, progress=lambda text: None):
    """(checks, mutants found). A level that dies is a failed check of its own."""
    from .mutant_table import MUTANTS

    checks, found = [], {}
    context = multiprocessing.get_context("spawn")  # the compilers have threads of their own
    with ProcessPoolExecutor(os.cpu_count(), context) as pool, ThreadPoolExecutor(1) as thread:
        jobs = {pool.submit(_run_level, *task): task for task in _tasks(levels, kernel_part)}
        if with_mutants:
            jobs |= {pool.submit(_find_mutant, i): ("mutant", m.name, "") for i, m in enumerate(MUTANTS)}
        if "interpreter" in levels:
            jobs[thread.submit(_interpreted)] = ("interpreter", "all kernels", "")
        for done, job in enumerate(as_completed(jobs), 1):
            level, name, form = jobs[job]
            progress(f"{done} of {len(jobs)}: {level}, {name} {form}")
            try:
                result = job.result()
            except Exception as error:
                result = [Check(name, "runs at all", level, False, f"{type(error).__name__}: {error}")]
            if level == "mutant" and not isinstance(result, list):
                found[name] = result
            else:
                checks += result
    order = {level: i for i, level in enumerate((*LEVELS, "mutant"))}
    checks = [c for c in checks if kernel_part in c.kernel or c.kernel == "all"]
    return sorted(checks, key=lambda c: order[c.level]), [found[m.name] for m in MUTANTS if m.name in found]


def is_green(checks, mutants):
    return all(check.passed for check in checks) and all(mutant.found_by for mutant in mutants)


def as_json(checks, mutants):
    return {
        "checks": [check.__dict__ for check in checks],
        "mutants": [{"name": m.name, "found_by": list(m.found_by)} for m in mutants],
    }


def as_text(checks, mutants, seconds):
    versions = (f"{name} {importlib.metadata.version(name)}" for name in environment.PACKAGES)
    lines = [f"Triton-Ascend kernels of binmoe, checked on {', '.join(versions)}; nothing ran on a device."]
    for level in dict.fromkeys(check.level for check in checks):
        of_level = [check for check in checks if check.level == level]
        passed = sum(check.passed for check in of_level)
        lines += ["", f"{level}: {passed} of {len(of_level)} checks"]
        for c in of_level:
            lines.append(f"  {'ok    ' if c.passed else 'FAILED'}  {c.kernel:32}  {c.case:49}  {c.detail}")
    if mutants:
        lines += ["", f"mutants: {sum(bool(m.found_by) for m in mutants)} of {len(mutants)} found"]
        for m in mutants:
            state, levels = "found " if m.found_by else "MISSED", ", ".join(m.found_by) or "nobody"
            lines.append(f"  {state}  {m.name:36} by {levels:24}  {m.detail}")
    failed = sum(not check.passed for check in checks) + sum(not m.found_by for m in mutants)
    verdict = "all of it holds" if failed == 0 else f"{failed} FAILED"
    return "\n".join([*lines, "", f"{len(checks)} checks, {len(mutants)} mutants, {seconds:.0f} s: {verdict}"])


def timed_collect(**settings):
    start = time.monotonic()
    checks, mutants = collect(**settings)
    return checks, mutants, time.monotonic() - start
