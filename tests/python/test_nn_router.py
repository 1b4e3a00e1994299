"""binmoe.nn.Router and the losses."""

import math

import numpy as np
import pytest
import torch
from binmoe import nn
from binmoe.nn.router import top_k_of
from hypothesis import given, settings
from hypothesis import strategies as st

SETTINGS = [(score, normalize) for score in ("softmax", "sigmoid") for normalize in ("before_top_k", "after_top_k")]
VALUES = [0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 3.0e38, math.inf, -math.inf]


def order_of(logits, top_k):
    """The largest first, of equal ones the lower id: numpy's stable sort of the negated numbers."""
    return np.argsort(-logits.astype(np.float64), axis=1, kind="stable")[:, :top_k]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_ties_go_to_the_lower_expert_id(data):
    num_experts = data.draw(st.integers(1, 12))
    top_k = data.draw(st.integers(1, num_experts))
    row = st.lists(st.sampled_from(VALUES), min_size=num_experts, max_size=num_experts)
    logits = np.array(data.draw(st.lists(row, min_size=1, max_size=4)), np.float32)
    np.testing.assert_array_equal(top_k_of(torch.tensor(logits), top_k).numpy(), order_of(logits, top_k))


def test_top_k_of_random_logits_is_the_sorted_order():
    logits = torch.randn(500, 130, generator=torch.Generator().manual_seed(4))
    np.testing.assert_array_equal(top_k_of(logits, 9).numpy(), order_of(logits.numpy(), 9))
    halves = logits.bfloat16()  # many ties
    np.testing.assert_array_equal(top_k_of(halves, 9).numpy(), order_of(halves.float().numpy(), 9))


def expected_weights(logits, ids, score, normalize):
    """In float64, from the table in Router's docstring."""
    scores = np.exp(logits) if score == "softmax" else 1 / (1 + np.exp(-logits))
    chosen = np.take_along_axis(scores, ids, axis=1)
    if normalize == "after_top_k":
        return chosen / chosen.sum(axis=1, keepdims=True)
    return chosen / scores.sum(axis=1, keepdims=True) if score == "softmax" else chosen


@pytest.mark.parametrize(("score", "normalize"), SETTINGS)
def test_weights_are_those_of_the_docstrings_table(score, normalize):
    torch.manual_seed(5)
    router = nn.Router(24, 10, 3, score=score, normalize=normalize)
    x = torch.randn(40, 24)
    routing = router(x)
    logits = x.double().numpy() @ router.weight.detach().double().numpy().T
    ids = order_of(routing.logits.detach().numpy(), 3)
    assert routing.expert_ids.dtype == torch.int32
    np.testing.assert_array_equal(routing.expert_ids.numpy(), ids)
    np.testing.assert_allclose(routing.logits.detach().numpy(), logits, atol=1e-5)
    expected = expected_weights(logits, ids, score, normalize)
    np.testing.assert_allclose(routing.weights.detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    scores = np.exp(logits) if score == "softmax" else 1 / (1 + np.exp(-logits))
    probabilities = scores / scores.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(routing.probabilities.detach().numpy(), probabilities, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("score", "normalize"), SETTINGS)
def test_the_gradient_reaches_weight_and_input_as_finite_differences_say(score, normalize):
    torch.manual_seed(6)
    router = nn.Router(5, 4, 2, score=score, normalize=normalize)
    x = torch.randn(3, 5, requires_grad=True)
    direction = torch.randn(3, 2)

    def value(weight):
        logits = (x.detach().double() @ weight.T).numpy()
        ids = router(x).expert_ids.long().numpy()
        return (expected_weights(logits, ids, score, normalize) * direction.numpy()).sum()

    (router(x).weights * direction).sum().backward()
    assert x.grad.abs().max() > 0
    weight, step = router.weight.detach().double(), 1e-5
    for e in range(4):
        for h in range(5):
            change = torch.zeros_like(weight)
            change[e, h] = step
            slope = (value(weight + change) - value(weight - change)) / (2 * step)
            assert abs(router.weight.grad[e, h].item() - slope) < 1e-4


def test_the_router_computes_in_float32_whatever_the_model_is_in():
    router = nn.Router(32, 8, 2).bfloat16()
    x = torch.randn(16, 32).bfloat16()
    plain = router(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under_autocast = router(x)
    assert plain.logits.dtype == plain.weights.dtype == torch.float32
    for first, second in zip(plain, under_autocast, strict=True):
        assert torch.equal(first, second)
    plain.weights.sum().backward()
    assert router.weight.grad.dtype == torch.bfloat16


def test_sigmoid_scores_that_underflow_give_weights_of_zero():
    router = nn.Router(1, 3, 2, score="sigmoid", normalize="after_top_k")
    torch.nn.init.constant_(router.weight, -1000.0)
    routing = router(torch.ones(1, 1))
    assert routing.weights.tolist() == [[0.0, 0.0]]
    assert routing.expert_ids.tolist() == [[0, 1]]


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match=r"\[Router\] top_k is 5, but 1 to num_experts = 4"):
        nn.Router(8, 4, 5)
    with pytest.raises(ValueError, match=r"\[Router\] score is 'tanh'"):
        nn.Router(8, 4, 2, score="tanh")
    with pytest.raises(ValueError, match=r"\[Router\] normalize is 'never'"):
        nn.Router(8, 4, 2, normalize="never")


def test_load_balancing_loss_is_the_published_sum():
    generator = np.random.default_rng(7)
    probabilities = generator.dirichlet(np.ones(6), size=50)
    ids = generator.integers(0, 6, size=(50, 2))
    share = np.bincount(ids.reshape(-1), minlength=6) / 100
    expected = 6 * np.sum(share * probabilities.mean(axis=0))
    counts = torch.tensor(np.bincount(ids.reshape(-1), minlength=6), dtype=torch.int32)
    loss = nn.load_balancing_loss(torch.tensor(probabilities), counts, 2)
    assert loss.shape == ()
    assert loss.dtype == torch.float32
    assert abs(loss.item() - expected) < 1e-5


def test_load_balancing_loss_is_1_when_balanced_and_num_experts_at_its_worst():
    even = torch.full((8, 4), 0.25)
    assert nn.load_balancing_loss(even, torch.tensor([4, 4, 4, 4]), 2).item() == 1.0
    one_sided = torch.tensor([[1.0, 0, 0, 0]] * 8)
    assert nn.load_balancing_loss(one_sided, torch.tensor([8, 0, 0, 0]), 1).item() == 4.0


def test_following_the_load_balancing_loss_evens_the_probabilities():
    logits = torch.tensor([[2.0, 0.0, 0.0, 0.0]] * 16, requires_grad=True)
    counts = torch.tensor([16, 0, 0, 0])
    nn.load_balancing_loss(logits.softmax(-1), counts, 1).backward()
    assert (logits.grad[:, 0] > 0).all()
    assert (logits.grad[:, 1:] < 0).all()


def test_router_z_loss_is_the_published_mean():
    logits = np.random.default_rng(8).standard_normal((30, 5)) * 4
    expected = np.mean(np.log(np.exp(logits).sum(axis=1)) ** 2)
    assert abs(nn.router_z_loss(torch.tensor(logits)).item() - expected) < 1e-4


def test_losses_of_no_tokens_are_0_and_connected():
    router = nn.Router(4, 3, 2)
    routing = router(torch.zeros(0, 4))
    loss = nn.load_balancing_loss(routing.probabilities, torch.zeros(3, dtype=torch.int32), 2)
    total = loss + nn.router_z_loss(routing.logits)
    total.backward()
    assert total.item() == 0.0
    assert torch.equal(router.weight.grad, torch.zeros(3, 4))
