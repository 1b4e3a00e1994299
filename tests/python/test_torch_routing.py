"""expert_capacity, local_ids, from_routing_map and renormalize of binmoe.torch."""

from fractions import Fraction

import binmoe
import binmoe.torch as bt
import numpy as np
import oracle
import pytest
import torch
from cases import assert_same
from hypothesis import given
from hypothesis import strategies as st
from tensors import to_array


@given(
    tokens=st.integers(0, 1 << 20),
    top_k=st.integers(1, 9),
    num_experts=st.integers(1, 300),
    factor=st.one_of(st.sampled_from([0.0, 1.0, 1.1, 1.25, 2.0]), st.floats(0, 100)),
    multiple=st.sampled_from([1, 4, 8, 128]),
)
def test_expert_capacity_is_exact_and_the_same_when_traced(tokens, top_k, num_experts, factor, multiple):
    want = oracle.expert_capacity(factor, tokens, top_k, num_experts, multiple)
    if want * num_experts < 2**31:
        assert bt.expert_capacity(tokens, top_k, num_experts, factor, multiple) == want
    ratio = Fraction(repr(factor))
    assert bt.routing._shortest_decimal(*factor.as_integer_ratio()) == (ratio.numerator, ratio.denominator)


@pytest.mark.parametrize("factor", [1.0, 1.1, 0.35, 0])
def test_expert_capacity_of_symbolic_tokens_is_that_of_numbers(factor):
    def empty(x):
        return x.new_zeros(bt.expert_capacity(x.shape[0], 3, 7, factor, 4))

    compiled = torch.compile(empty, fullgraph=True, dynamic=True, backend="eager")
    for tokens in (10, 11, 12, 100):
        assert compiled(torch.zeros(tokens)).shape == empty(torch.zeros(tokens)).shape


@pytest.mark.parametrize("arguments", [(10, 2, 3, -1.0), (10, 2, 3, float("inf")), (10, 2, 3, 1.0, 0)])
def test_expert_capacity_refuses(arguments):
    with pytest.raises(ValueError, match=r"\[expert_capacity\]"):
        bt.expert_capacity(*arguments)


def test_expert_capacity_takes_any_integer_and_no_float():
    for module in (binmoe, bt):
        assert module.expert_capacity(np.int64(10), np.int32(3), 7, 1.1, 4) == module.expert_capacity(10, 3, 7, 1.1, 4)
        for arguments in ((10.0, 3, 7), (10, 3.0, 7), (10, 3, 7.0)):
            with pytest.raises(TypeError, match="integer"):
                module.expert_capacity(*arguments, 1.1)
        with pytest.raises(ValueError, match=r"\[expert_capacity\]"):
            module.expert_capacity(np.int64(1 << 40), 2, 3, 1.0)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_local_ids_keep_one_ranks_experts(device, dtype):
    ids = torch.tensor([[0, 5], [3, 4], [6, 2]], device=device).to(dtype)
    local = bt.local_ids(ids, 3, 3)
    assert local.tolist() == [[-1, 2], [0, 1], [-1, -1]]
    assert local.dtype == (torch.int16 if dtype == torch.uint8 else dtype)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32])
def test_local_ids_of_the_last_experts_that_a_dtype_can_say(device, dtype):
    """first + count is one more than the dtype can say."""
    end = torch.iinfo(dtype).max + 1
    ids = torch.tensor([[end - 28, end - 1], [end - 33, -1]], dtype=dtype, device=device)
    local = bt.local_ids(ids, end - 32, 32)
    assert local.dtype == dtype and local.tolist() == [[4, 31], [-1, -1]]
    np.testing.assert_array_equal(binmoe.local_ids(ids.cpu().numpy(), end - 32, 32), local.cpu().numpy())


def test_local_ids_leave_masked_ones_masked(device):
    assert bt.local_ids(torch.tensor([[-1, 0, 1]], device=device), 0, 2).tolist() == [[-1, 0, 1]]


def test_the_shares_of_all_ranks_add_up_to_the_whole(device):
    torch.manual_seed(0)
    ids = torch.randint(0, 8, (40, 2), device=device)
    x = torch.randn(40, 16, device=device)
    parts = [bt.plan(bt.local_ids(ids, first, 2), 2, 12) for first in range(0, 8, 2)]
    whole = bt.gather(x, bt.plan(ids, 8, 12))
    assert torch.equal(torch.cat([bt.gather(x, part) for part in parts]), whole)


def test_a_routing_map_decides_not_the_probabilities(device):
    routed = torch.tensor([[0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 0, 1], [0, 0, 0, 1]], device=device)
    probs = torch.rand(4, 4, device=device, requires_grad=True)
    for routing_map in (routed.bool(), routed, routed.float()):
        ids, weights = bt.from_routing_map(routing_map, probs)
        assert ids.dtype == torch.int32 and weights.dtype == probs.dtype
        assert ids.tolist() == [[1, 2, -1], [-1, -1, -1], [0, 1, 3], [3, -1, -1]]
        want = [[probs[t, e].item() if e >= 0 else 0.0 for e in row] for t, row in enumerate(ids.tolist())]
        assert weights.tolist() == want
    weights.sum().backward()
    assert torch.equal(probs.grad, routed.float())


def test_a_routing_map_may_be_empty(device):
    for tokens in (0, 3):
        routing_map = torch.zeros(tokens, 4, dtype=torch.bool, device=device)
        ids, weights = bt.from_routing_map(routing_map, routing_map.float())
        assert ids.shape == weights.shape == (tokens, 1) and (ids == -1).all() and (weights == 0).all()


def test_a_routing_map_and_probabilities_of_two_shapes_are_refused():
    with pytest.raises(ValueError, match=r"\[from_routing_map\] routing_map has the shape \[3, 4\]"):
        bt.from_routing_map(torch.ones(3, 4), torch.ones(4, 3))


def test_arrays_are_routed_as_tensors_are():
    rng = np.random.default_rng(1)
    ids = rng.integers(-1, 9, (50, 3)).astype(np.int16)
    np.testing.assert_array_equal(binmoe.local_ids(ids, 2, 4), bt.local_ids(torch.from_numpy(ids), 2, 4).numpy())
    assert binmoe.local_ids(np.uint8([[255, 3]]), 250, 6).tolist() == [[5, -1]]
    probs, routed = rng.random((50, 9)).astype(np.float32), rng.random((50, 9)) < 0.3
    for got, want in zip(
        binmoe.from_routing_map(routed, probs),
        bt.from_routing_map(torch.from_numpy(routed), torch.from_numpy(probs)),
        strict=True,
    ):
        assert got.dtype == want.numpy().dtype
        np.testing.assert_array_equal(got, want.numpy())
    assert binmoe.from_routing_map(routed[:0], probs[:0])[0].shape == (0, 1)
    weights = rng.random((50, 3)).astype(np.float16)
    weights[3] = 0
    got = binmoe.renormalize(weights, binmoe.plan(ids, 9, 12))
    want = bt.renormalize(torch.from_numpy(weights), bt.plan(torch.from_numpy(ids), 9, 12))
    assert_same(got, want.numpy(), "renormalize")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_renormalize_shares_what_was_kept_in_order_of_k(device, dtype):
    torch.manual_seed(0)
    ids = torch.randint(-1, 4, (60, 3), device=device)
    plan = bt.plan(ids, 4, 25)
    given_weights = torch.rand(60, 3, device=device, dtype=torch.float64).to(dtype)
    given_weights[plan.row_of_assignment < 0] = float("nan")  # has no influence
    step = np.float64 if dtype == torch.float64 else np.float32
    w, rows = to_array(given_weights), to_array(plan.row_of_assignment)
    want = np.zeros(w.shape, w.dtype)
    for t in range(60):
        total = step(0)
        for k in range(3):
            if rows[t, k] >= 0:
                total = step(total + w[t, k].astype(step))
        for k in range(3):
            if rows[t, k] >= 0 and total != 0:
                want[t, k] = (w[t, k].astype(step) / total).astype(w.dtype)
    got = bt.renormalize(given_weights, plan)
    assert got.dtype == dtype
    np.testing.assert_array_equal(to_array(got).astype(np.float64), want.astype(np.float64))
    assert torch.equal(bt.renormalize(given_weights.reshape(-1), plan), got.reshape(-1))
    assert (plan.row_of_assignment < 0).any()


def test_renormalize_of_a_zero_sum_is_zero_with_finite_gradients(device):
    plan = bt.plan(torch.tensor([[0, 1], [0, 1], [-1, -1]], device=device), 2, 1)
    w = torch.tensor([[0.0, 0.0], [0.5, 0.5], [0.5, 0.5]], device=device, requires_grad=True)
    out = bt.renormalize(w, plan)
    assert out.tolist() == [[0.0, 0.0]] * 3
    out.sum().backward()
    assert w.grad.isfinite().all()


def test_renormalize_is_differentiable(device):
    plan = bt.plan(torch.tensor([[0, 1, 1], [1, 0, 2], [1, 2, -1]], device=device), 3, 2)
    w = torch.rand(3, 3, device=device, dtype=torch.float64) + 0.1
    assert torch.autograd.gradcheck(lambda w: bt.renormalize(w, plan), (w.requires_grad_(),))
    assert torch.autograd.gradgradcheck(lambda w: bt.renormalize(w, plan), (w,))


def test_renormalize_refuses_weights_that_are_not_the_plans():
    ids, w = torch.tensor([[0, 1], [1, 0], [1, -1]]), torch.rand(3, 2)
    for module, plan, give in (
        (bt, bt.plan(ids, 2, 2), lambda t: t),
        (binmoe, binmoe.plan(ids.numpy(), 2, 2), to_array),
    ):
        for weights in (w.T.contiguous(), w[:2], w[..., None], w.reshape(-1)[:5]):
            with pytest.raises(ValueError, match=r"\[renormalize\] weights has the shape"):
                module.renormalize(give(weights), plan)
        with pytest.raises(TypeError, match=r"\[renormalize\] weights has dtype"):
            module.renormalize(give(w.int()), plan)
