"""The short way of python/src/torch_movers.cc: which calls it takes, and that it does what the operators do."""

from pathlib import Path

import binmoe.torch as bt
import pytest
import torch
from binmoe.torch import fast, ops, plans
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

IDS = [[0, 1], [1, 0], [1, -1], [2, 1], [0, 2]]


class Subclass(torch.Tensor):
    pass


class Watcher(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def operands(device):
    plan = bt.plan(torch.tensor(IDS, device=device), 3, 2)
    generator = torch.Generator().manual_seed(0)
    x, y, w = (torch.randn(*shape, generator=generator).to(device) for shape in ((5, 4), (3, 2, 4), (5, 2)))
    return plan, x, y, w


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_it_gives_the_bits_of_the_operators(device, dtype):
    plan, x, y, w = operands(device)
    x, y = x.to(dtype), y.to(dtype)
    for weights in (None, w, w.flatten(), w.bfloat16()):
        for short, operator, rows in ((fast.gather, ops.gather, x), (fast.scatter, ops.scatter, y)):
            want = operator.overload(rows, plan.maps, weights, *plan.sizes)
            result = short(rows, plan, weights, None)
            assert result.dtype == dtype and torch.equal(result, want)
            out = torch.full_like(want, torch.nan)
            assert short(rows, plan, weights, out) is out and torch.equal(out, want)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.int64])
def test_it_plans_as_the_operator_does(device, dtype):
    ids = torch.tensor(IDS, device=device).clamp(min=0).to(dtype)
    w = torch.rand(5, 2, device=device)
    for policy, weights in (("token_order", None), ("choice_order", None), ("by_weight", w)):
        made = fast.plan(ids, 3, 2, policy, weights, None)
        assert torch.equal(made.maps, plans.plan_op.overload(ids, 3, 2, policy, weights))
        assert made.sizes == (5, 2, 3, 2)
        again = bt.plan(torch.zeros_like(ids), 3, 2)
        assert fast.plan(ids, 3, 2, policy, weights, again) is again and torch.equal(again.maps, made.maps)


def test_it_leaves_what_is_not_ordinary_to_the_operators(device):
    plan, x, y, w = operands(device)
    needs_gradient = x.clone().requires_grad_()
    wide = torch.zeros(5, 8, device=device)
    refused = {
        "a gradient": (needs_gradient, plan, None, None),
        "a gradient of the weights": (x, plan, w.clone().requires_grad_(), None),
        "a subclass": (x.as_subclass(Subclass), plan, None, None),
        "rows with gaps": (wide[:, :4], plan, None, None),
        "columns with gaps": (wide[:, ::2], plan, None, None),
        "a transposed tensor": (torch.zeros(4, 5, device=device).T, plan, None, None),
        "a negative bit": (torch._neg_view(x), plan, None, None),
        "integers": (x.int(), plan, None, None),
        "too many dimensions": (y, plan, None, None),
        "no tensor": ([1.0], plan, None, None),
        "no memory": (x.to("meta"), plan, None, None),
        "a sparse tensor": (x.to_sparse(), plan, None, None),
        "a lazy zero": (torch._efficientzerotensor(x.shape, device=device), plan, None, None),
        "no plan": (x, tuple(plan.sizes), None, None),
        "too few weights": (x, plan, w[:4].contiguous(), None),
        "weights of integers": (x, plan, w.int(), None),
        "an output of another dtype": (x, plan, None, y.double()),
        "an output of another shape": (x, plan, None, y[:2]),
    }
    for name, arguments in refused.items():
        assert fast.gather(*arguments) is None, name
    for arguments in ((x, plan, None, None), (y[:2], plan, None, None), (y.transpose(0, 1), plan, None, None)):
        assert fast.scatter(*arguments) is None
    with torch.no_grad():
        assert fast.gather(needs_gradient, plan, None, None) is not None


def test_it_leaves_plans_of_other_arguments_to_the_operators(device):
    ids, w = torch.tensor(IDS, device=device), torch.rand(5, 2, device=device)
    other = bt.plan(ids, 3, 3)
    refused = [
        (ids.float(), 3, 2, "token_order", None, None),
        (ids.T, 3, 2, "token_order", None, None),
        (ids.flatten(), 3, 2, "token_order", None, None),
        (ids, 3.0, 2, "token_order", None, None),
        (ids, 0, 2, "token_order", None, None),
        (ids, 3, -1, "token_order", None, None),
        (ids, 1 << 40, 2, "token_order", None, None),
        (ids, 65536, 32768, "token_order", None, None),
        (ids, 3, 2, "first", None, None),
        (ids, 3, 2, ["token_order"], None, None),
        (ids, 3, 2, "by_weight", w.T, None),
        (ids, 3, 2, "token_order", None, other),
        (ids, 3, 2, "token_order", None, 1),
    ]
    for arguments in refused:
        assert fast.plan(*arguments) is None, arguments


def test_it_leaves_the_call_to_whoever_looks_on(device):
    plan, x, _, _ = operands(device)

    def takes():
        return fast.unobserved(), fast.gather(x, plan, None, None) is not None

    assert takes() == (True, True)
    with Watcher():
        assert takes() == (False, False)
    with forward_ad.dual_level():
        assert takes() == (False, False)
    seen = []
    torch.func.vmap(lambda row: seen.append(takes()) or row)(x)
    assert seen == [(False, False)]


def test_a_plan_whose_maps_were_changed_is_looked_at_again(device):
    plan, x, _, _ = operands(device)
    want = bt.gather(x, plan)
    plan.maps = plan.maps.clone()
    assert torch.equal(fast.gather(x, plan, None, None), want)
    moved = plan.maps.clone()
    plan.maps.set_(moved)
    assert torch.equal(fast.gather(x, plan, None, None), want)
    plan.maps.set_(moved[:-1])
    assert fast.gather(x, plan, None, None) is None
    plan.maps = moved
    assert fast.gather(x, plan, None, None) is not None
    for size in plan.sizes._fields:
        with pytest.raises(AttributeError):
            setattr(plan, size, 1)
    for maps in (plan.maps[1:], plan.maps.long(), torch.cat((plan.maps, plan.maps))[::2]):
        plan.maps = maps
        assert fast.gather(x, plan, None, None) is None


def test_gradients_skip_the_library_too(device):
    plan, x, _, _ = operands(device)
    x.requires_grad_()
    assert bt.gather(x, plan).grad_fn.name() == "binmoe_gatherBackward"
    with Watcher():
        assert bt.gather(x, plan).grad_fn.name() != "binmoe_gatherBackward"


def test_inference_mode_is_ordinary(device):
    plan, x, _, _ = operands(device)
    want = bt.gather(x, plan)
    with torch.inference_mode():
        for out in (None, torch.empty_like(want)):
            assert torch.equal(fast.gather(x, plan, None, out), want)
        ids = torch.tensor(IDS, device=device)
        made = fast.plan(ids, 3, 2, "token_order", None, None)
        assert fast.plan(ids, 3, 2, "token_order", None, made) is made and torch.equal(made.maps, plan.maps)


def test_large_outputs_on_the_host_ask_for_huge_pages():
    if not Path("/sys/kernel/mm/transparent_hugepage").is_dir():
        pytest.skip("this kernel has no transparent huge pages")
    tokens, cols = 1024, 1 << 14
    plan = bt.plan(torch.zeros(tokens, 1, dtype=torch.int32), 1, tokens)
    x = torch.ones(tokens, cols, requires_grad=True)
    with torch.no_grad():
        short = bt.gather(x, plan)
    for y in (short, bt.gather(x, plan)):
        middle, flags = y.data_ptr() + y.nbytes // 2, None
        for line in Path("/proc/self/smaps").read_text().splitlines():
            head = line.split()
            if "-" in head[0] and not head[0].endswith(":"):
                begin, end = (int(part, 16) for part in head[0].split("-"))
            elif head[0] == "VmFlags:" and begin <= middle < end:
                flags = head[1:]
        assert "hg" in flags
