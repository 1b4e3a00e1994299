"""@triton.jit kernels to the text that the vendor's compiler takes (Linalg on memrefs), without device or CANN."""

import contextlib
import os
import re
import subprocess
import tempfile

from . import environment, tools


class LoweringError(RuntimeError):
    """Triton-Ascend refused the kernel; the text is its own."""


@contextlib.contextmanager
def _captured_stderr():
    """The compiler is C++ and writes its diagnostics to file descriptor 2."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        text = []
        try:
            yield text
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            text.append(file.read().decode(errors="replace"))


def lower(kernel, signature, constexprs, **options):
    """Lower a kernel as a launch on A2/A3 would, short of the vendor's compiler; 0.03-0.1 s.

    kernel      a @triton.jit function, defined in a process without TRITON_INTERPRET
    signature   {argument: type}: "*bf16", "*i32", "i32", "i64", "fp32", ...; constexpr arguments left out
    constexprs  {argument: value}
    options     of the backend's NPUOptions, e.g. compile_on_910_95=True for a 950
    Returns MLIR text whose first line names the run-time arguments, for messages.
    Errors: LoweringError, MissingError; ValueError when signature and constexprs do not cover the arguments.
    """
    environment.require()
    from triton._C.libtriton import ir
    from triton.backends.ascend import compiler
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    unknown = set(kernel.arg_names) ^ (set(signature) | set(constexprs))
    if unknown or set(signature) & set(constexprs):
        raise ValueError(f"[lower] {kernel.__name__}: arguments given wrongly or not at all: {sorted(unknown)}")
    types = {name: "constexpr" if name in constexprs else signature[name] for name in kernel.arg_names}
    backend = compiler.AscendBackend(GPUTarget("npu", "Ascend910B3", 0))
    source = ASTSource(fn=kernel, signature=types, constants=dict(constexprs))
    parsed = backend.parse_options({**source.parse_options(), **options})

    def linalg():
        context = ir.context()
        ir.load_dialects(context)
        module = source.make_ir(parsed, backend.get_codegen_implementation(), backend.get_module_map(), context)
        metadata = {"hash": "checked", **parsed.__dict__}
        module = compiler.make_ttir(module, metadata, parsed)
        return compiler.ttir_to_linalg(module, metadata, parsed, named_ops=True)

    diagnostics = []
    try:
        with _captured_stderr() as diagnostics:
            text = tools.again_after_a_crash(linalg)
    except subprocess.CalledProcessError as error:
        raise LoweringError(f"[lower] {kernel.__name__}: {error.stderr.decode(errors='replace')[:4000]}") from error
    except Exception as error:  # Triton raises many kinds
        raise LoweringError(f"[lower] {kernel.__name__}: {error}\n{''.join(diagnostics)[:4000]}") from error
    names = ", ".join(name for name in kernel.arg_names if name in signature)
    return f"// arguments: {names}\n{text}"


def argument_names(mlir):
    """The run-time arguments that lower() noted, or none for a text from elsewhere."""
    found = re.match(r"// arguments: (.*)", mlir)
    return found[1].split(", ") if found and found[1] else []


def kernel_name(mlir):
    return re.search(r"func\.func @(\w+)\(", mlir)[1]
