"""The plan by torch operations against the library's, and what the check of a plan finds."""

from dataclasses import replace

import pytest
import torch
from binmoe.ascend import library, plan_check, routing

ID_TYPES = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
SHAPES = [(0, 2, 3, 4), (1, 1, 1, 1), (7, 3, 2, 4), (33, 8, 16, 9), (130, 2, 5, 300), (64, 1, 127, 0)]


def assert_same_plan(got, want):
    for name in library.PLAN_MAPS[:-1]:
        a, b = getattr(got, name), getattr(want, name)
        assert a.dtype == torch.int32 and torch.equal(a, b), f"{name} is {a}, not {b}"


def routing_of(seed, shape, id_type=torch.int32, lowest=-1):
    random = torch.Generator().manual_seed(seed)
    tokens, top_k, num_experts, _ = shape
    lowest = max(lowest, torch.iinfo(id_type).min)
    return torch.randint(lowest, num_experts, (tokens, top_k), generator=random).to(id_type)


@pytest.mark.parametrize("policy", routing.POLICIES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_plan_is_the_librarys(shape, seed, policy):
    ids = routing_of(seed, shape)
    priority = None
    if policy == "by_weight":
        few = torch.tensor([0.5, -0.0, 0.0, 2.0, -1.0, float("nan"), float("inf"), -float("inf")])
        priority = few[torch.randint(0, len(few), ids.shape, generator=torch.Generator().manual_seed(seed))]
    got = routing.plan(ids, shape[2], shape[3], policy, priority)
    assert_same_plan(got, library.make_plan(ids, shape[2], shape[3], policy, priority))
    assert got.status.tolist() == [0, 0, 0]
    plan_check.check_plan(got)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_priorities_are_compared_in_their_own_width(dtype):
    ids = torch.zeros((6, 1), dtype=torch.int32)
    priority = torch.tensor([1.0, 1.0 + 2**-30, 1.0 + 2**-7, 3.0, 1.0, 2.0], dtype=torch.float64).to(dtype).view(6, 1)
    assert_same_plan(
        routing.plan(ids, 1, 3, "by_weight", priority), library.make_plan(ids, 1, 3, "by_weight", priority)
    )


@pytest.mark.parametrize("id_type", ID_TYPES, ids=str)
def test_ids_of_any_type_are_read_as_numbers(id_type):
    shape = (40, 3, 100, 2)
    ids = routing_of(4, shape, id_type)
    assert_same_plan(routing.plan(ids, 100, 2), library.make_plan(ids, 100, 2))


def test_an_id_out_of_range_counts_as_masked_and_is_told():
    ids = torch.tensor([[0, 3], [2**32, 1], [-2, 0]], dtype=torch.int64)
    got = routing.plan(ids, 3, 4)
    assert got.status.tolist() == [3, 1, 3]
    assert_same_plan(got, library.make_plan(torch.tensor([[0, -1], [-1, 1], [-1, 0]]), 3, 4))
    with pytest.raises(ValueError, match="3 expert ids out of range: the first is 3 at 1, but"):
        plan_check.check_plan(got)


@pytest.mark.parametrize("with_ids", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_plan_from_bins_keeps_the_order_in_which_they_stand(shape, with_ids):
    tokens, top_k, num_experts, capacity = shape
    sound = library.make_plan(routing_of(5, shape), num_experts, capacity)
    count = int(sound.bins[-1])
    shuffled = sound.indices[:count].clone()
    for e in range(num_experts):
        run = slice(int(sound.bins[e] - sound.tokens_per_expert[e]), int(sound.bins[e]))
        shuffled[run] = shuffled[run].flip(0)
    bin_ids = sound.bin_ids[:count].contiguous() if with_ids else None
    got = routing.plan_from_bins(shuffled, sound.bins, tokens, top_k, capacity, bin_ids)
    assert_same_plan(got, library.plan_from_bins(shuffled, sound.bins, tokens, top_k, capacity, bin_ids))
    plan_check.check_plan(got)


def test_the_check_finds_every_kind_of_fault():
    ids = torch.tensor([[0, 2], [2, 0], [0, -1]], dtype=torch.int32)
    plan = routing.plan(ids, 3, 2)
    plan_check.check_plan(plan)

    def broken(name, position, value):
        values = getattr(plan, name).clone()
        values.view(-1)[position] = value
        return replace(plan, **{name: values})

    faults = {
        "bins_nonnegative": broken("bins", 0, -1),
        "bins_monotonic": broken("bins", 1, 2),
        "bin_ids": broken("bin_ids", 0, 2),
        "index_range": broken("indices", 1, 6),
        "index_unique": broken("indices", 1, 0),
        "indices_tail": broken("indices", 5, 5),
        "bin_ids_tail": broken("bin_ids", 5, 2),
        "row_of_assignment": broken("row_of_assignment", 5, 3),
    }
    for check, bad in faults.items():
        with pytest.raises(library.LibraryError, match=check) as caught:
            plan_check.check_plan(bad)
        assert caught.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((torch.zeros(4, dtype=torch.int32), 2, 2), "expert_ids has 1 dimensions, but must have 2"),
        ((torch.zeros((4, 0), dtype=torch.int32), 2, 2), "top_k is 0, but must be at least 1"),
        ((torch.zeros((4, 1), dtype=torch.int32), 0, 2), "num_experts is 0, but must be at least 1"),
        ((torch.zeros((4, 1), dtype=torch.int32), 2, -1), "expert_capacity is -1, but must not be negative"),
        ((torch.zeros((4, 1), dtype=torch.int32), 1 << 16, 1 << 15), r"65536 \* 32768, but must be below 2\^31"),
        ((torch.zeros((4, 1), dtype=torch.int32), 2, 2, "random"), "'random' is no drop policy"),
        ((torch.zeros((4, 1), dtype=torch.int32), 2, 2, "by_weight"), "by_weight needs weights"),
        ((torch.zeros((4, 1), dtype=torch.int32), 2, 2, "token_order", torch.ones(4, 1)), "does not use weights"),
        (
            (torch.zeros((4, 1), dtype=torch.int32), 2, 2, "by_weight", torch.ones(3, 1)),
            r"shape \[3, 1\], but the ids have \[4, 1\]",
        ),
        ((torch.zeros((4, 2), dtype=torch.int32), 2, 2, "by_weight", torch.ones(2, 4)), r"priority has shape \[2, 4\]"),
        ((torch.zeros(4, 1), 2, 2), "expert_ids are torch.float32, but must be integers"),
        ((torch.zeros((4, 1), dtype=torch.bool), 2, 2), "expert_ids are torch.bool, but must be integers"),
    ],
)
def test_wrong_arguments_of_a_plan_are_refused_with_their_values(arguments, text):
    with pytest.raises(ValueError, match=text):
        routing.plan(*arguments)
