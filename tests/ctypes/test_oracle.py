"""The library, each backend by name, against the second oracle."""

import json
from fractions import Fraction
from pathlib import Path

import binmoe_c as b
import numpy as np
import oracle
import pytest
from cases import (
    ID_TYPES,
    assert_dw,
    assert_padding_untouched,
    assert_plan,
    assert_same,
    nan_output,
    padded,
    routings,
)
from hypothesis import given, settings
from hypothesis import strategies as st

VECTORS = json.loads((Path(__file__).parents[1] / "data/vectors.json").read_text())
DTYPE_NAMES = sorted(oracle.ROW_DTYPES)
WEIGHT_NAMES = {name: ["f32", "bf16", "f16", None] + (["f64"] if name == "f64" else []) for name in DTYPE_NAMES}


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["name"])
@pytest.mark.parametrize("id_type", ID_TYPES, ids=lambda t: t.__name__)
def test_every_vector_comes_out_exactly(backend, case, id_type):
    ids = np.array(case["expert_ids"], np.int64).reshape(case["tokens"], case["top_k"])
    if np.dtype(id_type).kind == "u" and (ids < 0).any():
        pytest.skip("an unsigned id cannot say -1")
    dtype, hidden, ctx = oracle.ROW_DTYPES[case["dtype"]], case["hidden_size"], b.context(backend)
    weights = np.array(case["weights"], np.float32) if "weights" in case else None
    priority = weights if case["policy"] == "by_weight" else None
    plan = b.make_plan(ids.astype(id_type), case["num_experts"], case["expert_capacity"], case["policy"], priority, ctx)
    for name, want in case["plan"].items():
        want = np.array(want, np.int32).reshape(-1)
        np.testing.assert_array_equal(getattr(plan, name)[: len(want)], want, name)
    expert_rows = case["num_experts"] * case["expert_capacity"]

    def matrix(name):
        return np.array(case[name], np.float64).reshape(-1, hidden).astype(dtype)

    for name, w in (("gather", None), ("gather_weighted", weights)):
        if name in case:
            y, _ = nan_output(expert_rows, hidden, dtype)
            b.call("gather", plan.arrays, b.rows(matrix("x")), b.values(w), b.rows(y), ctx)
            assert_same(y, matrix(name), name)
    y = matrix("y" if "y" in case else "gather")
    out, _ = nan_output(case["tokens"], hidden, dtype)
    b.call("scatter", plan.arrays, b.rows(y), b.values(weights), b.rows(out), ctx)
    assert_same(out, matrix("scatter"), "scatter")
    if "grad" in case:
        dw = np.full(ids.size, np.nan, np.float32)
        b.call("wgrad", plan.arrays, b.rows(y), b.rows(matrix("grad")), b.values(dw), ctx)
        assert_same(dw, np.array(case["wgrad"], np.float32), "wgrad")


@settings(max_examples=150)
@given(routing=routings())
def test_plan_sorts_and_cuts_as_the_oracle_does(backend, routing):
    ids, num_experts, capacity, policy, priority, _ = routing
    before = ids.copy()
    plan = b.make_plan(ids, num_experts, capacity, policy, priority, b.context(backend))
    want = oracle.plan(ids, num_experts, capacity, policy, priority)
    assert_plan(plan, want)
    assert b.check(plan) is None
    np.testing.assert_array_equal(ids, before)


@settings(max_examples=80)
@given(routing=routings(), with_ids=st.booleans())
def test_plan_from_bins_keeps_the_order_in_which_they_stand(backend, routing, with_ids):
    ids, num_experts, capacity, _, _, seed = routing
    sound = oracle.plan(ids, num_experts, capacity)
    rng = np.random.default_rng(seed)
    shuffled = sound.indices.copy()
    for e in range(num_experts):
        rng.shuffle(shuffled[sound.bins[e] - sound.tokens_per_expert[e] : sound.bins[e]])
    want = oracle.plan_from_bins(shuffled, sound.bins, *ids.shape, capacity)
    bin_ids = sound.bin_ids if with_ids else None
    assert_plan(b.plan_from_bins(shuffled, sound.bins, bin_ids, *ids.shape, capacity, b.context(backend)), want)


class Movers:
    """One plan, and rows, weights and strides for it; NaN wherever nothing may be read."""

    def __init__(self, backend, routing, dtype_name, weight_name, hidden, offset, extra):
        ids, num_experts, capacity, policy, priority, seed = routing
        self.want = oracle.plan(ids, num_experts, capacity, policy, priority)
        self.ctx = b.context(backend)
        self.plan = b.make_plan(ids, num_experts, capacity, policy, priority, self.ctx)
        self.dtype, self.hidden, self.offset, self.extra = oracle.ROW_DTYPES[dtype_name], hidden, offset, extra
        self.rng = np.random.default_rng(seed)
        self.tokens, self.expert_rows = ids.shape[0], num_experts * capacity
        kept = self.want.row_of_assignment.reshape(-1) >= 0
        self.weights = None
        if weight_name:
            w = np.where(kept, self.rng.standard_normal(ids.size), np.nan)
            self.weights = w.astype(oracle.ROW_DTYPES[weight_name]).reshape(ids.shape)
        self.token_used = kept.reshape(ids.shape).any(axis=1)
        self.row_used = np.zeros(self.expert_rows, bool)
        self.row_used[self.want.row_of_assignment[self.want.row_of_assignment >= 0]] = True

    def matrix(self, used):
        values = self.rng.standard_normal((len(used), self.hidden))
        values[~used] = np.nan
        return padded(values.astype(self.dtype), self.offset, self.extra)[0]

    def run(self, name, out_rows, *arguments):
        """Call an operation whose row output is the argument `...`; return that output, its padding checked."""
        out, buffer = nan_output(out_rows, self.hidden, self.dtype, self.offset, self.extra)
        arguments = [out if a is ... else a for a in arguments]
        views = [
            b.rows(a) if a is not None and a.ndim == 2 and a is not self.weights else b.values(a) for a in arguments
        ]
        b.call(name, self.plan.arrays, *views, self.ctx)
        assert_padding_untouched(out, buffer, name)
        return out


@st.composite
def movers_arguments(draw):
    dtype_name = draw(st.sampled_from(DTYPE_NAMES))
    return {
        "routing": draw(routings()),
        "dtype_name": dtype_name,
        "weight_name": draw(st.sampled_from(WEIGHT_NAMES[dtype_name])),
        "hidden": draw(st.sampled_from([0, 1, 2, 7, 16, 33, 46])),
        "offset": draw(st.integers(0, 3)),
        "extra": draw(st.sampled_from([0, 0, 1, 5])),
    }


@settings(max_examples=150)
@given(arguments=movers_arguments())
def test_gather_and_scatter_give_the_oracles_bits(backend, arguments):
    m = Movers(backend, **arguments)
    x, y = m.matrix(m.token_used), m.matrix(m.row_used)
    assert_same(m.run("gather", m.expert_rows, x, m.weights, ...), oracle.gather(m.want, x, m.weights), "gather")
    assert_same(m.run("scatter", m.tokens, y, m.weights, ...), oracle.scatter(m.want, y, m.weights), "scatter")


@settings(max_examples=150)
@given(arguments=movers_arguments(), dw_name=st.sampled_from(DTYPE_NAMES))
def test_the_gradients_are_the_oracles(backend, arguments, dw_name):
    m = Movers(backend, **arguments)
    x, y, grad = m.matrix(m.token_used), m.matrix(m.row_used), m.matrix(m.token_used)

    def new_dw():
        return np.full(m.want.row_of_assignment.size, np.nan, oracle.ROW_DTYPES[dw_name])

    dw = new_dw()
    b.call("wgrad", m.plan.arrays, b.rows(y), b.rows(grad), b.values(dw), m.ctx)
    assert_dw(dw, oracle.wgrad(m.want, y, grad))
    dropped = m.want.row_of_assignment.reshape(-1) < 0
    assert_same(dw[dropped], np.zeros(dropped.sum(), dw.dtype), "dw of dropped assignments")

    want_dy, want_dw = oracle.scatter_backward(m.want, y, grad, m.weights)
    dw = new_dw()
    assert_same(m.run("scatter_backward", m.expert_rows, y, grad, m.weights, ..., dw), want_dy, "dy")
    assert_dw(dw, want_dw)
    assert_same(m.run("scatter_backward", m.expert_rows, None, grad, m.weights, ..., None), want_dy, "dy alone")

    want_dx, want_dw = oracle.gather_backward(m.want, y, x, m.weights)
    dw = new_dw()
    assert_same(m.run("gather_backward", m.tokens, y, m.weights, x, ..., dw), want_dx, "dx")
    assert_dw(dw, want_dw)
    assert_same(m.run("gather_backward", m.tokens, y, m.weights, None, ..., None), want_dx, "dx alone")


@pytest.mark.parametrize("element", ["u1", "u2", "c8", "c16", "S3", "S77"])
def test_an_unweighted_gather_copies_elements_of_any_size(backend, element):
    rng = np.random.default_rng(3)
    ids = rng.integers(-1, 5, (40, 3)).astype(np.int16)
    want, ctx = oracle.plan(ids, 5, 9), b.context(backend)
    plan = b.make_plan(ids, 5, 9, ctx=ctx)
    item = np.dtype(element).itemsize
    x = rng.integers(0, 256, (40, 11 * item)).astype(np.uint8)
    y = np.full((45, 11 * item), 0xA5, np.uint8)
    views = [b.Rows(m.ctypes.data, m.shape[0], 11, 11, b.BYTES, item) for m in (x, y)]
    b.call("gather", plan.arrays, views[0], None, views[1], ctx)
    np.testing.assert_array_equal(y, oracle.gather(want, x))


ROUND_SIZES = st.sampled_from([1, 2, 5, 10, 50, 64, 100, 1000])  # where the decimal and the double disagree


@settings(max_examples=400)
@given(
    factor=st.one_of(st.floats(0, 1e4), st.decimals(0, 16, places=2).map(float), st.sampled_from([0.0, 5e-324, 1e-9])),
    tokens=st.one_of(st.integers(0, 1 << 17), ROUND_SIZES),
    top_k=st.integers(1, 12),
    num_experts=st.one_of(st.integers(1, 512), ROUND_SIZES),
    multiple=st.sampled_from([1, 1, 8, 128, 1000]),
)
def test_capacity_takes_the_factor_as_its_shortest_decimal(factor, tokens, top_k, num_experts, multiple):
    want = oracle.expert_capacity(factor, tokens, top_k, num_experts, multiple)
    if want * num_experts < 2**31:
        assert b.expert_capacity(factor, tokens, top_k, num_experts, multiple) == want
    else:
        with pytest.raises(b.BinmoeError, match=r"must be fewer than 2\^31"):
            b.expert_capacity(factor, tokens, top_k, num_experts, multiple)


def test_capacity_by_hand():
    assert b.expert_capacity(1.1, 10, 1, 1) == 11
    assert b.expert_capacity(1.25, 4096, 8, 128) == 320
    assert b.expert_capacity(1.0, 10, 1, 3, 8) == 8
    assert b.expert_capacity(0.0, 10, 1, 3, 8) == 0
    assert oracle.expert_capacity(1.1, 10, 1, 1) == 11 and Fraction(1.1) * 10 > 11
