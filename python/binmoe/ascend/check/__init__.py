"""Check Triton-Ascend kernels, ours or any, on a host without an NPU. docs/triton_ascend.md: what each level proves.

    from binmoe.ascend.check import lower, ub_usage, run_lowered, ir_properties

    mlir = lower(kernel, {"x": "*bf16", "y": "*bf16", "n": "i32"}, {"BLOCK": 128})
    ub_usage(mlir, "Ascend910B3").fits                  # by the open-source planner, double buffered
    ir_properties(mlir)["element_accesses"] == 0            # no row was taken apart
    result = run_lowered(mlir, (40,), [x, y, 1000])     # on x86; writes y
    assert result.num_faults == 0, result.faults[0]

`missing()` says why the checker cannot run here, or None; the others raise MissingError then. `python -m
binmoe.ascend.check` checks our own kernels and prints a report. For pytest: `-p binmoe.ascend.check.plugin`.
"""

import importlib

from .environment import MissingError, is_required, missing

# Imported at first use: torch may be what is missing.
_MODULES = {
    "lowering": ("lower", "LoweringError"),
    "ub": ("ub_usage", "UbUsage", "UbError"),
    "properties": ("ir_properties",),
    "lowered_run": ("run_lowered", "RunResult", "Fault"),
    "x86": ("RunError",),
    "guard": ("Guarded",),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["MissingError", "is_required", "missing", *_PLACES]  # noqa: PLE0604  all of them are strings


def __getattr__(name):
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_PLACES[name]}", __name__), name)
