"""The second oracle: docs/design.md, section 2, in numpy, written without a look at the library.

Plain and slow. Arrays are numpy's; bf16 is ml_dtypes' bfloat16. A plan's indices and bin_ids are cut to N.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
ROW_DTYPES = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "bf16": BF16,
    "f16": np.dtype(np.float16),
}
POLICIES = ("token_order", "choice_order", "by_weight")


class FaultError(ValueError):
    """The first thing that is wrong with the data: check, position, value, limit."""

    def __init__(self, check, position, value, limit):
        super().__init__(f"{check}: position {position}, value {value}, limit {limit}")
        self.fault = (check, position, value, limit)


@dataclass
class Plan:
    tokens: int
    top_k: int
    num_experts: int
    expert_capacity: int
    indices: np.ndarray
    bin_ids: np.ndarray
    bins: np.ndarray
    tokens_per_expert: np.ndarray
    kept_per_expert: np.ndarray
    row_of_assignment: np.ndarray

    def kept(self):
        """(assignment, expert row) of every kept assignment, in plan order."""
        for e in range(self.num_experts):
            start = int(self.bins[e - 1]) if e else 0
            for c in range(int(self.kept_per_expert[e])):
                yield int(self.indices[start + c]), e * self.expert_capacity + c


def plan(expert_ids, num_experts, expert_capacity, policy="token_order", weights=None):
    """Sort the assignments by expert and policy, then cut every expert at the capacity."""
    tokens, top_k = expert_ids.shape
    expert = [int(e) for e in expert_ids.reshape(-1)]
    for a, e in enumerate(expert):
        if not -1 <= e < num_experts:
            raise FaultError("expert_id_range", a, e, num_experts)
    unmasked = [a for a, e in enumerate(expert) if e != -1]
    if policy == "token_order":
        order = sorted(unmasked, key=lambda a: (expert[a], a))
    elif policy == "choice_order":
        order = sorted(unmasked, key=lambda a: (expert[a], a % top_k, a // top_k))
    elif policy == "by_weight":
        w = [float(v) for v in weights.reshape(-1)]
        order = sorted(unmasked, key=lambda a: (expert[a], math.isnan(w[a]), 0.0 if math.isnan(w[a]) else -w[a], a))
    else:
        raise ValueError(policy)
    counts = [0] * num_experts
    for a in unmasked:
        counts[expert[a]] += 1
    return plan_from_bins(order, np.cumsum(counts), tokens, top_k, expert_capacity)


def plan_from_bins(indices, bins, tokens, top_k, expert_capacity):
    """Complete sound bins: inside an expert the first expert_capacity are kept, in the order they stand."""
    num_experts = len(bins)
    bin_ids, counts, kept, rows = [], [], [], [-1] * (tokens * top_k)
    for e in range(num_experts):
        start = int(bins[e - 1]) if e else 0
        count = int(bins[e]) - start
        counts.append(count)
        kept.append(min(count, expert_capacity))
        bin_ids += [e] * count
        for c in range(kept[e]):
            rows[int(indices[start + c])] = e * expert_capacity + c
    as_int32 = [np.array(v, np.int32) for v in (indices, bin_ids, bins, counts, kept, rows)]
    as_int32[5] = as_int32[5].reshape(tokens, top_k)
    return Plan(tokens, top_k, num_experts, expert_capacity, *as_int32)


def load(p):
    """kept, dropped, masked, empty_rows, max_over_mean_load."""
    n, kept = int(p.bins[-1]), int(p.kept_per_expert.sum())
    most = int(p.tokens_per_expert.max())
    return {
        "kept": kept,
        "dropped": n - kept,
        "masked": p.tokens * p.top_k - n,
        "empty_rows": p.num_experts * p.expert_capacity - kept,
        "max_over_mean_load": most * p.num_experts / n if n else 0.0,
    }


def expert_capacity(factor, tokens, top_k, num_experts, multiple=1):
    """ceil(F * T * K / E) with F as its shortest decimal, then up to a multiple."""
    exact = math.ceil(Fraction(repr(float(factor))) * tokens * top_k / num_experts)
    return -(-exact // multiple) * multiple


def step_dtype(row_dtype):
    """The dtype in which every step of the arithmetic is done and rounded."""
    return np.float64 if row_dtype == np.float64 else np.float32


def gather(p, x, weights=None):
    """y[row] = w[a] * x[a / K]; empty rows are +0; without weights a byte copy."""
    step = step_dtype(x.dtype)
    y = np.zeros((p.num_experts * p.expert_capacity, x.shape[1]), x.dtype)
    with np.errstate(all="ignore"):
        for a, row in p.kept():
            if weights is None:
                y[row] = x[a // p.top_k]
            else:
                y[row] = (weights.reshape(-1)[a].astype(step) * x[a // p.top_k].astype(step)).astype(x.dtype)
    return y


def scatter(p, y, weights=None):
    """out[t] = sum over k in order, from +0, of w[t, k] * y[row]; every step is rounded, then once to y's dtype."""
    step = step_dtype(y.dtype)
    out = np.zeros((p.tokens, y.shape[1]), y.dtype)
    with np.errstate(all="ignore"):
        for t in range(p.tokens):
            total = np.zeros(y.shape[1], step)
            for k in range(p.top_k):
                row = p.row_of_assignment[t, k]
                if row < 0:
                    continue
                term = y[row].astype(step)
                if weights is not None:
                    term = weights.reshape(p.tokens, p.top_k)[t, k].astype(step) * term
                total = total + term
            out[t] = total.astype(y.dtype)
    return out


def wgrad(p, y, grad):
    """dot(y[row], grad[t]), +0 where -1, and the error that a backend may make: H * 2^-24 * sum |y*grad|.

    Both are long doubles, whose own error does not count. Rows of f64: 2^-53 instead of 2^-24.
    """
    unit = 2.0**-53 if y.dtype == np.float64 else 2.0**-24
    dw = np.zeros((p.tokens, p.top_k), np.longdouble)
    bound = np.zeros_like(dw)
    with np.errstate(all="ignore"):
        for t in range(p.tokens):
            for k in range(p.top_k):
                row = p.row_of_assignment[t, k]
                if row >= 0:
                    products = y[row].astype(np.longdouble) * grad[t].astype(np.longdouble)
                    dw[t, k] = products.sum()
                    bound[t, k] = y.shape[1] * unit * np.abs(products).sum()
    return dw, bound


def scatter_backward(p, y, grad, weights=None):
    """dy = gather(grad, w); dw = wgrad(y, grad) as (value, bound)."""
    return gather(p, grad, weights), wgrad(p, y, grad)


def gather_backward(p, dy, x, weights=None):
    """dx = scatter(dy, w); dw = wgrad(dy, x) as (value, bound). Empty rows of dy are never read."""
    return scatter(p, dy, weights), wgrad(p, dy, x)
