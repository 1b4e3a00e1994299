"""Unified Buffer (UB) bytes of a lowered kernel, as the open-source planner lays them out (docs/ascend.md)."""

import functools
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import environment, tools

TRITON = "enable-triton-kernel-compile=true"
PASSES = (
    f"-lower-hfusion-pipeline={TRITON}",
    f"-convert-to-hivm-pipeline={TRITON}",
    f"-optimize-hivm-pipeline={TRITON} enable-auto-multi-buffer=true enable-auto-bind-sub-block=true",
)
ELEMENT_BITS = {"i1": 1, "i8": 8, "i16": 16, "f16": 16, "bf16": 16, "i32": 32, "f32": 32, "i64": 64, "f64": 64}
OVERFLOW = r"ub overflow, requires (\d+) bits while (\d+) bits"
LIMIT_A2 = 192 * 1024
LIMIT_950 = 2031616 // 8


class UbError(RuntimeError):
    """The planner failed for another reason than an overflow; the text is its own."""


@dataclass(frozen=True)
class UbUsage:
    target: str
    used_bytes: int  # when it overflows: the bytes that the planner asked for
    limit_bytes: int

    @property
    def fits(self):
        return self.used_bytes <= self.limit_bytes


def highest_address(text):
    """Bytes up to the end of the last buffer: the largest offset + size of all UB pointers."""
    constants = {m[1]: int(m[2]) for m in re.finditer(r"(%\w+) = arith\.constant (\d+) : i64", text)}
    pointer = r"hivm\.hir\.pointer_cast\(([^)]*)\)[^\n]*?: memref<((?:\d+x)*)(\w+)[,>][^\n]*address_space<ub>"
    top = 0
    for offsets, dimensions, element in re.findall(pointer, text):
        bits = ELEMENT_BITS[element]
        for dimension in filter(None, dimensions.split("x")):
            bits *= int(dimension)
        for offset in offsets.split(","):  # one for each copy of a multi-buffer
            top = max(top, constants[offset.strip()] + -(-bits // 8))
    return top


@functools.cache
def ub_usage(mlir, target="Ascend910B3"):
    """Plan the UB with double buffering, as a launch on A2/A3 does, but without its silent retry; 0.1 s.

    mlir    text of lower(); for a 950 lowered with compile_on_910_95=True
    target  as the compiler names it: Ascend910B1, Ascend910_9382, ..., Ascend950PR_9599
    Errors: UbError, environment.MissingError.
    """
    environment.require()
    if "950" in target:
        return _usage_950(mlir, target)
    device = f"-hacc-append-device-spec=target={target}"
    status, planned, messages = tools.run("bishengir-opt", "-", device, *PASSES, stdin=mlir)
    over = re.search(OVERFLOW, messages)
    if over:
        return UbUsage(target, int(over[1]) // 8, int(over[2]) // 8)
    if status:
        raise UbError(f"[ub_usage] {target}: {messages[:4000]}")
    return UbUsage(target, highest_address(planned), LIMIT_A2)


def _usage_950(mlir, target):
    """bishengir-compile-a5 always fails at the end, for want of hivmc-a5: what counts is that it printed the size.

    Without double buffering, as the options for a 950 say (NPUOptions: multibuffer = not is_compile_on_910_95).
    """
    options = ["--enable-print-memory-allocated-size", "--enable-auto-multi-buffer=false", "--enable-tuning-mode=true"]
    options += ["--enable-hfusion-compile=true", "--enable-hivm-compile=true", f"--{TRITON}"]
    with tempfile.TemporaryDirectory(prefix="binmoe_ub_") as folder:
        source = Path(folder, "kernel.mlir")
        source.write_text(mlir)
        arguments = [str(source), f"--target={target}", *options, "-o", f"{folder}/kernel"]
        _, out, messages = tools.run("bishengir-compile-a5", *arguments)
    log = out + messages
    over = re.search(OVERFLOW, log)
    if over:
        return UbUsage(target, int(over[1]) // 8, int(over[2]) // 8)
    sizes = [int(bits) for bits in re.findall(r"Allocated UB size = (\d+) bits", log)]
    if not sizes or "Cannot find hivmc-a5" not in log:
        raise UbError(f"[ub_usage] {target}: {log[:4000]}")
    return UbUsage(target, max(sizes) // 8, LIMIT_950)
