"""Run what the compiler made of a kernel on x86, one program after the other, every access checked."""

import ctypes
import re
from dataclasses import dataclass, field

import numpy as np
import torch

from . import environment, x86
from .guard import Guarded, keep_sparse
from .lowering import argument_names

# In the order of runtime.c's Kind.
KINDS = (
    "read outside a tensor",
    "write outside a tensor",
    "write to an input",
    "read of an output",
    "read outside a UB buffer",
    "write outside a UB buffer",
    "UB of the run exhausted",
)
LISTED_FAULTS = 64
SCALARS = {"i1": ctypes.c_bool, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32}
SCALARS |= {"i64": ctypes.c_int64, "f32": ctypes.c_float, "f64": ctypes.c_double}
ELEMENTS = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "f64": torch.float64}
ELEMENTS |= {"i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "i1": torch.bool}
GRID_ARGUMENTS = 6
HIDDEN_ARGUMENTS = 2  # the lock and the workspace that a launch hands over


class _Fault(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("kind", "argument", "offset", "size", "program")]


@dataclass(frozen=True)
class Fault:
    """One wrong access. argument "": a UB buffer, offset from the nearest one's first byte."""

    kind: str
    argument: str
    offset_bytes: int
    size_bytes: int
    program: int

    def __str__(self):
        where = f"argument {self.argument}" if self.argument else "a UB buffer"
        return f"{self.kind}: {where}, {self.size_bytes} bytes at byte {self.offset_bytes}, program {self.program}"


@dataclass
class RunResult:
    num_faults: int = 0
    faults: list = field(default_factory=list)  # the first ones
    read_bytes: dict = field(default_factory=dict)  # by argument
    written_bytes: dict = field(default_factory=dict)
    rewritten_bytes: dict = field(default_factory=dict)  # by output: written when they had been written already
    unwritten_bytes: dict = field(default_factory=dict)  # by output
    touched_guards: list = field(default_factory=list)  # arguments whose guard zone changed


def _signature(mlir):
    """(type, is_pointer, may be written) of every argument that a caller gives."""
    found = re.search(r"func\.func @\w+\((.*?)\) attributes", mlir, re.DOTALL)
    if found is None:
        raise x86.RunError("[run_lowered] the text has no func.func with attributes: is it lower()'s?")
    types = []
    for text in re.split(r", (?=%arg\d+:)", found[1]):
        memref = re.match(r"%arg\d+: memref<\?x(\w+)>", text)
        kind = re.search(r"tt\.tensor_kind = (\d)", text)
        types.append((memref[1] if memref else text.split()[1], memref is not None, bool(kind) and kind[1] != "0"))
    return types[HIDDEN_ARGUMENTS:-GRID_ARGUMENTS]


def _memref(pointer, count):
    return [ctypes.c_void_p(pointer), ctypes.c_void_p(pointer), *map(ctypes.c_int64, (0, count, 1))]


class _Arguments:
    """The caller's arguments: checked, guarded, known to the run-time, and as C sees them."""

    def __init__(self, mlir, values, outputs):
        types = _signature(mlir)
        if len(types) != len(values):
            raise x86.RunError(f"[run_lowered] {len(values)} arguments were given, but the kernel takes {len(types)}")
        names = argument_names(mlir) or [str(i) for i in range(len(values))]
        self.c = _memref(0, 0) * HIDDEN_ARGUMENTS
        self.tensors = []  # (name, Guarded, what the caller gave, times each byte was written or None)
        for i, (value, (element, is_pointer, is_written)) in enumerate(zip(values, types, strict=True)):
            if not is_pointer:
                self.c.append(SCALARS[element](value))
                continue
            guarded = value if isinstance(value, Guarded) else Guarded.of(value)
            if guarded.tensor.dtype != ELEMENTS[element]:
                raise x86.RunError(
                    f"[run_lowered] {names[i]} is {guarded.tensor.dtype}, but the kernel takes {element}"
                )
            is_output = is_written if outputs is None else names[i] in outputs or i in outputs
            bytes_ = guarded.tensor.numel() * guarded.tensor.element_size()
            times = None
            if is_output:
                times = np.zeros(bytes_, np.uint8)  # of untouched pages, unlike torch's
                keep_sparse(times.ctypes.data, bytes_)
            self.tensors.append((names[i], guarded, value, times))
            self.c += _memref(guarded.tensor.data_ptr(), guarded.tensor.numel())

    def register(self, runtime):
        for name, guarded, _, times in self.tensors:
            tensor, buffer = guarded.tensor, guarded.buffer
            size = tensor.element_size()
            refused = runtime.run_add_argument(
                tensor.data_ptr(), tensor.numel() * size, buffer.data_ptr(), buffer.numel() * size,
                None if times is None else times.ctypes.data,
            )  # fmt: skip
            if refused:
                raise x86.RunError(f"[run_lowered] {name}: too many tensors, or no memory for the UB arena")

    def collect(self, runtime, result):
        for i, (name, guarded, value, times) in enumerate(self.tensors):
            counts = (ctypes.c_int64 * 3)()
            runtime.run_bytes(i, counts)
            result.read_bytes[name], result.written_bytes[name], rewritten = counts
            if not guarded.margins_are_clean():
                result.touched_guards.append(name)
            if times is None:
                continue
            result.rewritten_bytes[name] = rewritten
            result.unwritten_bytes[name] = times.size - (result.written_bytes[name] - rewritten)
            if value is not guarded:
                value.copy_(guarded.tensor)


def run_lowered(mlir, grid, args, outputs=None, programs=None):
    """Run a lowered kernel on x86; 0.2 s to compile, once for each text in a process, then about 10 ns an access.

    mlir      text of lower()
    grid      (x,), (x, y) or (x, y, z)
    args      the run-time arguments in order: torch tensors on the CPU, Guarded ones, numbers. A tensor is copied
              between guard zones, an output copied back; a Guarded one is used in place.
    outputs   names or positions of the tensors that may be written and must not be read; none: those that the compiler
              marks as written
    programs  linear program numbers in the order in which they run; none: all, in order. A permutation shows that
              results do not depend on the order; a few of many save time.
    Returns RunResult. A wrong access is a fault there, not an exception: a bad read gives NaN, a bad write goes
    nowhere. Not reentrant. Errors: RunError, environment.MissingError.
    """
    environment.require()
    function, runtime = x86.compile_kernel(mlir), x86.runtime()
    sizes = [*grid, 1, 1][:3]
    arguments = _Arguments(mlir, args, outputs)
    runtime.run_begin()
    arguments.register(runtime)
    for program in range(sizes[0] * sizes[1] * sizes[2]) if programs is None else programs:
        runtime.run_program(program)
        z, rest = divmod(program, sizes[0] * sizes[1])
        y, x = divmod(rest, sizes[0])
        function(*arguments.c, *map(ctypes.c_int32, (*sizes, x, y, z)))
    listed = (_Fault * LISTED_FAULTS)()
    result = RunResult(num_faults=runtime.run_faults(listed, LISTED_FAULTS))
    for f in listed[: result.num_faults]:
        name = arguments.tensors[f.argument][0] if f.argument >= 0 else ""
        result.faults.append(Fault(KINDS[f.kind], name, f.offset, f.size, f.program))
    arguments.collect(runtime, result)
    return result
