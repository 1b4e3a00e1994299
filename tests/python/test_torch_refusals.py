"""What binmoe.torch refuses, and what it says: the operation, the argument, both values."""

import re

import binmoe.torch as bt
import numpy as np
import pytest
import torch
from binmoe import _native
from binmoe.maps import HOST
from torch.utils import _pytree as pytree

IDS = [[0, 1], [2, 0], [1, 0], [-1, 2], [0, 0]]


@pytest.fixture
def plan(device):
    return bt.plan(torch.tensor(IDS, device=device), 3, 2)


def refuses(kind, text, call, *arguments, **keywords):
    with pytest.raises(kind, match=re.escape(text)):
        call(*arguments, **keywords)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("value", [-2, 3, 100])
def test_an_id_out_of_range_is_refused_on_the_host_with_its_place(dtype, value):
    ids = torch.tensor(IDS, dtype=dtype)
    ids[3, 1] = value
    refuses(ValueError, f"[plan] expert_ids[7] is {value}", bt.plan, ids, 3, 2)


def test_an_id_is_compared_in_its_own_width():
    refuses(ValueError, "expert_ids[0] is 4294967296", bt.plan, torch.tensor([[1 << 32]]), 3, 2)
    assert bt.plan(torch.tensor([[255]], dtype=torch.uint8), 256, 1).kept_per_expert[255] == 1


@pytest.mark.usefixtures("cuda")
def test_an_id_out_of_range_on_cuda_counts_as_masked_and_check_tells():
    ids = torch.tensor(IDS, device="cuda")
    ids[3, 1], ids[4, 0] = 77, -5
    plan = bt.plan(ids, 3, 2)
    assert plan.status.tolist() == [2, 7, 77]
    assert plan.row_of_assignment[3, 1] == -1
    refuses(ValueError, "expert_ids[7] is 77", plan.check)


def test_sizes_out_of_range(device):
    ids = torch.zeros(4, 2, dtype=torch.int32, device=device)
    refuses(ValueError, "[plan] num_experts is 0, but must be at least 1", bt.plan, ids, 0, 2)
    refuses(ValueError, "[plan] expert_capacity is -1, but must not be negative", bt.plan, ids, 2, -1)
    refuses(ValueError, "[plan] top_k is 0, but must be at least 1", bt.plan, ids[:, :0], 2, 2)
    refuses(ValueError, "[plan] top_k is 0, but must be at least 1", bt.plan, ids[:, :0].contiguous(), 2, 2)
    refuses(ValueError, "[plan] num_experts * expert_capacity is 65536 * 32768", bt.plan, ids, 65536, 32768)
    refuses(ValueError, "[plan] expert_capacity is 4294967296, but must be below 2^31", bt.plan, ids, 1, 1 << 32)
    refuses(ValueError, "[plan] num_experts is 4294967296, but must be below 2^31", bt.plan, ids, 1 << 32, 1)
    refuses(ValueError, "[plan] expert_ids has 1 dimensions", bt.plan, ids[:, 0], 2, 2)
    refuses(TypeError, "[plan] expert_ids has dtype torch.float32", bt.plan, ids.float(), 2, 2)
    refuses(TypeError, "[plan] expert_ids is list, but must be a torch.Tensor", bt.plan, IDS, 2, 2)
    refuses(ValueError, "[plan] unknown policy 'first'", bt.plan, ids, 2, 2, "first")


def test_sizes_are_integers(device):
    ids = torch.zeros(4, 2, dtype=torch.int32, device=device)
    refuses(TypeError, "integer", bt.plan, ids, 2.0, 2)
    refuses(TypeError, "integer", bt.plan, ids, 2, 2.5)
    assert bt.plan(ids, np.int64(2), np.int32(3)).sizes == (4, 2, 2, 3)


def test_a_refused_workspace_speaks_of_the_plan():
    """On a GPU it is asked for before the plan."""
    for num_experts, capacity in ((0, 2), (2, -1)):
        sizes = (0, 4, 2, num_experts, capacity)
        refuses(ValueError, "[plan] ", _native.plan_workspace_bytes, sizes, 0, 0, (HOST, 0))


def test_tensors_with_and_without_memory_are_refused_together(device, plan):
    x, y, w = (torch.ones(s, device=device) for s in ((5, 4), (3, 2, 4), (5, 2)))
    meta = w.to("meta")
    refuses(ValueError, "[gather] weights is on meta, but another argument is on", bt.gather, x, plan, meta)
    refuses(ValueError, "[scatter] out is on meta", bt.scatter, y, plan, out=x.to("meta"))
    refuses(ValueError, "[wgrad] grad is on meta", bt.wgrad, y, x.to("meta"), plan)
    ids = torch.tensor(IDS, device=device)
    refuses(ValueError, "[plan] weights is on meta", bt.plan, ids, 3, 2, "by_weight", meta)
    elsewhere = bt.plan(ids.to("meta"), 3, 2)
    refuses(ValueError, "[gather] x is on", bt.gather, x, elsewhere)
    refuses(ValueError, "[plan] out is on meta", bt.plan, ids, 3, 2, out=elsewhere)
    refuses(ValueError, "indices is on meta", bt.Plan.from_bins, plan.indices.to("meta"), plan.bins, 2, 5, 2)


def test_tensors_that_are_no_plain_memory_are_refused_or_read_as_what_they_say(device, plan):
    x = torch.ones(5, 4, device=device)
    zeros = torch._efficientzerotensor((5, 4), device=device)
    assert not bt.gather(zeros, plan).any()
    with pytest.raises((NotImplementedError, RuntimeError)):
        bt.gather(x.to_sparse(), plan)
    if device == "cpu":
        with pytest.raises((NotImplementedError, RuntimeError)):
            bt.gather(torch.quantize_per_tensor(x, 0.1, 3, torch.quint8), plan)


def test_check_refuses_a_block_that_is_none(device, plan):
    for leaf in (lambda t: t[:5], lambda t: t.long(), lambda t: torch.stack((t, t), 1)[:, 0]):
        refuses(ValueError, "[check] the plan is", pytree.tree_map(leaf, plan).check)
    odd = pytree.tree_map(lambda t: torch.cat((t[:1], t))[1:], plan)
    refuses(ValueError, "begins at no multiple of 8 bytes", odd.check)
    refuses(ValueError, "begins at no multiple of 8 bytes", bt.gather, torch.ones(5, 4, device=device), odd)


def test_policies_and_their_weights(device):
    ids = torch.zeros(4, 2, dtype=torch.int32, device=device)
    w = torch.ones(4, 2, device=device)
    refuses(ValueError, "[plan] the policy by_weight needs weights", bt.plan, ids, 2, 2, "by_weight")
    refuses(ValueError, "[plan] weights were given, but the policy", bt.plan, ids, 2, 2, "token_order", w)
    refuses(ValueError, "[plan] weights has the shape [4, 1]", bt.plan, ids, 2, 2, "by_weight", w[:, :1])
    refuses(TypeError, "[plan] weights has dtype torch.int64", bt.plan, ids, 2, 2, "by_weight", w.long())


def test_shapes_that_do_not_fit_the_plan(device, plan):
    x, y, w = (torch.ones(s, device=device) for s in ((5, 4), (3, 2, 4), (5, 2)))
    refuses(
        ValueError,
        "[gather] x has 6 rows, but the plan was made for 5",
        bt.gather,
        torch.ones_like(x[:1]).expand(6, 4),
        plan,
    )
    refuses(ValueError, "[gather] x has 3 dimensions", bt.gather, y, plan)
    refuses(ValueError, "[gather] weights has the shape [2, 5]", bt.gather, x, plan, w.t())
    refuses(ValueError, "[gather] weights has the shape [9]", bt.gather, x, plan, w.reshape(-1)[:9])
    refuses(ValueError, "[gather] weights has the shape [10, 1]", bt.gather, x, plan, w.reshape(10, 1))
    refuses(ValueError, "[scatter] y has the shape [2, 3, 4]", bt.scatter, y.reshape(2, 3, 4), plan)
    refuses(ValueError, "[scatter] y has the shape [6, 4]", bt.scatter, y.reshape(6, 4), plan)
    refuses(ValueError, "[wgrad] grad has a hidden size of 3, but y has 4", bt.wgrad, y, x[:, :3], plan)
    refuses(ValueError, "[gather] out has the shape [3, 2]", bt.gather, x, plan, out=y[..., 0])
    refuses(ValueError, "[scatter] out has 4 rows, but the plan was made for 5", bt.scatter, y, plan, out=x[:4].clone())
    refuses(ValueError, "[plan] out is", bt.plan, torch.tensor(IDS, device=device), 3, 3, out=plan)


def test_dtypes_that_do_not_go_together(device, plan):
    x, y, w = (torch.ones(s, device=device) for s in ((5, 4), (3, 2, 4), (5, 2)))
    refuses(ValueError, "f64 weights go with f64 rows only", bt.gather, x, plan, w.double())
    refuses(ValueError, "rows of bytes cannot be weighted", bt.gather, x.long(), plan, w)
    refuses(TypeError, "[gather] weights has dtype torch.int32", bt.gather, x, plan, w.int())
    refuses(TypeError, "[scatter] y has dtype torch.int64", bt.scatter, y.long(), plan)
    refuses(ValueError, "all rows of a call share one dtype", bt.wgrad, y, x.bfloat16(), plan)
    refuses(
        TypeError,
        "[gather] out has dtype torch.float64, but must have torch.float32",
        bt.gather,
        x,
        plan,
        out=y.double(),
    )
    refuses(TypeError, "[wgrad] out is list", bt.wgrad, y, x, plan, out=[1])
    refuses(TypeError, "[wgrad] dw has dtype torch.int32", bt.wgrad, y, x, plan, out=w.int())
    refuses(TypeError, "[gather] plan is tuple", bt.gather, x, tuple(plan.sizes))
    refuses(TypeError, "[gather] x is list", bt.gather, [1.0], plan)
    refuses(TypeError, "[scatter] weights is float", bt.scatter, y, plan, 1.0)


def test_an_output_must_not_overlap_an_input(device):
    block = torch.zeros(12, 4, device=device)
    plan = bt.plan(torch.tensor(IDS, device=device), 3, 2)
    x, w = block[:5], torch.ones(5, 2, device=device)
    refuses(ValueError, "[gather] y overlaps x in memory", bt.gather, x, plan, out=block[4:10].view(3, 2, 4))
    y = block[:6].view(3, 2, 4)
    refuses(ValueError, "[scatter] out overlaps y in memory", bt.scatter, y, plan, w, out=block[5:10])
    dx = block[4:9]
    refuses(ValueError, "overlaps", bt.gather_backward, y.clone(), block[:5], plan, w, out=(dx, torch.empty_like(w)))
    refuses(
        ValueError, "overlaps", bt.scatter_backward, y, x.clone(), plan, w, out=(block[5:11].view(3, 2, 4), w.clone())
    )


def test_an_output_that_is_filled_through_a_copy_must_not_overlap_an_input_either(device):
    cube = torch.zeros(9, 2, 8, device=device)
    plan = bt.plan(torch.tensor(IDS, device=device), 3, 2)
    x, far = cube[:5, 0, ::2], cube[5:8, :, ::2]
    assert bt.gather(x, plan, out=far) is far
    refuses(ValueError, "[gather] out overlaps x in memory", bt.gather, x, plan, out=cube[4:7, :, 1::2])
    refuses(ValueError, "[scatter] out overlaps y in memory", bt.scatter, far, plan, out=cube[3:8, 0, ::2])
    w, dw = torch.ones(2, 10, device=device)[:, ::2].T, torch.ones(5, 2, device=device)
    bt.scatter_backward(far, x, plan, w, out=(torch.zeros(3, 2, 4, device=device), dw))
    refuses(ValueError, "dw overlaps weights", bt.scatter_backward, far, x, plan, w, out=(cube[:3, :, :4].clone(), w))


def test_bins_from_elsewhere_are_checked_on_the_host():
    indices, bins = torch.tensor([0, 3, 5, 1, 4, 2, 7]), torch.tensor([3, 5, 7])

    def refuses_bins(text, indices=indices, bins=bins, **keywords):
        refuses(ValueError, text, bt.Plan.from_bins, indices, bins, 2, 4, 2, **keywords)

    assert bt.Plan.from_bins(indices, bins, 2, 4, 2).sizes == (4, 2, 3, 2)
    refuses_bins("bins[1] is 2", bins=torch.tensor([3, 2, 7]))
    refuses_bins("bins[0] is -1", bins=torch.tensor([-1, 5, 7]))
    refuses_bins("bins[2] is 6", bins=torch.tensor([3, 5, 6]))
    refuses_bins("indices[6] is 8", indices=torch.tensor([0, 3, 5, 1, 4, 2, 8]))
    refuses_bins("indices[1] is -1", indices=torch.tensor([0, -1, 5, 1, 4, 2, 7]))
    refuses_bins("indices[4] is 0", indices=torch.tensor([0, 3, 5, 1, 0, 2, 7]))
    refuses_bins("indices[0] is 2147483647", indices=torch.tensor([1 << 32, 3, 5, 1, 4, 2, 7]))
    refuses_bins("bin_ids[3] is 2", bin_ids=torch.tensor([0, 0, 0, 2, 1, 2, 2]))
    refuses_bins("[plan_from_bins] indices has 2 dimensions", indices=indices[None])
    refuses_bins("[plan_from_bins] bin_ids is [6] of torch.int32, but must be 7 contiguous", bin_ids=indices[:6])
    refuses(TypeError, "indices has dtype torch.float32", bt.Plan.from_bins, indices.float(), bins, 2, 4, 2)
    refuses(ValueError, "[plan_from_bins] tokens is -1", bt.Plan.from_bins, indices, bins, 2, -1, 2)
    refuses(TypeError, "integer", bt.Plan.from_bins, indices, bins, 2, 4.0, 2)
    refuses(TypeError, "integer", bt.Plan.from_bins, indices, bins, 2, 4, 2.0)


def test_a_plan_mapped_to_another_dtype_is_refused(device, plan):
    wide = pytree.tree_map(lambda leaf: leaf.long(), plan)
    text = "of torch.int64, but must be 45 contiguous int32"
    refuses(ValueError, text, bt.gather, torch.ones(5, 4, device=device), wide)
    refuses(ValueError, text, bt.plan, torch.tensor(IDS, device=device), 3, 2, out=wide)


def test_a_damaged_plan_is_found_by_check(device, plan):
    plan.check()
    plan.row_of_assignment[0, 0] = 4
    refuses(ValueError, "row_of_assignment[0] is 4", plan.check)


@pytest.mark.usefixtures("cuda")
def test_tensors_on_the_host_and_on_cuda_are_refused_together():
    here, there = (bt.plan(torch.tensor(IDS, device=d), 3, 2) for d in ("cpu", "cuda"))
    x, y, w = torch.ones(5, 4), torch.ones(3, 2, 4), torch.ones(5, 2)
    refuses(ValueError, "is on the host, but another argument is on cuda:0", bt.gather, x.cuda(), here)
    refuses(ValueError, "on cuda:0", bt.gather, x, there)
    refuses(ValueError, "on cuda:0", bt.gather, x, here, w.cuda())
    refuses(ValueError, "on cuda:0", bt.scatter, y, here, w, out=torch.ones(5, 4, device="cuda"))
    refuses(ValueError, "on cuda:0", bt.wgrad, y, x.cuda(), here)
    refuses(ValueError, "on cuda:0", bt.plan, torch.tensor(IDS), 3, 2, out=there)


def test_nothing_is_written_when_a_call_is_refused(device, plan):
    out = torch.full((3, 2, 4), 7.0, device=device)
    refuses(ValueError, "6 rows", bt.gather, torch.ones(6, 4, device=device), plan, out=out)
    assert (out == 7).all()
