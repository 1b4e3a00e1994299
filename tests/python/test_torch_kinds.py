"""The kinds of tests/data/README.md that need no numbers, through binmoe.torch."""

import binmoe.torch as bt
import numpy as np
import oracle
import pytest
import torch
from cases import assert_dw, assert_plan, assert_same
from tensors import to_array, to_tensor
from test_torch_values import Arrays


def agree(device, ids, num_experts, capacity, hidden, dtype=np.float32):
    """Plan, gather, weighted gather, scatter and wgrad equal the oracle's."""
    rng = np.random.default_rng(ids.size + num_experts)
    plan, want = bt.plan(to_tensor(ids, device), num_experts, capacity), oracle.plan(ids, num_experts, capacity)
    assert_plan(Arrays(plan), want)
    x = rng.standard_normal((len(ids), hidden)).astype(dtype)
    w = rng.standard_normal(ids.shape).astype(np.float32)
    experts = (num_experts, capacity, hidden)
    given_x, given_w = to_tensor(x, device), to_tensor(w, device)
    for weights, given_weights in ((None, None), (w, given_w)):
        y = oracle.gather(want, x, weights)
        assert_same(to_array(bt.gather(given_x, plan, given_weights)), y.reshape(experts), "y")
    given_y = to_tensor(y.reshape(experts), device)
    assert_same(to_array(bt.scatter(given_y, plan, given_w)), oracle.scatter(want, y, w), "out")
    assert_dw(to_array(bt.wgrad(given_y, given_x, plan)), oracle.wgrad(want, y, x))


@pytest.mark.parametrize("one", ["tokens", "top_k", "num_experts", "expert_capacity", "hidden_size", "all"])
def test_a_size_of_one(device, one):
    tokens, top_k, num_experts, capacity, hidden = (
        1 if one in (name, "all") else size
        for name, size in zip(
            ("tokens", "top_k", "num_experts", "expert_capacity", "hidden_size"), (9, 3, 5, 4, 7), strict=True
        )
    )
    ids = np.random.default_rng(0).integers(0, num_experts, (tokens, top_k))
    agree(device, ids, num_experts, capacity, hidden)


@pytest.mark.parametrize("zero", ["tokens", "expert_capacity", "hidden_size", "assignments"])
def test_a_size_of_zero_and_an_ordinary_call_after_it(device, zero):
    tokens = 0 if zero == "tokens" else 9
    ids = np.full((tokens, 2), -1) if zero == "assignments" else np.arange(2 * tokens).reshape(-1, 2) % 5
    agree(device, ids, 5, 0 if zero == "expert_capacity" else 3, 0 if zero == "hidden_size" else 7)
    agree(device, np.arange(18).reshape(-1, 2) % 5, 5, 3, 7)


@pytest.mark.parametrize("routing", ["last", "first", "round robin"])
@pytest.mark.parametrize("count", [1, 31, 32, 33, 127, 129, 255, 257, 1023, 1024, 1025])
def test_counts_of_assignments_around_powers_of_two(device, count, routing):
    expert = {"last": np.full(count, 6), "first": np.zeros(count, int), "round robin": np.arange(count) % 7}[routing]
    agree(device, expert.reshape(-1, 1).astype(np.int32), 7, 40, 3)


@pytest.mark.parametrize(("num_experts", "capacity"), [(1, 65535), (1, 65536), (65536, 1), (64, 1025)])
def test_capacities_and_experts_of_more_than_16_bits(device, num_experts, capacity):
    ids = np.random.default_rng(0).integers(0, num_experts, (70, 2))
    ids[0] = num_experts - 1
    agree(device, ids, num_experts, capacity, 2)


@pytest.mark.parametrize("num_experts", [2, 5, 16, 127, 128, 129, 256, 257, 300, 512, 1023, 1024, 1025, 2048, 4096])
def test_numbers_of_experts(device, num_experts):
    ids = np.random.default_rng(num_experts).integers(-1, num_experts, (150, 2))
    agree(device, ids.astype(np.int16), num_experts, 3, 5)


@pytest.mark.parametrize("top_k", [1, 2, 3, 5, 6, 7, 8, 9, 10, 14, 33, 129])
def test_numbers_of_choices(device, top_k):
    ids = np.random.default_rng(top_k).integers(-1, 11, (20, top_k))
    agree(device, ids, 11, 2 * top_k, 9)


@pytest.mark.parametrize("hidden", [1, 7, 46, 1000, 2880, 7169])
@pytest.mark.parametrize("name", sorted(oracle.ROW_DTYPES))
def test_hidden_sizes(device, hidden, name):
    ids = np.random.default_rng(hidden).integers(-1, 4, (24, 3))
    agree(device, ids, 4, 15, hidden, oracle.ROW_DTYPES[name])


def test_the_same_call_gives_the_same_bits_a_hundred_times(device):
    torch.manual_seed(0)
    ids, x = torch.randint(-1, 16, (300, 4), device=device), torch.randn(300, 257, device=device)
    w = torch.rand(300, 4, device=device)

    def step():
        plan = bt.plan(ids, 16, 60, "by_weight", w)
        y = bt.gather(x, plan, w)
        return plan.maps, y, bt.scatter(y, plan, w), *bt.scatter_backward(y, x, plan, w)

    want = step()
    for _ in range(100):
        assert all(torch.equal(got, first) for got, first in zip(step(), want, strict=True))


@pytest.mark.usefixtures("cuda")
def test_two_cuda_streams_at_once():
    torch.manual_seed(0)
    batches = [(torch.randint(-1, 16, (900, 4), device="cuda"), torch.randn(900, 512, device="cuda")) for _ in range(2)]

    def step(ids, x):
        plan = bt.plan(ids, 16, 200)
        return bt.scatter(bt.gather(x, plan), plan)

    wants, streams = [step(*batch) for batch in batches], [torch.cuda.Stream() for _ in batches]
    torch.cuda.synchronize()
    found = []
    for _ in range(50):
        for batch, stream in zip(batches, streams, strict=True):
            with torch.cuda.stream(stream):
                found.append(step(*batch))
    torch.cuda.synchronize()
    assert all(torch.equal(got, wants[i % 2]) for i, got in enumerate(found))


@pytest.mark.usefixtures("cuda")
def test_offsets_past_2_to_the_31_elements_on_cuda():
    """On the host the C++ long test does it."""
    num_experts, capacity, hidden = 2, 32769, 32768
    ids = torch.zeros(capacity, 1, dtype=torch.int32, device="cuda")
    ids[-1] = 1
    x = torch.randn(capacity, 1, device="cuda", dtype=torch.bfloat16).expand(capacity, hidden).contiguous()
    plan = bt.plan(ids, num_experts, capacity)
    y = bt.gather(x, plan)
    assert y.numel() > 2**31
    assert torch.equal(y[0, : capacity - 1], x[: capacity - 1]) and not y[0, -1].any()
    assert torch.equal(y[1, 0], x[-1]) and not y[1, 1:].any()
    assert torch.equal(bt.scatter(y, plan), x)
