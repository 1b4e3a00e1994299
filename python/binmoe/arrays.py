"""The operations on numpy arrays; `import binmoe` offers them as binmoe.plan, binmoe.gather, ...

Words, formulas and rounding: docs/design.md, sections 1 and 2. Rows are float32, float64, float16 or ml_dtypes'
bfloat16, and anything of a fixed size in the unweighted gather. Arrays with other strides than rows at one distance
are copied first. The backend is the best one that works on the host, or the one that BINMOE_BACKEND names; calls
release the interpreter lock. Errors: TypeError for a type or dtype, ValueError for anything else that a caller gave
wrong.
"""

from operator import index

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from binmoe import _native
from binmoe.maps import HOST, Load, Sizes, load_of, map_length, map_range, policy_code, row_stride

__all__ = [
    "Load",
    "Plan",
    "Sizes",
    "gather",
    "gather_backward",
    "plan",
    "scatter",
    "scatter_backward",
    "wgrad",
]

# DType and IdType of include/binmoe/types.h.
_FLOATS = {
    np.dtype(np.float32): 0,
    np.dtype(np.float64): 1,
    np.dtype(ml_dtypes.bfloat16): 2,
    np.dtype(np.float16): 3,
}
_FLOAT_NAMES = "float32, float64, bfloat16 or float16"
_BYTES = 4
_IDS = {np.dtype(name): code for code, name in enumerate(["int8", "uint8", "int16", "uint16", "int32", "int64"])}
_PLACE = (HOST, 0)
_ABSENT = (0, 0, 0)
_NO_ROWS = (0, 0, 0, 0, 0, 0)


class Plan:
    """Who goes where: the maps of one batch, and its sizes.

    indices            [N] int32  assignments a = t*K + k, ordered by expert, then by the drop policy
    bin_ids            [N] int32  their experts
    bins               [E] int32  inclusive cumulative counts; bins[E-1] == N
    tokens_per_expert  [E] int32  counts before the capacity cut
    kept_per_expert    [E] int32  counts after it
    row_of_assignment  [T, K] int32  expert row of an assignment, or -1 (dropped or masked)
    sizes              Sizes(tokens, top_k, num_experts, expert_capacity)
    Memory: 12*(T*K + E) + 24 bytes, in one block of which the maps are views.
    """

    def __init__(self, sizes: Sizes | tuple[int, int, int, int]):
        """Room for a plan of these sizes. binmoe.plan and Plan.from_bins make plans."""
        sizes = Sizes(*sizes)
        self.__setstate__((sizes, np.empty(map_length(*sizes[:3]), np.int32)))

    def __getstate__(self):
        return self.sizes, self._maps

    def __setstate__(self, state):
        self.sizes, self._maps = state
        self._argument = (_address(self._maps), *self.sizes)

    def _map(self, name):
        begin, end = map_range(name, *self.sizes[:3])
        return self._maps[begin:end]

    @property
    def indices(self) -> np.ndarray:
        return self._map("indices")[: self._map("bins")[-1]]

    @property
    def bin_ids(self) -> np.ndarray:
        return self._map("bin_ids")[: self._map("bins")[-1]]

    @property
    def bins(self) -> np.ndarray:
        return self._map("bins")

    @property
    def tokens_per_expert(self) -> np.ndarray:
        return self._map("tokens_per_expert")

    @property
    def kept_per_expert(self) -> np.ndarray:
        return self._map("kept_per_expert")

    @property
    def row_of_assignment(self) -> np.ndarray:
        return self._map("row_of_assignment").reshape(self.sizes.tokens, self.sizes.top_k)

    def load(self) -> Load:
        """Load(kept, dropped, masked, empty, max_over_mean)."""
        return load_of(self.tokens_per_expert.tolist(), self.kept_per_expert.tolist(), self.sizes)

    def check(self) -> None:
        """Raise ValueError at the first thing that is wrong with the maps. Cost: O(T*K + E)."""
        _native.check(self._argument, _PLACE)

    @staticmethod
    def from_bins(
        indices: ArrayLike,
        bins: ArrayLike,
        top_k: int,
        num_tokens: int,
        expert_capacity: int,
        bin_ids: ArrayLike | None = None,
    ) -> "Plan":
        """Complete a plan from bins that another system made (MegaBlocks' indices and bins).

        indices  [N] any integer dtype, N <= T*K; inside an expert the first C are kept, in the order they stand
        bins     [E] any integer dtype
        bin_ids  [N] any integer dtype; optional, and then checked
        Errors: the first fault that docs/errors.md knows, with its position, value and limit.
        """
        indices, bins = _map_input("indices", indices), _map_input("bins", bins)
        bin_ids = None if bin_ids is None else _map_input("bin_ids", bin_ids)
        if bin_ids is not None and len(bin_ids) != len(indices):
            raise ValueError(f"[plan_from_bins] bin_ids has {len(bin_ids)} entries, but indices has {len(indices)}")
        made = Plan((index(num_tokens), index(top_k), len(bins), index(expert_capacity)))
        own = 0 if bin_ids is None else _address(bin_ids)
        count, num_experts = len(indices), len(bins)
        _native.plan_from_bins(_address(indices), own, count, _address(bins), num_experts, made._argument, _PLACE)
        return made

    def __repr__(self):
        sizes = ", ".join(f"{name}={value}" for name, value in self.sizes._asdict().items())
        return f"binmoe.Plan({sizes})"


def plan(
    expert_ids: ArrayLike,
    num_experts: int,
    expert_capacity: int,
    policy: str = "token_order",
    weights: ArrayLike | None = None,
    *,
    out: Plan | None = None,
) -> Plan:
    """Sort the router's choices into expert bins and cut them at the capacity.

    expert_ids  [T, K] int8, uint8, int16, uint16, int32 or int64; values in [-1, E); -1 = masked
    policy      "token_order", "choice_order" or "by_weight": who keeps a row when an expert overflows
    weights     [T, K] or [T*K], for by_weight only
    out         a Plan of the same sizes, to be overwritten
    Errors: an id out of range (position, value, limit); T*K or E*C >= 2^31; K < 1; E < 1; C < 0.
    Order: exact, the same on every backend.
    """
    ids = np.ascontiguousarray(_array("plan", "expert_ids", expert_ids))
    if np.ndim(expert_ids) != 2:
        raise ValueError(f"[plan] expert_ids has {np.ndim(expert_ids)} dimensions, but must be [tokens, top_k]")
    if ids.dtype not in _IDS:
        raise TypeError(f"[plan] expert_ids has dtype {ids.dtype}, but must be int8 to int64, uint8 or uint16")
    sizes = Sizes(*ids.shape, index(num_experts), index(expert_capacity))
    made = Plan(sizes) if out is None else out
    if not isinstance(made, Plan) or made.sizes != sizes:
        raise ValueError(f"[plan] out is {made!r}, but must be a Plan of {sizes}")
    priority, _held = weights_argument("plan", "weights", weights, sizes)
    argument = (_address(ids), ids.size, _IDS[ids.dtype])
    _native.plan(argument, policy_code(policy), priority, made._argument, 0, 0, _PLACE)
    return made


def gather(x: ArrayLike, plan: Plan, weights: ArrayLike | None = None, *, out: np.ndarray | None = None) -> np.ndarray:
    """Gather token rows into expert order.

    y[e, c] = w[a] * x[a // K], a = indices[start_e + c]; empty rows are 0; without weights a byte copy.
    x        [T, H]
    weights  [T, K] or [T*K] float32, bfloat16, float16; float64 with rows of float64
    out      [E, C, H] as x; must not overlap an input; every element is written
    Cost: reads U*H, writes E*C*H elements (U: tokens with a kept row). Order: bit-identical on every backend.
    """
    _require_apart("gather", {"out": out}, x=x, weights=weights)
    x = _rows("gather", "x", x, 2)
    y, target = _output("gather", "out", out, _expert_shape("gather", plan, x), x.dtype)
    w, _held = weights_argument("gather", "weights", weights, plan.sizes)
    _native.gather(plan._argument, _rows_argument(x), w, _rows_argument(y), _PLACE)
    return _deliver(y, target)


def scatter(y: ArrayLike, plan: Plan, weights: ArrayLike | None = None, *, out: np.ndarray | None = None) -> np.ndarray:
    """Combine expert rows per token.

    out[t] = sum over k = 0..K-1, in that order, of w[t, k] * y[row_of_assignment[t, k]] in float32 (float64 rows:
    float64), rounded once; -1 adds nothing.
    y        [E, C, H]
    weights  as in gather
    out      [T, H] as y
    Cost: reads A*H, writes T*H elements (A: kept rows). Order: bit-identical on every backend.
    """
    _require_apart("scatter", {"out": out}, y=y, weights=weights)
    y = _expert_rows("scatter", "y", y, plan)
    out, target = _output("scatter", "out", out, (plan.sizes.tokens, y.shape[2]), y.dtype)
    w, _held = weights_argument("scatter", "weights", weights, plan.sizes)
    _native.scatter(plan._argument, _rows_argument(y), w, _rows_argument(out), _PLACE)
    return _deliver(out, target)


def wgrad(
    y: ArrayLike, grad: ArrayLike, plan: Plan, dtype: DTypeLike | None = None, *, out: np.ndarray | None = None
) -> np.ndarray:
    """Gradient of scatter with respect to the weights: dw[t, k] = dot(y[row_of_assignment[t, k]], grad[t]), 0 where -1.

    y      [E, C, H]
    grad   [T, H] as y
    dtype  of dw; None = float32 (float64 rows: float64)
    out    [T, K] or [T*K], contiguous
    Order: fixed per backend; |error| <= H * 2^-24 * sum |y*grad|.
    """
    _require_apart("wgrad", {"out": out}, y=y, grad=grad)
    y, grad = _expert_rows("wgrad", "y", y, plan), _rows("wgrad", "grad", grad, 2)
    dw = _weight_gradients("wgrad", plan, dtype, y, out)
    _native.wgrad(plan._argument, _rows_argument(y), _rows_argument(grad), _gradient_argument(dw), _PLACE)
    return dw


def scatter_backward(
    y: ArrayLike | None,
    grad: ArrayLike,
    plan: Plan,
    weights: ArrayLike | None = None,
    *,
    need_dw: bool = True,
    out: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Backward of scatter in one pass: dy = gather(grad, weights), dw = wgrad(y, grad).

    need_dw  False: dw is None and y may be None
    out      (dy, dw); dw in the dtype of the weights (none: as in wgrad)
    """
    own_dy, own_dw = (None, None) if out is None else out
    _require_apart("scatter_backward", {"dy": own_dy, "dw": own_dw}, y=y, grad=grad, weights=weights)
    grad = _rows("scatter_backward", "grad", grad, 2)
    dy, target = _output("scatter_backward", "dy", own_dy, _expert_shape("scatter_backward", plan, grad), grad.dtype)
    w, held = weights_argument("scatter_backward", "weights", weights, plan.sizes)
    y_argument, dw = _NO_ROWS, None
    if need_dw:
        y = _expert_rows("scatter_backward", "y", y, plan)
        y_argument, dw = _rows_argument(y), _weight_gradients("scatter_backward", plan, held, y, own_dw)
    grad_argument, dw_argument = _rows_argument(grad), _gradient_argument(dw)
    _native.scatter_backward(plan._argument, y_argument, grad_argument, w, _rows_argument(dy), dw_argument, _PLACE)
    return _deliver(dy, target), dw


def gather_backward(
    dy: ArrayLike,
    x: ArrayLike | None,
    plan: Plan,
    weights: ArrayLike | None = None,
    *,
    need_dw: bool = True,
    out: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Backward of gather: dx = scatter(dy, weights), dw = wgrad(dy, x). Empty rows of dy are not read.

    need_dw  False: dw is None and x may be None
    out      (dx, dw); dw in the dtype of the weights (none: as in wgrad)
    """
    own_dx, own_dw = (None, None) if out is None else out
    _require_apart("gather_backward", {"dx": own_dx, "dw": own_dw}, dy=dy, x=x, weights=weights)
    dy = _expert_rows("gather_backward", "dy", dy, plan)
    dx, target = _output("gather_backward", "dx", own_dx, (plan.sizes.tokens, dy.shape[2]), dy.dtype)
    w, held = weights_argument("gather_backward", "weights", weights, plan.sizes)
    x_argument, dw = _NO_ROWS, None
    if need_dw:
        x = _rows("gather_backward", "x", x, 2)
        x_argument, dw = _rows_argument(x), _weight_gradients("gather_backward", plan, held, dy, own_dw)
    dy_argument, dw_argument = _rows_argument(dy), _gradient_argument(dw)
    _native.gather_backward(plan._argument, dy_argument, w, x_argument, _rows_argument(dx), dw_argument, _PLACE)
    return _deliver(dx, target), dw


def _address(array):
    return array.__array_interface__["data"][0]


def _array(operation, name, value):
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise TypeError(f"[{operation}] {name} has dtype {array.dtype}; elements must have a fixed size")
    return array


def _map_input(name, value):
    """[N] int32 of any integer dtype; what does not fit becomes a number that is out of every range."""
    array = _array("plan_from_bins", name, value)
    if array.dtype.kind not in "iu":
        raise TypeError(f"[plan_from_bins] {name} has dtype {array.dtype}, but must be an integer one")
    if array.ndim != 1:
        raise ValueError(f"[plan_from_bins] {name} has {array.ndim} dimensions, but must have one")
    if array.dtype.itemsize > 2 and array.dtype != np.int32:
        array = array.clip(-1 if array.dtype.kind == "i" else 0, 2**31 - 1)
    return np.ascontiguousarray(array, np.int32)


def _element_strides(array):
    size = max(array.itemsize, 1)
    return None if any(step % size for step in array.strides) else [step // size for step in array.strides]


def _is_rows(array):
    strides = _element_strides(array)
    return strides is not None and row_stride(array.shape, strides) is not None


def _rows(operation, name, value, dimensions):
    array = _array(operation, name, value)
    if array.ndim != dimensions:
        shape = "[tokens, hidden_size]" if dimensions == 2 else "[num_experts, expert_capacity, hidden_size]"
        raise ValueError(f"[{operation}] {name} has {array.ndim} dimensions, but must be {shape}")
    return array if _is_rows(array) else np.ascontiguousarray(array)


def _expert_rows(operation, name, value, plan):
    require_plan(operation, plan)
    array = _rows(operation, name, value, 3)
    _require_shape(operation, name, array.shape, (*plan.sizes[2:], array.shape[2]))
    if array.dtype not in _FLOATS:
        raise TypeError(f"[{operation}] {name} has dtype {array.dtype}, but must be {_FLOAT_NAMES}")
    return array


def require_plan(operation, plan):
    if not isinstance(plan, Plan):
        raise TypeError(f"[{operation}] plan is {type(plan).__name__}, but must be a binmoe.Plan")


def _expert_shape(operation, plan, x):
    require_plan(operation, plan)
    return (plan.sizes.num_experts, plan.sizes.expert_capacity, x.shape[1])


def _require_shape(operation, name, shape, wanted):
    if tuple(shape) != tuple(wanted):
        raise ValueError(f"[{operation}] {name} has the shape {list(shape)}, but must have {list(wanted)}")


def _rows_argument(array):
    rows = array.shape[0] if array.ndim == 2 else array.shape[0] * array.shape[1]
    stride = row_stride(array.shape, _element_strides(array))
    return _address(array), rows, array.shape[-1], stride, _FLOATS.get(array.dtype, _BYTES), array.itemsize


def _output(operation, name, out, shape, dtype):
    """(array to write, the caller's when that is another one)."""
    if out is None:
        try:
            return np.empty(shape, dtype), None
        except MemoryError:
            wanted = int(np.prod(shape, dtype=object)) * dtype.itemsize
            raise MemoryError(f"[{operation}] cannot allocate {wanted} bytes") from None
    if not isinstance(out, np.ndarray):
        raise TypeError(f"[{operation}] {name} is {type(out).__name__}, but must be a numpy array")
    _require_shape(operation, name, out.shape, shape)
    if out.dtype != dtype:
        raise TypeError(f"[{operation}] {name} has dtype {out.dtype}, but must have {dtype}")
    if not out.flags.writeable:
        raise ValueError(f"[{operation}] {name} is read-only")
    return (out, None) if _is_rows(out) else (np.empty(shape, dtype), out)


def _require_apart(operation, outputs, **inputs):
    """The library compares what it is given; this, arrays of which it may be given a copy."""
    given = {name: out for name, out in outputs.items() if isinstance(out, np.ndarray)}
    for name, out in given.items():
        for other_name, other in (inputs | given).items():
            if other_name != name and isinstance(other, np.ndarray) and np.may_share_memory(out, other):
                raise ValueError(f"[{operation}] {name} overlaps {other_name} in memory; an output needs its own")


def _deliver(result, target):
    if target is None:
        return result
    target[...] = result
    return target


def weights_argument(operation, name, value, sizes):
    """(argument, the array that keeps its address alive)."""
    if value is None:
        return _ABSENT, None
    array = np.ascontiguousarray(_array(operation, name, value))
    if array.dtype not in _FLOATS:
        raise TypeError(f"[{operation}] {name} has dtype {array.dtype}, but must be {_FLOAT_NAMES}")
    shape = np.shape(value)
    if shape not in ((sizes.tokens, sizes.top_k), (sizes.tokens * sizes.top_k,)):
        wanted = f"{[sizes.tokens, sizes.top_k]} or {[sizes.tokens * sizes.top_k]}"
        raise ValueError(f"[{operation}] {name} has the shape {list(shape)}, but must have {wanted}")
    return (_address(array), array.size, _FLOATS[array.dtype]), array


def _weight_gradients(operation, plan, like, rows, out):
    """The caller's dw, or a new one in the dtype `like` (a dtype, an array or None)."""
    shape = (plan.sizes.tokens, plan.sizes.top_k)
    if out is None:
        if like is None:
            like = np.float64 if rows.dtype == np.float64 else np.float32
        dtype = like.dtype if isinstance(like, np.ndarray) else np.dtype(like)
        shape = like.shape if isinstance(like, np.ndarray) else shape
        if dtype not in _FLOATS:
            raise TypeError(f"[{operation}] dw would have dtype {dtype}, but must have a float one")
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray) or out.dtype not in _FLOATS:
        raise TypeError(f"[{operation}] dw must be a numpy array of float32, float64, bfloat16 or float16")
    if out.shape not in (shape, (shape[0] * shape[1],)):
        raise ValueError(f"[{operation}] dw has the shape {list(out.shape)}, but must have {list(shape)}")
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError(f"[{operation}] dw must be contiguous and writeable")
    return out


def _gradient_argument(dw):
    return _ABSENT if dw is None else (_address(dw), dw.size, _FLOATS[dw.dtype])
