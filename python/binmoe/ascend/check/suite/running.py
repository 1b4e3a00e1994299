"""One kernel on one problem by the lowered run, and everything that must hold of it."""

import torch

from binmoe.ascend import kernels

from ..guard import Guarded
from ..lowered_run import run_lowered
from ..lowering import lower
from .problems import DTYPES, SMALLEST, UNIT_ROUNDOFF, pitched

_lowered = {}


def lowered(variant, module=kernels, **options):
    """The text of a variant; lowered once a process. module: where the kernels stand (a mutant has its own)."""
    key = variant, module.__name__, tuple(options.items())
    if key not in _lowered:
        function = getattr(module, variant.entry.function)
        _lowered[key] = lower(function, variant.signature(function), variant.constexprs(function), **options)
    return _lowered[key]


def _bits(tensor):
    """As numbers of the same width, every NaN alike."""
    tensor = torch.where(tensor.isnan(), torch.full_like(tensor, float("nan")), tensor).contiguous()
    return tensor.view(torch.int32 if tensor.element_size() == 4 else torch.int16)


def difference(got, want, name):
    """The first place where bits differ, or None."""
    wrong = (_bits(got) != _bits(want)).nonzero()
    if len(wrong) == 0:
        return None
    place = tuple(wrong[0].tolist())
    return f"{name}{list(place)} is {got[place].item()}, not {want[place].item()}; {len(wrong)} differ"


def dw_difference(got, want, problem, dtype):
    """The first place beyond the bound of design.md and the roundings of the two results, or None.

    A value that is not finite must be met exactly, a dropped or masked choice must have +0.
    """
    got, want = got.double(), want.reshape(-1).double()
    bound = problem.dw_bound()
    allowed = bound * 1.0001 + (want.abs() + bound) * (2 * UNIT_ROUNDOFF[dtype]) + SMALLEST[dtype]
    is_finite = want.isfinite()
    is_large = is_finite & (want.abs() > torch.finfo(DTYPES[dtype]).max)  # the library's is f32
    right = (is_finite & ((got - want).abs() <= allowed)) | (got == want) | (got.isnan() & want.isnan())
    right |= is_large & got.isinf() & (got.signbit() == want.signbit())
    is_dropped = problem.plan.row_of_assignment.reshape(-1) < 0
    right &= ~is_dropped | ((got == 0) & ~got.signbit())
    wrong = (~right).nonzero().view(-1)
    if len(wrong) == 0:
        return None
    a = int(wrong[0])
    return f"dw[{a}] is {got[a].item()}, not {want[a].item()} +- {allowed[a].item()}; {len(wrong)} differ"


def output_of(variant, problem, name):
    """Poisoned memory for an output: (Guarded, view, bytes that nobody may write)."""
    dtype = DTYPES[variant.dw if name == "dw" else variant.rows]
    if name == "dw":
        memory = Guarded.poisoned((problem.tokens * problem.top_k,), dtype)
        return memory, memory.tensor, 0
    rows, hidden, gap = problem.output_rows(name), problem.case.hidden_size, problem.case.gap
    memory, view = pitched(rows, hidden, gap, dtype)
    return memory, view, (memory.tensor.numel() - rows * hidden) * dtype.itemsize


def run(variant, problem, grid=7, programs=None, module=kernels):
    """(outputs by name, RunResult, complaints)."""
    mlir = lowered(variant, module)
    arguments, outputs, gaps = problem.arguments(), {}, {}
    if variant.weights is None:
        arguments["weights"] = torch.full((1,), float("nan"))  # nobody reads it
    for name in variant.entry.outputs:
        arguments[name], outputs[name], gaps[name] = output_of(variant, problem, name)
    function = getattr(module, variant.entry.function)
    values = [arguments[name] for name in variant.signature(function)]
    result = run_lowered(mlir, (grid,), values, variant.entry.outputs, programs)
    complaints = [str(fault) for fault in result.faults[:2]]
    if result.num_faults:
        complaints.append(f"{result.num_faults} faults in all")
    for name in result.touched_guards:
        complaints.append(f"the guard zone of {name} changed")
    for name in outputs:
        if result.rewritten_bytes[name]:
            complaints.append(f"{result.rewritten_bytes[name]} bytes of {name} were written more than once")
        if (programs is None or len(programs) == grid) and result.unwritten_bytes[name] != gaps[name]:
            complaints.append(f"{result.unwritten_bytes[name] - gaps[name]} bytes of {name} were never written")
    return outputs, result, complaints


def complaints_of(variant, problem, grid=7, programs=None, module=kernels):
    """What is wrong with a kernel's run; empty when nothing is. Outputs are compared with the C++ library's."""
    outputs, _, complaints = run(variant, problem, grid, programs, module)
    expected = problem.expected(variant.entry.op, variant.weights is not None)
    for name, got in outputs.items():
        if name == "dw":
            complaints.append(dw_difference(got, expected[name], problem, variant.dw))
        else:
            complaints.append(difference(got, expected[name], name))
    return [text for text in complaints if text]
