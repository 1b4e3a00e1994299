"""binmoe on numpy arrays against the second oracle, and what it refuses."""

import copy
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import binmoe
import numpy as np
import oracle
import pytest
from cases import assert_dw, assert_plan, assert_same, padded, routings
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import WEIGHT_NAMES, random_values

VECTORS = json.loads((Path(__file__).parents[1] / "data/vectors.json").read_text())
IDS = np.array([[0, 1], [2, 0], [1, 0], [-1, 2], [0, 0]])


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["name"])
def test_every_vector_comes_out_exactly(case):
    shape, hidden, dtype = (case["tokens"], case["top_k"]), case["hidden_size"], oracle.ROW_DTYPES[case["dtype"]]
    ids = np.array(case["expert_ids"], np.int64).reshape(shape)
    weights = np.array(case["weights"], np.float32).reshape(shape) if "weights" in case else None
    priority = weights if case["policy"] == "by_weight" else None
    plan = binmoe.plan(ids, case["num_experts"], case["expert_capacity"], case["policy"], priority)
    for name, want in case["plan"].items():
        assert getattr(plan, name).ravel().tolist() == np.ravel(want).tolist(), name

    def values(name, leading):
        return np.array(case[name], np.float64).reshape(*leading, hidden).astype(dtype)

    experts, tokens = (case["num_experts"], case["expert_capacity"]), (case["tokens"],)
    for name, w in (("gather", None), ("gather_weighted", weights)):
        if name in case:
            assert_same(binmoe.gather(values("x", tokens), plan, w), values(name, experts), name)
    y = values("y" if "y" in case else "gather", experts)
    assert_same(binmoe.scatter(y, plan, weights), values("scatter", tokens), "scatter")
    if "grad" in case:
        dw = binmoe.wgrad(y, values("grad", tokens), plan)
        assert_same(dw, np.array(case["wgrad"], np.float32).reshape(shape), "wgrad")


class Maps:
    """A plan's maps, indices and bin_ids with their tails, as cases.assert_plan takes them."""

    def __init__(self, plan):
        for name in ("indices", "bin_ids", "bins", "tokens_per_expert", "kept_per_expert"):
            setattr(self, name, getattr(plan, name))
        self.row_of_assignment = plan.row_of_assignment.reshape(-1)


@settings(max_examples=80)
@given(routing=routings())
def test_plan_sorts_and_cuts_as_the_oracle_does(routing):
    ids, num_experts, capacity, policy, priority, seed = routing
    plan = binmoe.plan(ids, num_experts, capacity, policy, priority)
    want = oracle.plan(ids, num_experts, capacity, policy, priority)
    assert_plan(Maps(plan), want)
    assert len(plan.indices) == len(plan.bin_ids) == len(want.indices)
    assert tuple(plan.load()) == tuple(oracle.load(want).values())
    plan.check()
    out = binmoe.plan(np.zeros_like(ids), num_experts, capacity)
    assert binmoe.plan(ids, num_experts, capacity, policy, priority, out=out) is out
    assert_plan(Maps(out), want)

    shuffled, rng = want.indices.copy(), np.random.default_rng(seed)
    for e in range(num_experts):
        rng.shuffle(shuffled[want.bins[e] - want.tokens_per_expert[e] : want.bins[e]])
    again = binmoe.Plan.from_bins(shuffled.astype(np.int64), want.bins, *ids.shape[::-1], capacity, want.bin_ids)
    assert_plan(Maps(again), oracle.plan_from_bins(shuffled, want.bins, *ids.shape, capacity))


@settings(max_examples=100)
@given(
    routing=routings(),
    hidden=st.sampled_from([0, 1, 2, 7, 33, 64, 130]),
    name=st.sampled_from(sorted(WEIGHT_NAMES)),
    data=st.data(),
)
def test_the_movers_agree_with_the_oracle(routing, hidden, name, data):
    ids, num_experts, capacity, policy, priority, seed = routing
    plan, p = binmoe.plan(ids, num_experts, capacity, policy, priority), oracle.plan(*routing[:5])
    rng, kind = np.random.default_rng(seed), data.draw(st.sampled_from(WEIGHT_NAMES[name]))
    offset, extra = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 3))
    x = random_values(rng, (p.tokens, hidden), name)
    y = np.full((num_experts * capacity, hidden), np.nan, x.dtype)
    kept = [row for _, row in p.kept()]
    y[kept] = random_values(rng, (len(kept), hidden), name)
    w = None if kind is None else random_values(rng, ids.shape, kind)
    experts = (num_experts, capacity, hidden)
    given_x, x_buffer = padded(x, offset, extra)
    given_y = padded(y, offset, extra)[0].reshape(experts)
    before = x_buffer.copy()

    want_y, want_out, want_dw = oracle.gather(p, x, w).reshape(experts), oracle.scatter(p, y, w), oracle.wgrad(p, y, x)
    assert_same(binmoe.gather(given_x, plan, w), want_y, "y")
    assert_same(binmoe.scatter(given_y, plan, None if w is None else w.reshape(-1)), want_out, "out")
    dw = binmoe.wgrad(given_y, given_x, plan)
    assert dw.dtype == (np.float64 if name == "f64" else np.float32)
    assert_dw(dw, want_dw)
    dy, dw = binmoe.scatter_backward(given_y, given_x, plan, w)
    assert_same(dy, want_y, "dy")
    assert_dw(dw, want_dw)
    dx, dw = binmoe.gather_backward(given_y, given_x, plan, w)
    assert_same(dx, want_out, "dx")
    assert_dw(dw, want_dw)
    assert (x_buffer == before).all()

    for layout in (np.ascontiguousarray, np.asfortranarray):
        out_y = layout(np.full(experts, np.nan, x.dtype))
        out = layout(np.full(x.shape, np.nan, x.dtype))
        assert binmoe.gather(np.asfortranarray(x), plan, w, out=out_y) is out_y
        assert binmoe.scatter(np.asfortranarray(given_y), plan, w, out=out) is out
        assert_same(out_y, want_y, "out= of gather")
        assert_same(out, want_out, "out= of scatter")


@pytest.mark.parametrize("dtype", ["i1", "u8", "?", "c16", "S5", "M8[s]", ">f4", [("a", "i4"), ("b", "u1")]])
def test_the_unweighted_gather_copies_elements_of_any_type(dtype):
    x = np.frombuffer(np.random.default_rng(0).bytes(15 * np.dtype(dtype).itemsize), dtype).reshape(5, 3)
    y = binmoe.gather(x[::-1], binmoe.plan(IDS[:, :1], 3, 2))
    assert y.dtype == x.dtype
    assert y[0, 0].tobytes() == x[4].tobytes() and y[0, 1].tobytes() == x[0].tobytes()
    assert y[1, 0].tobytes() == x[2].tobytes() and not any(y[1, 1].tobytes())


def test_every_backend_of_the_host_gives_the_same_bits():
    code = (
        "import numpy as np, binmoe, hashlib; rng = np.random.default_rng(5);"
        "ids = rng.integers(-1, 7, (300, 3)); p = binmoe.plan(ids, 7, 90); x = rng.standard_normal((300, 65));"
        "w = rng.random((300, 3)).astype(np.float32); y = binmoe.gather(x.astype(np.float32), p, w);"
        "print(hashlib.sha256(y.tobytes() + binmoe.scatter(y, p, w).tobytes()).hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"BINMOE_BACKEND": name}, capture_output=True, check=True
        ).stdout
        for name in ("reference", "")
    }
    assert len(found) == 1


def refuses(kind, text, call, *arguments, **keywords):
    with pytest.raises(kind, match=re.escape(text)):
        call(*arguments, **keywords)


def test_what_is_refused_and_what_is_said():
    plan, x, y, w = binmoe.plan(IDS, 3, 2), np.ones((5, 4)), np.ones((3, 2, 4)), np.ones((5, 2))
    refuses(ValueError, "[plan] expert_ids[0] is 5", binmoe.plan, IDS + 5, 3, 2)
    refuses(ValueError, "[plan] expert_ids has 1 dimensions", binmoe.plan, IDS[0], 3, 2)
    refuses(TypeError, "[plan] expert_ids has dtype float64", binmoe.plan, w, 3, 2)
    refuses(TypeError, "[plan] expert_ids has dtype uint64", binmoe.plan, IDS.astype(np.uint64), 3, 2)
    refuses(ValueError, "[plan] num_experts is 0", binmoe.plan, IDS, 0, 2)
    refuses(ValueError, "[plan] num_experts is 4294967296", binmoe.plan, IDS, 1 << 32, 2)
    refuses(ValueError, "[plan] unknown policy 'x'", binmoe.plan, IDS, 3, 2, "x")
    refuses(ValueError, "[plan] the policy by_weight needs weights", binmoe.plan, IDS, 3, 2, "by_weight")
    refuses(ValueError, "[gather] x has 4 rows, but the plan was made for 5", binmoe.gather, x[:4], plan)
    refuses(ValueError, "[gather] x has 3 dimensions", binmoe.gather, y, plan)
    refuses(TypeError, "[gather] x has dtype object", binmoe.gather, x.astype(object), plan)
    refuses(ValueError, "rows of bytes cannot be weighted", binmoe.gather, x.astype(int), plan, w.astype(np.float32))
    refuses(ValueError, "f64 weights go with f64 rows only", binmoe.gather, x.astype(np.float32), plan, w)
    refuses(ValueError, "[gather] weights has the shape [2, 5]", binmoe.gather, x, plan, w.T)
    refuses(TypeError, "[scatter] y has dtype int64", binmoe.scatter, y.astype(int), plan)
    refuses(ValueError, "[scatter] y has the shape [3, 1, 4]", binmoe.scatter, y[:, :1], plan)
    refuses(ValueError, "[gather] out has the shape [2, 3, 4]", binmoe.gather, x, plan, out=y.reshape(2, 3, 4))
    refuses(TypeError, "[gather] out has dtype float32", binmoe.gather, x, plan, out=y.astype(np.float32))
    frozen = y.copy()
    frozen.flags.writeable = False
    refuses(ValueError, "[gather] out is read-only", binmoe.gather, x, plan, out=frozen)
    block = np.ones((12, 4))
    refuses(ValueError, "[gather] out overlaps x", binmoe.gather, block[:5], plan, out=block[4:10].reshape(3, 2, 4))
    cube = np.ones((9, 2, 8))  # what is no rows at one distance is copied first
    refuses(ValueError, "[gather] out overlaps x", binmoe.gather, cube[:5, 0, ::2], plan, out=cube[4:7, :, 1::2])
    refuses(ValueError, "[wgrad] dw has the shape [5, 2, 1]", binmoe.wgrad, y, x, plan, out=np.ones((5, 2, 1)))
    refuses(TypeError, "bins has dtype float64", binmoe.Plan.from_bins, IDS[0], w[0], 2, 5, 2)
    refuses(ValueError, "[plan_from_bins] tokens is -1", binmoe.Plan.from_bins, IDS[0], IDS[1], 2, -1, 2)
    refuses(ValueError, "bin_ids has 1 entries", binmoe.Plan.from_bins, IDS[0], IDS[1], 2, 5, 2, IDS[0, :1])


def test_sizes_are_integers_and_plans_are_plans():
    plan, x, y, w = binmoe.plan(IDS, np.int64(3), np.int32(2)), np.ones((5, 4)), np.ones((3, 2, 4)), np.ones((5, 2))
    assert plan.sizes == (5, 2, 3, 2)
    for sizes in ((3.0, 2), (3, 2.5)):
        refuses(TypeError, "integer", binmoe.plan, IDS, *sizes)
    for sizes in ((2.0, 5, 2), (2, 5.0, 2), (2, 5, 2.0)):
        refuses(TypeError, "integer", binmoe.Plan.from_bins, IDS[0], IDS[1], *sizes)
    for call, arrays in (
        (binmoe.gather, (x,)),
        (binmoe.scatter, (y,)),
        (binmoe.wgrad, (y, x)),
        (binmoe.scatter_backward, (y, x)),
        (binmoe.gather_backward, (y, x)),
        (binmoe.renormalize, (w,)),
    ):
        refuses(TypeError, f"[{call.__name__}] plan is tuple", call, *arrays, tuple(plan.sizes))
    refuses(TypeError, "[wgrad] dw must be a numpy array", binmoe.wgrad, y, x, plan, out=[1])


def test_a_copied_or_pickled_plan_has_maps_of_its_own():
    plan = binmoe.plan(IDS, 3, 2)
    x = np.arange(20.0).reshape(5, 4)
    want = binmoe.gather(x, plan)
    for other in (copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
        binmoe.plan(np.full_like(IDS, -1), 3, 2, out=other)
        assert np.array_equal(binmoe.gather(x, plan), want)
        assert not binmoe.gather(x, other).any()


def test_a_damaged_plan_is_found_by_check():
    plan = binmoe.plan(IDS, 3, 2)
    plan.row_of_assignment[0, 0] = 4
    refuses(ValueError, "[check] row_of_assignment[0] is 4", plan.check)


@pytest.mark.parametrize(("factor", "want"), [(1.0, 7), (1.1, 8), (1.25, 9), (0, 0), (2, 14)])
def test_expert_capacity_rounds_up_the_exact_quotient(factor, want):
    assert binmoe.expert_capacity(10, 2, 3, factor) == want
    assert binmoe.expert_capacity(10, 2, 3, factor, multiple=8) == -(-want // 8) * 8
    assert binmoe.expert_capacity(10, 1, 1, 1.1) == 11  # not 12
    refuses(ValueError, "[expert_capacity]", binmoe.expert_capacity, 10, 2, 3, -1.0)
    refuses(ValueError, "[expert_capacity]", binmoe.expert_capacity, 10, 2, 3, float("nan"))
    refuses(ValueError, "[expert_capacity]", binmoe.expert_capacity, 10, 2, 3, 1.0, 0)
