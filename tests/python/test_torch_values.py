"""binmoe.torch against the second oracle: plans, movers and gradients, bit for bit, in every layout and dtype."""

import json
from pathlib import Path

import binmoe.torch as bt
import numpy as np
import oracle
import pytest
import torch
from cases import assert_dw, assert_plan, assert_same, routings
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import DTYPES, batches, in_layout, nan_like, random_values, to_array, to_tensor

VECTORS = json.loads((Path(__file__).parents[1] / "data/vectors.json").read_text())
MAPS = ("indices", "bin_ids", "row_of_assignment", "bins", "tokens_per_expert", "kept_per_expert")


class Arrays:
    """A plan's maps as arrays, the row map flat, as cases.assert_plan takes them."""

    def __init__(self, plan):
        for name in MAPS:
            setattr(self, name, to_array(getattr(plan, name)).reshape(-1))


def make_plan(batch, device):
    p = batch["plan"]
    ids, priority = to_tensor(batch["ids"], device), to_tensor(batch["priority"], device)
    return bt.plan(ids, p.num_experts, p.expert_capacity, batch["policy"], priority)


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["name"])
def test_every_vector_comes_out_exactly(device, case):
    shape, hidden = (case["tokens"], case["top_k"]), case["hidden_size"]
    ids = torch.tensor(case["expert_ids"], dtype=torch.int64, device=device).reshape(shape)
    weights = torch.tensor(case["weights"], device=device).reshape(shape) if "weights" in case else None
    priority = weights if case["policy"] == "by_weight" else None
    plan = bt.plan(ids, case["num_experts"], case["expert_capacity"], case["policy"], priority)
    for name, want in case["plan"].items():
        want = np.array(want, np.int32).reshape(-1)
        np.testing.assert_array_equal(to_array(getattr(plan, name)).reshape(-1)[: len(want)], want, name)

    def values(name, shape):
        return np.array(case[name], np.float64).reshape(*shape, hidden).astype(oracle.ROW_DTYPES[case["dtype"]])

    experts, tokens = (case["num_experts"], case["expert_capacity"]), (case["tokens"],)
    if "gather" in case:
        x = to_tensor(values("x", tokens), device)
        assert_same(to_array(bt.gather(x, plan)), values("gather", experts), "gather")
    if "gather_weighted" in case:
        assert_same(to_array(bt.gather(x, plan, weights)), values("gather_weighted", experts), "gather_weighted")
    y = to_tensor(values("y" if "y" in case else "gather", experts), device)
    assert_same(to_array(bt.scatter(y, plan, weights)), values("scatter", tokens), "scatter")
    if "grad" in case:
        dw = bt.wgrad(y, to_tensor(values("grad", tokens), device), plan)
        if device == "cpu":
            assert_same(to_array(dw), np.array(case["wgrad"], np.float32).reshape(shape), "wgrad")
        else:
            np.testing.assert_allclose(to_array(dw), np.array(case["wgrad"]).reshape(shape), rtol=1e-5)


@settings(max_examples=100)
@given(routing=routings())
def test_plan_sorts_and_cuts_as_the_oracle_does(device, routing):
    ids, num_experts, capacity, policy, priority, _ = routing
    given_ids, given_priority = to_tensor(ids, device), to_tensor(priority, device)
    plan = bt.plan(given_ids, num_experts, capacity, policy, given_priority)
    want = oracle.plan(ids, num_experts, capacity, policy, priority)
    assert_plan(Arrays(plan), want)
    plan.check()
    assert plan.status.tolist() == [0, -1, 0]
    assert plan.sizes == (*ids.shape, num_experts, capacity)
    load = plan.load()
    assert (load.kept, load.dropped, load.masked, load.empty, load.max_over_mean) == tuple(oracle.load(want).values())
    np.testing.assert_array_equal(to_array(given_ids), ids)

    out = bt.plan(torch.zeros_like(given_ids), num_experts, capacity)
    assert bt.plan(given_ids, num_experts, capacity, policy, given_priority, out=out) is out
    assert torch.equal(out.maps, plan.maps)


@settings(max_examples=60)
@given(routing=routings(), with_ids=st.booleans(), dtype=st.sampled_from([torch.int16, torch.int32, torch.int64]))
def test_bins_from_elsewhere_keep_the_order_in_which_they_stand(device, routing, with_ids, dtype):
    ids, num_experts, capacity, _, _, seed = routing
    sound = oracle.plan(ids, num_experts, capacity)
    shuffled, rng = sound.indices.copy(), np.random.default_rng(seed)
    for e in range(num_experts):
        rng.shuffle(shuffled[sound.bins[e] - sound.tokens_per_expert[e] : sound.bins[e]])
    given = [torch.from_numpy(v).to(device=device, dtype=dtype) for v in (shuffled, sound.bins, sound.bin_ids)]
    arguments = (given[0], given[1], ids.shape[1], ids.shape[0], capacity, given[2] if with_ids else None)
    plan = bt.Plan.from_bins(*arguments)
    assert_plan(Arrays(plan), oracle.plan_from_bins(shuffled, sound.bins, *ids.shape, capacity))
    plan.check()
    out = bt.plan(torch.full(ids.shape, -1, device=device), num_experts, capacity)
    assert bt.Plan.from_bins(*arguments, out=out) is out and torch.equal(out.maps, plan.maps)


def weights_of(batch, device):
    """(array, tensor), a NaN where an assignment is not kept: it must have no influence."""
    if batch["weights"] is None:
        return None, None
    weights = random_values(batch["rng"], batch["ids"].shape, batch["weights"])
    weights[batch["plan"].row_of_assignment < 0] = np.nan
    return weights, in_layout(to_tensor(weights, device), batch["layout"])


def tokens_of(batch, kept_only=True):
    """[T, H], NaN in the rows of tokens without a kept assignment."""
    x = random_values(batch["rng"], (batch["plan"].tokens, batch["hidden"]), batch["dtype"])
    if kept_only:
        x[(batch["plan"].row_of_assignment < 0).all(axis=1)] = np.nan
    return x


def expert_rows_of(batch):
    """[E*C, H], NaN in the empty rows."""
    p = batch["plan"]
    y = np.full((p.num_experts * p.expert_capacity, batch["hidden"]), np.nan, oracle.ROW_DTYPES[batch["dtype"]])
    kept = [row for _, row in p.kept()]
    y[kept] = random_values(batch["rng"], (len(kept), batch["hidden"]), batch["dtype"])
    return y


def as_experts(batch, rows):
    p = batch["plan"]
    return rows.reshape(p.num_experts, p.expert_capacity, batch["hidden"])


@settings(max_examples=120)
@given(batch=batches(routings()), out_layout=st.sampled_from(["contiguous", "offset", "transposed"]))
def test_gather_moves_rows_as_the_oracle_does(device, batch, out_layout):
    plan, (weights, w) = make_plan(batch, device), weights_of(batch, device)
    x = tokens_of(batch)
    given_x = in_layout(to_tensor(x, device), batch["layout"])
    want = as_experts(batch, oracle.gather(batch["plan"], x, weights))
    assert_same(to_array(bt.gather(given_x, plan, w)), want, "y")
    assert_same(to_array(given_x), x, "x afterwards")
    out = nan_like(want.shape, DTYPES[batch["dtype"]], device, out_layout)
    assert bt.gather(given_x, plan, None if w is None else w.reshape(-1), out=out) is out
    assert_same(to_array(out), want, "out")


@settings(max_examples=120)
@given(batch=batches(routings()), out_layout=st.sampled_from(["contiguous", "offset", "transposed"]))
def test_scatter_sums_rows_as_the_oracle_does(device, batch, out_layout):
    plan, (weights, w) = make_plan(batch, device), weights_of(batch, device)
    y = expert_rows_of(batch)
    given_y = in_layout(to_tensor(as_experts(batch, y), device), batch["layout"])
    want = oracle.scatter(batch["plan"], y, weights)
    assert_same(to_array(bt.scatter(given_y, plan, w)), want, "out")
    out = nan_like(want.shape, DTYPES[batch["dtype"]], device, out_layout)
    assert bt.scatter(given_y, plan, w, out=out) is out
    assert_same(to_array(out), want, "out=")


@settings(max_examples=80)
@given(batch=batches(routings()))
def test_the_backward_operations_agree_with_the_oracle(device, batch):
    plan, (weights, w) = make_plan(batch, device), weights_of(batch, device)
    y, grad = expert_rows_of(batch), tokens_of(batch)
    given_y = in_layout(to_tensor(as_experts(batch, y), device), batch["layout"])
    given_grad = in_layout(to_tensor(grad, device), batch["layout"])
    dw_want = oracle.wgrad(batch["plan"], y, grad)
    dy_want = as_experts(batch, oracle.gather(batch["plan"], grad, weights))
    dx_want = oracle.scatter(batch["plan"], y, weights)
    shape, dw_dtype = batch["ids"].shape, torch.float64 if batch["dtype"] == "f64" else torch.float32

    dw = bt.wgrad(given_y, given_grad, plan)
    assert dw.dtype == dw_dtype and dw.shape == shape
    assert_dw(to_array(dw), dw_want)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        with np.errstate(over="ignore"):
            assert_dw(to_array(bt.wgrad(given_y, given_grad, plan, dtype)), dw_want)

    own = dw_dtype if w is None else w.dtype
    for operation, arguments, want in (
        (bt.scatter_backward, (given_y, given_grad), dy_want),
        (bt.gather_backward, (given_y, given_grad), dx_want),
    ):
        rows, dw = operation(*arguments, plan, w)
        assert_same(to_array(rows), want, operation.__name__)
        assert dw.dtype == own
        assert_dw(to_array(dw), dw_want)
        outs = nan_like(want.shape, DTYPES[batch["dtype"]], device), nan_like(shape, own, device)
        assert operation(*arguments, plan, w, out=outs) == outs
        assert torch.equal(outs[0].nan_to_num(), rows.nan_to_num()) and torch.equal(outs[1], dw)
        alone, nothing = operation(*arguments, plan, w, need_dw=False)
        assert nothing is None
        assert_same(to_array(alone), want, f"{operation.__name__} without dw")


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.bool, torch.int64, torch.complex128])
def test_the_unweighted_gather_copies_elements_of_any_type(device, dtype):
    x = torch.arange(15, device=device).reshape(5, 3).to(dtype)
    ids = torch.tensor([[0], [1], [-1], [0], [0]], device=device)
    y = bt.gather(x, bt.plan(ids, 2, 2))
    want = torch.zeros(2, 2, 3, dtype=dtype, device=device)
    want[0, 0], want[0, 1], want[1, 0] = x[0], x[3], x[1]
    assert torch.equal(y, want)
    if dtype is torch.complex128:
        assert torch.equal(bt.gather(x.mul(1j).conj(), bt.plan(ids, 2, 2)), want.mul(1j).conj())
        negated = x.mul(1j).conj().imag  # a view with torch's negative bit
        assert negated.is_neg()
        assert torch.equal(bt.gather(negated, bt.plan(ids, 2, 2)), -want.real)
        contiguous = torch._neg_view(x.real.contiguous())
        assert contiguous.is_neg() and contiguous.is_contiguous()
        assert torch.equal(bt.gather(contiguous, bt.plan(ids, 2, 2)), -want.real)


def test_a_plan_reads_ids_and_weights_through_the_negative_bit(device):
    ids, w = torch.tensor([[0], [1], [0], [0]], device=device), torch.tensor([0.1, 0.2, 0.3, 0.4], device=device)
    want = bt.plan(ids, 2, 2, "by_weight", w)
    found = bt.plan(torch._neg_view(-ids), 2, 2, "by_weight", torch._neg_view(-w))
    assert torch.equal(found.maps, want.maps)
    assert not torch.equal(want.maps, bt.plan(ids, 2, 2, "by_weight", -w).maps)
