"""The C++ library by ctypes, through binmoe_c.h: tile plans of the kernels, and the operations on CPU tensors as the
answer that the kernels are held against. Needs no compiled Python module."""

import ctypes
import functools
import os
from ctypes import Structure, byref, c_char, c_char_p, c_double, c_int32, c_int64, c_size_t, c_void_p
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from binmoe.ascend.arguments import check_map
from binmoe.ascend.routing import ID_TYPES, POLICIES, Plan, check_sizes

DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
ID_CODES = {dtype: code for code, dtype in enumerate(ID_TYPES)}
FAMILIES = ("ascendc", "triton")
ROW_COPIES = ("indexed_load", "element_insert", "index_select")
OPS = ("plan", "gather", "scatter", "wgrad", "scatter_backward")
ORDERS = ("token", "expert")


class LibraryError(RuntimeError):
    """A call was refused. code: 1 arguments, 2 data, 3 unsupported, 4 memory, 5 a bug of ours, 6 device."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Rows(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("rows", c_int64),
        ("cols", c_int64),
        ("stride", c_int64),
        ("dtype", c_int32),
        ("element_bytes", c_int32),
    )


class Array(Structure):
    _fields_ = (("data", c_void_p), ("count", c_int64), ("type", c_int32))


class Sizes(Structure):
    _fields_ = (("tokens", c_int64), ("top_k", c_int32), ("num_experts", c_int32), ("expert_capacity", c_int32))


PLAN_MAPS = ("indices", "bin_ids", "row_of_assignment", "bins", "tokens_per_expert", "kept_per_expert", "status")


class PlanArrays(Structure):
    _fields_ = (("sizes", Sizes), *((name, c_void_p) for name in PLAN_MAPS))


class Bins(Structure):
    _fields_ = (
        ("indices", c_void_p),
        ("bin_ids", c_void_p),
        ("count", c_int64),
        ("bins", c_void_p),
        ("num_experts", c_int64),
    )


class Context(Structure):
    _fields_ = (
        ("backend", c_char_p),
        ("options", c_char_p),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
        ("parallel_for", c_void_p),
        ("parallel_state", c_void_p),
        ("concurrency", c_int32),
        ("memory", c_int32),
        ("stream", c_void_p),
    )


class TileRequest(Structure):
    _fields_ = (
        ("soc", c_char_p),
        *((name, c_int32) for name in ("family", "row_copy", "op", "order", "rows", "weights", "dw", "policy")),
        *((name, c_int64) for name in ("tokens", "hidden_size", "expert_capacity")),
        *((name, c_int32) for name in ("num_experts", "top_k")),
    )


class TileBufferStruct(Structure):
    _fields_ = (("name", c_char * 64), ("bytes", c_int64), ("count", c_int32))


class Tile(Structure):
    _fields_ = (
        *((name, c_int32) for name in ("order", "row_copy", "num_programs")),
        *((name, c_int64) for name in ("items", "items_per_block", "sub_block_size", "block_x")),
        *((name, c_int64) for name in ("ub_bytes", "ub_limit_bytes")),
        ("estimate_us", c_double),
        ("num_buffers", c_int32),
        ("buffers", TileBufferStruct * 32),
    )


@dataclass(frozen=True)
class TileBuffer:
    name: str
    bytes: int
    count: int


@dataclass(frozen=True)
class TilePlan:
    """The numbers of `binmoe tile`; include/binmoe/ascend.h says what they mean."""

    op: str
    order: str
    row_copy: str | None
    num_programs: int
    items: int
    items_per_block: int
    sub_block_size: int
    block_x: int
    buffers: tuple[TileBuffer, ...]
    ub_bytes: int
    ub_limit_bytes: int
    estimate_us: float


def find_library() -> Path:
    """libbinmoe.so: $BINMOE_LIBRARY, else beside the package, else the newest of build/*/lib in the checkout (builds
    with sanitizers left out). Errors: FileNotFoundError, with the places looked at."""
    named = os.environ.get("BINMOE_LIBRARY")
    if named:
        if not Path(named).is_file():
            raise FileNotFoundError(f"BINMOE_LIBRARY names {named}, but there is no such file")
        return Path(named)
    package, checkout = Path(__file__).resolve().parents[1], Path(__file__).resolve().parents[3]
    beside = package / "libbinmoe.so"
    if beside.is_file():
        return beside
    built = [p for p in checkout.glob("build/*/lib/libbinmoe.so") if p.parts[-3] not in ("asan", "tsan")]
    if not built:
        raise FileNotFoundError(
            f"libbinmoe.so is neither named by BINMOE_LIBRARY nor at {beside} nor in {checkout}/build/*/lib; "
            "build it: cmake --preset release && cmake --build --preset release --target binmoe_shared"
        )
    return max(built, key=lambda path: path.stat().st_mtime)


@functools.cache
def load():
    """The loaded library. Errors: FileNotFoundError; LibraryError for one that is too old."""
    path = find_library()
    library = ctypes.CDLL(str(path))
    if not hasattr(library, "binmoe_tile_plan"):
        raise LibraryError(3, f"{path} is of an older binmoe: it has no binmoe_tile_plan")
    library.binmoe_last_error.restype = c_char_p
    return library


def call(name, *arguments):
    """Call a function that returns a code. Errors: LibraryError with the library's own text."""
    library = load()
    code = getattr(library, f"binmoe_{name}")(*[byref(a) if isinstance(a, Structure) else a for a in arguments])
    if code != 0:
        raise LibraryError(code, library.binmoe_last_error().decode())


def _index(names, value, what):
    if value not in names:
        raise ValueError(f"'{value}' is no {what}; there are: {', '.join(names)}")
    return names.index(value)


def tile_plan(
    soc="910B3",
    *,
    op,
    rows,
    tokens,
    hidden_size,
    num_experts,
    top_k,
    expert_capacity,
    family="triton",
    row_copy=None,
    order=None,
    weights=None,
    dw=torch.float32,
    policy="token_order",
) -> TilePlan:
    """The tile plan of a kernel. rows, weights (or None) and dw are torch dtypes.

    order     of a gather; None: of the family "ascendc" the faster one by the estimate, of "triton" token order
    row_copy  of a Triton gather in expert order, not used in token order; None: the cheaper one by the estimate
    Errors: ValueError for a name; LibraryError for what the planner refuses."""
    request = TileRequest(
        soc=soc.encode(),
        family=_index(FAMILIES, family, "kernel family"),
        row_copy=-1 if row_copy is None else _index(ROW_COPIES, row_copy, "row copy"),
        op=_index(OPS, op, "operation"),
        order=-1 if order is None else _index(ORDERS, order, "order"),
        rows=DTYPES[rows],
        weights=-1 if weights is None else DTYPES[weights],
        dw=DTYPES[dw],
        policy=_index(POLICIES, policy, "drop policy"),
        tokens=tokens,
        hidden_size=hidden_size,
        expert_capacity=expert_capacity,
        num_experts=num_experts,
        top_k=top_k,
    )
    tile = Tile()
    call("tile_plan", request, tile)
    buffers = tuple(TileBuffer(b.name.decode(), b.bytes, b.count) for b in tile.buffers[: tile.num_buffers])
    named = ("order", "row_copy", "num_buffers", "buffers")
    numbers = {name: getattr(tile, name) for name, _ in Tile._fields_ if name not in named}
    copy = None if tile.row_copy < 0 else ROW_COPIES[tile.row_copy]
    return TilePlan(op=op, order=ORDERS[tile.order], row_copy=copy, buffers=buffers, **numbers)


def _context(backend):
    return Context(backend=None if backend is None else backend.encode())


def _rows(tensor):
    """A view of [..., hidden_size] rows of one distance; None is an absent argument."""
    if tensor is None:
        return None
    matrix = tensor.detach()
    if matrix.is_contiguous():
        matrix = matrix.view(matrix.shape[:-1].numel(), matrix.shape[-1])
    if matrix.dim() != 2 or (matrix.shape[1] > 1 and matrix.stride(1) != 1):
        raise ValueError("rows must be a matrix that is contiguous inside its rows")
    stride = matrix.stride(0) if matrix.shape[0] > 1 else matrix.shape[1]
    return Rows(matrix.data_ptr(), matrix.shape[0], matrix.shape[1], stride, DTYPES[matrix.dtype], 0)


def _array(tensor, types=DTYPES):
    """An input in any layout, or a contiguous output; None is an absent argument."""
    if tensor is None:
        return None
    values = tensor.detach().contiguous()
    array = Array(values.data_ptr(), values.numel(), types[values.dtype])
    array.values = values  # a copy lives as long as what points at it
    return array


def _check_int32(name, tensor):
    if tensor.dtype != torch.int32 or not tensor.is_contiguous():
        raise ValueError(f"[plan] {name} is {tensor.dtype}, strides {tensor.stride()}, but must be contiguous int32")


def _plan_arrays(plan):
    """Errors: ValueError; maps of another length or dtype than the plan's, or not contiguous."""
    sizes = Sizes(plan.tokens, plan.top_k, plan.num_experts, plan.expert_capacity)
    for name in PLAN_MAPS[:-1]:
        check_map(plan, name)
        _check_int32(name, getattr(plan, name))
    return PlanArrays(sizes, *(getattr(plan, name).data_ptr() for name in PLAN_MAPS[:-1]))


def _empty_plan(tokens, top_k, num_experts, expert_capacity):
    check_sizes("plan", tokens, top_k, num_experts, expert_capacity)
    a, e = tokens * top_k, num_experts
    lengths = {"indices": a, "bin_ids": a, "bins": e, "tokens_per_expert": e, "kept_per_expert": e}
    maps = {name: torch.empty(length, dtype=torch.int32) for name, length in lengths.items()}
    rows = torch.empty((tokens, top_k), dtype=torch.int32)
    return Plan(tokens, top_k, num_experts, expert_capacity, row_of_assignment=rows, **maps)


def make_plan(expert_ids, num_experts, expert_capacity, policy="token_order", priority=None, backend=None) -> Plan:
    """As binmoe.ascend.routing.plan, by the library, of CPU tensors; an id out of range is an error."""
    ids = expert_ids.contiguous()
    plan = _empty_plan(*ids.shape, num_experts, expert_capacity)
    arrays, code = _plan_arrays(plan), _index(POLICIES, policy, "drop policy")
    call("plan", _array(ids, ID_CODES), code, _array(priority), arrays, _context(backend))
    return plan


def plan_from_bins(indices, bins, tokens, top_k, expert_capacity, bin_ids=None, backend=None) -> Plan:
    """As binmoe.ascend.routing.plan_from_bins, by the library, with its checks; contiguous int32 arrays alone."""
    plan = _empty_plan(tokens, top_k, bins.numel(), expert_capacity)
    for name, tensor in (("indices", indices), ("bins", bins), ("bin_ids", bin_ids)):
        if tensor is not None:
            _check_int32(name, tensor)
    if bin_ids is not None and bin_ids.numel() != indices.numel():
        raise ValueError(f"[plan] bin_ids has {bin_ids.numel()} entries, but indices has {indices.numel()}")
    ids = None if bin_ids is None else bin_ids.data_ptr()
    given = Bins(indices.data_ptr(), ids, indices.numel(), bins.data_ptr(), bins.numel())
    call("plan_from_bins", given, _plan_arrays(plan), _context(backend))
    return plan


def check(plan):
    """The library's checks of a plan, fetched to the CPU. Errors: LibraryError: check, position, value and limit."""
    maps = {name: getattr(plan, name).to(device="cpu", dtype=torch.int32).contiguous() for name in PLAN_MAPS[:-1]}
    call("check", _plan_arrays(replace(plan, **maps)), None, None)


def gather(plan, x, weights=None, y=None, backend=None):
    y = torch.empty((plan.expert_rows, x.shape[-1]), dtype=x.dtype) if y is None else y
    call("gather", _plan_arrays(plan), _rows(x), _array(weights), _rows(y), _context(backend))
    return y


def scatter(plan, y, weights=None, out=None, backend=None):
    out = torch.empty((plan.tokens, y.shape[-1]), dtype=y.dtype) if out is None else out
    call("scatter", _plan_arrays(plan), _rows(y), _array(weights), _rows(out), _context(backend))
    return out


def wgrad(plan, y, grad, dtype=torch.float32, backend=None):
    dw = torch.empty((plan.tokens, plan.top_k), dtype=dtype)
    call("wgrad", _plan_arrays(plan), _rows(y), _rows(grad), _array(dw), _context(backend))
    return dw
