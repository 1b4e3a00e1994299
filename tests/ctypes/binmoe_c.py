"""binmoe_c.h through ctypes, on numpy arrays. Outputs are the caller's, as in C."""

import ctypes
import os
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_double, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path

import ml_dtypes
import numpy as np

OK, INVALID_ARGUMENT, INVALID_DATA, UNSUPPORTED, OUT_OF_MEMORY = range(5)
F32, F64, BF16, F16, BYTES = range(5)
DTYPES = {np.dtype(t): i for i, t in enumerate((np.float32, np.float64, ml_dtypes.bfloat16, np.float16))}
ID_TYPES = {np.dtype(t): i for i, t in enumerate((np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64))}
POLICIES = {"token_order": 0, "choice_order": 1, "by_weight": 2}
BODY = CFUNCTYPE(None, c_void_p, c_int64)
PARALLEL_FOR = CFUNCTYPE(None, c_void_p, c_int64, BODY, c_void_p)


class Rows(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("rows", c_int64),
        ("cols", c_int64),
        ("stride", c_int64),
        ("dtype", c_int32),
        ("element_bytes", c_int32),
    ]


class Array(Structure):
    _fields_ = [("data", c_void_p), ("count", c_int64), ("type", c_int32)]


class Sizes(Structure):
    _fields_ = [("tokens", c_int64), ("top_k", c_int32), ("num_experts", c_int32), ("expert_capacity", c_int32)]


class PlanArrays(Structure):
    _fields_ = [
        ("sizes", Sizes),
        ("indices", c_void_p),
        ("bin_ids", c_void_p),
        ("row_of_assignment", c_void_p),
        ("bins", c_void_p),
        ("tokens_per_expert", c_void_p),
        ("kept_per_expert", c_void_p),
        ("status", c_void_p),
    ]


class Bins(Structure):
    _fields_ = [
        ("indices", c_void_p),
        ("bin_ids", c_void_p),
        ("count", c_int64),
        ("bins", c_void_p),
        ("num_experts", c_int64),
    ]


class Fault(Structure):
    _fields_ = [("check", c_char_p), ("position", c_int64), ("value", c_int64), ("limit", c_int64)]

    def astuple(self):
        return (self.check.decode() if self.check else None, self.position, self.value, self.limit)


class Context(Structure):
    _fields_ = [
        ("backend", c_char_p),
        ("options", c_char_p),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
        ("parallel_for", PARALLEL_FOR),
        ("parallel_state", c_void_p),
        ("concurrency", c_int32),
        ("memory", c_int32),
        ("stream", c_void_p),
    ]


def load_library():
    root = Path(__file__).resolve().parents[2]
    lib = ctypes.CDLL(os.environ.get("BINMOE_LIBRARY", str(root / "build/tests/lib/libbinmoe.so")))
    rows, array, plan, context = POINTER(Rows), POINTER(Array), POINTER(PlanArrays), POINTER(Context)
    arguments = {
        "plan": [array, c_int32, array, plan, context],
        "plan_from_bins": [POINTER(Bins), plan, context],
        "plan_workspace_bytes": [POINTER(Sizes), c_int32, c_int32, context, POINTER(c_size_t)],
        "check": [plan, context, POINTER(Fault)],
        "check_bins": [POINTER(Bins), POINTER(Sizes), context, POINTER(Fault)],
        "gather": [plan, rows, array, rows, context],
        "scatter": [plan, rows, array, rows, context],
        "wgrad": [plan, rows, rows, array, context],
        "scatter_backward": [plan, rows, rows, array, rows, array, context],
        "gather_backward": [plan, rows, array, rows, rows, array, context],
        "expert_capacity": [c_double, c_int64, c_int32, c_int32, c_int32, POINTER(c_int32)],
        "backend_name": [c_int32],
        "backend_unsupported": [c_int32],
    }
    for name, types in arguments.items():
        getattr(lib, "binmoe_" + name).argtypes = types
    for name in ("version", "last_error", "backend_name", "backend_unsupported"):
        getattr(lib, "binmoe_" + name).restype = c_char_p
    lib.binmoe_last_fault.restype = Fault
    return lib


lib = load_library()


class BinmoeError(Exception):
    """A call that failed: its code, the text of last_error and the tuple of last_fault."""

    def __init__(self, code):
        super().__init__(lib.binmoe_last_error().decode())
        self.code = code
        self.fault = lib.binmoe_last_fault().astuple()


def call(name, *arguments):
    code = getattr(lib, "binmoe_" + name)(*arguments)
    if code != OK:
        raise BinmoeError(code)


def backends():
    """{name: None when it runs here, else the reason}."""
    found = {}
    for i in range(lib.binmoe_backend_count()):
        reason = lib.binmoe_backend_unsupported(i)
        found[lib.binmoe_backend_name(i).decode()] = reason.decode() if reason else None
    return found


def context(variant=None, **fields):
    """A context from "BACKEND" or "BACKEND OPTIONS"."""
    backend, _, options = (variant or "").partition(" ")
    return Context(backend=backend.encode() or None, options=options.encode() or None, **fields)


def rows(array, as_bytes=False):
    """A 2-d array, contiguous inside a row, as binmoe_rows; None is absent."""
    if array is None:
        return None
    item = array.dtype.itemsize
    dtype = BYTES if as_bytes else DTYPES[array.dtype]
    return Rows(array.ctypes.data, *array.shape, array.strides[0] // item, dtype, item if as_bytes else 0)


def values(array, types=DTYPES):
    """A contiguous array as binmoe_array; None is absent."""
    return None if array is None else Array(array.ctypes.data, array.size, types[array.dtype])


class Plan:
    """The six arrays of a plan and its status, filled with a number that no plan holds."""

    def __init__(self, tokens, top_k, num_experts, expert_capacity):
        self.sizes = Sizes(tokens, top_k, num_experts, expert_capacity)
        room = max(tokens, 0) * max(top_k, 0)
        self.indices, self.bin_ids, self.row_of_assignment = (np.full(room, -77, np.int32) for _ in range(3))
        experts = max(num_experts, 0)
        self.bins, self.tokens_per_expert, self.kept_per_expert = (np.full(experts, -77, np.int32) for _ in range(3))
        self.status = np.array([0, -77, -77])  # none was out of range: check() looks at the first alone

    @property
    def arrays(self):
        names = [name for name, _ in PlanArrays._fields_[1:]]
        return PlanArrays(self.sizes, *(getattr(self, name).ctypes.data for name in names))


def make_plan(expert_ids, num_experts, expert_capacity, policy="token_order", priority=None, ctx=None):
    made = Plan(*expert_ids.shape, num_experts, expert_capacity)
    call("plan", values(expert_ids, ID_TYPES), POLICIES[policy], values(priority), made.arrays, ctx)
    return made


def make_bins(indices, bins, bin_ids=None):
    pointer = None if bin_ids is None else bin_ids.ctypes.data
    return Bins(indices.ctypes.data, pointer, len(indices), bins.ctypes.data, len(bins))


def plan_from_bins(indices, bins, bin_ids, tokens, top_k, expert_capacity, ctx=None):
    made = Plan(tokens, top_k, len(bins), expert_capacity)
    call("plan_from_bins", make_bins(indices, bins, bin_ids), made.arrays, ctx)
    return made


def check(plan):
    """The first fault as a tuple, or None."""
    fault = Fault()
    code = lib.binmoe_check(plan.arrays, None, byref(fault))
    return None if code == OK else fault.astuple()


def expert_capacity(factor, tokens, top_k, num_experts, multiple=1):
    capacity = c_int32(-77)
    call("expert_capacity", factor, tokens, top_k, num_experts, multiple, byref(capacity))
    return capacity.value
