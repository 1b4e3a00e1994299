"""Lowered text to x86 code in which every access calls runtime.c: bishengir-opt, triton-ascend's LLVM, gcc."""

import ctypes
import functools
import re
import subprocess
import tempfile
from pathlib import Path

from . import tools
from .environment import scratch_folder
from .lowering import kernel_name

PASSES = [
    "convert-elementwise-to-linalg",
    "eliminate-empty-tensors",
    "empty-tensor-to-alloc-tensor",
    "one-shot-bufferize=allow-return-allocs-from-loops=true",
    "convert-linalg-to-loops",
    "lower-affine",
    "memref-expand",
    "expand-strided-metadata",
    "lower-affine",
    "convert-scf-to-cf",
    "convert-cf-to-llvm",
    "arith-expand=include-bf16=true",
    "convert-arith-to-llvm",
    "convert-math-to-llvm",
    "convert-index-to-llvm",
    "finalize-memref-to-llvm",
    "convert-func-to-llvm",
    "convert-arith-to-llvm",
    "convert-cf-to-llvm",
    "reconcile-unrealized-casts",
]
ELEMENT_BYTES = {"i1": 1, "i8": 1, "i16": 2, "half": 2, "bfloat": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}
CHECKED = """
declare ptr @check_load(ptr, i64)
declare ptr @check_store(ptr, i64)
declare void @check_memcpy(ptr, ptr, i64, i1)
"""


class RunError(RuntimeError):
    """The lowered run cannot take this kernel or these arguments."""


def _gcc(*arguments):
    done = subprocess.run(["gcc", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise RunError(f"[run_lowered] gcc: {done.stderr[:4000]}")


@functools.cache
def runtime():
    """runtime.c, compiled once a process."""
    path = scratch_folder() / "libruntime.so"
    _gcc("-std=gnu11", "-O2", "-fPIC", "-shared", "-o", path, Path(__file__).with_name("runtime.c"))
    library = ctypes.CDLL(str(path))
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    library.run_add_argument.argtypes = [pointer, size, pointer, size, pointer]
    library.run_program.argtypes = [size]
    library.run_faults.argtypes = [pointer, size]
    library.run_faults.restype = size
    library.run_bytes.argtypes = [size, pointer]
    return library


def _llvm_dialect(mlir):
    plain = re.sub(r"\n\s*annotation\.mark [^\n]*", "", mlir)  # layout hints only
    status, dialect, messages = tools.run("bishengir-opt", "-", *("--" + name for name in PASSES), stdin=plain)
    if status:
        raise RunError(f"[run_lowered] bishengir-opt: {messages[:4000]}")
    return dialect


def _llvm_ir(dialect):
    from triton._C.libtriton import ir, llvm

    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(dialect)
        file.flush()
        context = ir.context()
        ir.load_dialects(context)
        module = ir.parse_mlir_module(file.name, context)
        return str(llvm.to_module(module, llvm.context()))


def with_checks(llvm_ir):
    """Send every load, store and copy through runtime.c. Errors: RunError for a memory access of an unknown form."""
    out = []
    for number, line in enumerate(llvm_ir.splitlines()):
        load = re.match(r"\s+%\S+ = load (\w+), ptr (%[^\s,]+)", line)
        store = re.match(r"\s+store (\w+) \S+, ptr (%[^\s,]+)", line)
        access = load or store
        if access and access[1] in ELEMENT_BYTES:
            name, size = "check_load" if load else "check_store", ELEMENT_BYTES[access[1]]
            out.append(f"  %checked{number} = call ptr @{name}(ptr {access[2]}, i64 {size})")
            line = line.replace(f"ptr {access[2]}", f"ptr %checked{number}")
        elif (
            (re.match(r"\s+(%\S+ = )?(load|store|atomicrmw|cmpxchg) ", line) and " store {" not in line)
            or "@llvm.memset" in line
            or "@llvm.memmove" in line
        ):
            raise RunError(f"[run_lowered] a memory access of an unknown form: {line.strip()}")
        elif line.startswith("declare void @llvm.memcpy.p0.p0.i64"):
            continue
        out.append(line.replace("@llvm.memcpy.p0.p0.i64", "@check_memcpy"))
    text = re.sub(r"@(malloc|free)\b", r"@check_\1", "\n".join(out))
    text = re.sub(r" immarg|#\d+", "", text)  # of the declarations that are gone
    return re.sub(r"\nattributes\s+=[^\n]*", "", text) + CHECKED


@functools.cache
def compile_kernel(mlir):
    """The kernel as a C function: memref descriptors and scalars in the order of the lowered text; 0.1-0.2 s."""
    from triton._C.libtriton import llvm

    runtime()
    if not hasattr(compile_kernel, "ready"):
        llvm.init_targets()
        compile_kernel.ready = True
    checked = with_checks(_llvm_ir(_llvm_dialect(mlir)))
    assembly = llvm.translate_to_asm(checked, "x86_64-unknown-linux-gnu", "", "+f16c", [], False, False)
    stem = scratch_folder() / f"kernel{compile_kernel.cache_info().misses}"
    stem.with_suffix(".s").write_text(assembly)
    library = stem.with_suffix(".so")
    _gcc("-shared", "-Wl,-z,defs", "-o", library, stem.with_suffix(".s"), scratch_folder() / "libruntime.so", "-lm",
         f"-Wl,-rpath,{scratch_folder()}")  # fmt: skip
    function = getattr(ctypes.CDLL(str(library)), kernel_name(mlir))
    function.restype = None
    return function
