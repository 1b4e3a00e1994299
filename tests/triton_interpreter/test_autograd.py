"""Gradients of gather and scatter, as torch operators, on CPU tensors through the interpreter."""

import pytest
import torch
from binmoe import ascend
from binmoe.ascend import autograd, launch, library
from problems import problem

WAYS = [("token", None), ("expert", None), ("token", "f32"), ("expert", "f32")]


def clean(tensor):
    return torch.nan_to_num(tensor.clone()).contiguous().double()


def plain_gather(plan, x, weights):
    """gather in f64 by indexing alone, so that torch differentiates it."""
    rows = plan.row_of_assignment.view(-1).long()
    values = x.repeat_interleave(plan.top_k, dim=0)
    values = values if weights is None else values * weights.reshape(-1, 1)
    kept = (rows >= 0).nonzero().view(-1)
    return torch.zeros((plan.expert_rows, x.shape[1]), dtype=x.dtype).index_add(0, rows[kept], values[kept])


def plain_scatter(plan, y, weights):
    rows = plan.row_of_assignment.view(-1).long()
    kept = (rows >= 0).nonzero().view(-1)
    values = y[rows[kept]] if weights is None else y[rows[kept]] * weights.reshape(-1)[kept, None]
    tokens = kept // plan.top_k
    return torch.zeros((plan.tokens, y.shape[1]), dtype=y.dtype).index_add(0, tokens, values)


@pytest.mark.parametrize(("order", "weights"), WAYS)
def test_gradients_of_gather_and_scatter_are_those_of_plain_indexing(order, weights):
    p = problem(21, "f32", 13, 20, 4, 3, 7, weights=weights)
    options = launch.Options(order=order, num_programs=3)
    for mine, plain, rows in (
        (ascend.gather, plain_gather, p.x),
        (ascend.scatter, plain_scatter, p.y),
    ):
        inputs = [clean(rows)] + ([] if weights is None else [clean(p.weights)])
        results = []
        for function, dtype in ((mine, torch.float32), (plain, torch.float64)):
            leaves = [t.to(dtype).requires_grad_() for t in inputs]
            arguments = (p.plan, leaves[0], leaves[1] if weights else None)
            out = function(*arguments, options) if function is mine else function(*arguments)
            out = out.reshape(-1, 20)
            grad = torch.cos(torch.arange(out.numel(), dtype=torch.float64)).view(out.shape).to(dtype)
            results.append(torch.autograd.grad(out, leaves, grad))
        for got, want in zip(*results, strict=True):
            torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


def test_what_has_no_influence_gets_no_gradient_and_gives_none():
    """NaN in empty rows, dropped tokens and dropped weights reaches nothing."""
    p = problem(23, "f32", 11, 16, 3, 2, 4)
    x, w = p.x.clone().requires_grad_(), p.weights.clone().requires_grad_()
    y = ascend.gather(p.plan, x, w)
    z = torch.where(torch.isnan(p.y), float("nan"), y.view(p.y.shape))  # experts that leave NaN in empty rows
    ascend.scatter(p.plan, z, w).sum().backward()
    dropped = p.plan.row_of_assignment < 0
    assert torch.equal(w.grad[dropped], torch.zeros(int(dropped.sum())))
    assert torch.equal(x.grad[dropped.all(dim=1)], torch.zeros_like(x[dropped.all(dim=1)]))
    assert not w.grad.isnan().any() and not x.grad.isnan().any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_weights_come_in_their_own_dtype(dtype):
    p = problem(25, "f32", 7, 16, 3, 2, 4)
    w = clean(p.weights).to(dtype).requires_grad_()
    ascend.scatter(p.plan, clean(p.y).float(), w).sum().backward()
    assert w.grad.dtype == dtype and w.grad.shape == w.shape


@pytest.mark.parametrize("name", ["gather", "scatter"])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_operators_pass_torchs_own_checks(name, weighted):
    p = problem(27, "f32", 6, 8, 3, 2, 3, extra=0)
    rows = clean(p.x if name == "gather" else p.y).float().requires_grad_()
    weights = clean(p.weights).float().requires_grad_() if weighted else None
    rest = autograd._write(p.plan, launch.Options(num_programs=2))
    torch.library.opcheck(getattr(torch.ops.binmoe_ascend, name), (rows, weights, *rest))


def test_an_unsound_plan_is_refused_before_the_launch():
    p = problem(29, "f32", 5, 8, 3, 2, 3)
    p.plan.indices[0] = p.plan.indices[1]
    for function, rows in ((ascend.gather, p.x), (ascend.scatter, p.y)):
        with pytest.raises(library.LibraryError, match="index_unique"):
            function(p.plan, rows)


def test_a_tile_of_ones_own_is_refused():
    p = problem(29, "f32", 5, 8, 3, 2, 3)
    tile = ascend.tile_plan(
        op="scatter", rows=torch.float32, tokens=5, hidden_size=8, num_experts=3, top_k=2, expert_capacity=3
    )
    with pytest.raises(ValueError, match="a tile of one's own is for launch alone"):
        ascend.scatter(p.plan, p.y, options=launch.Options(tile=tile))
