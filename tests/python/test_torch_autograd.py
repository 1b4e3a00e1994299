"""Gradients of binmoe.torch: to any order, in the dtype of their tensor, and nothing saved in vain."""

import gc
import weakref
from contextlib import nullcontext

import binmoe.torch as bt
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

IDS = [[0, 1], [2, 0], [1, 0], [-1, 2], [0, 0]]  # expert 0 overflows at C = 2; one assignment is masked


def small_plan(device, expert_capacity=2):
    return bt.plan(torch.tensor(IDS, device=device), 3, expert_capacity)


def leaf(*shape, device, dtype=torch.float64):
    return torch.randn(shape, device=device, dtype=dtype, requires_grad=True)


def operands(device, dtype=torch.float64):
    """x [T, H], y [E, C, H], weights [T, K]."""
    torch.manual_seed(3)
    made = [leaf(*shape, device=device, dtype=dtype) for shape in ((5, 4), (3, 2, 4), (5, 2))]
    return made


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
def test_gradients_of_first_and_second_order_are_right(device, check):
    plan = small_plan(device)
    x, y, w = operands(device)
    assert check(lambda x: bt.gather(x, plan), (x,))
    assert check(lambda x, w: bt.gather(x, plan, w), (x, w))
    assert check(lambda y: bt.scatter(y, plan), (y,))
    assert check(lambda y, w: bt.scatter(y, plan, w), (y, w))
    assert check(lambda y, w: bt.scatter(y, plan, w.reshape(-1)), (y, w))
    assert check(lambda y, grad: bt.wgrad(y, grad, plan), (y, x))
    assert check(lambda y, grad, w: bt.scatter_backward(y, grad, plan, w), (y, x, w))
    assert check(lambda y, grad: bt.scatter_backward(y, grad, plan), (y, x))
    assert check(lambda dy, x, w: bt.gather_backward(dy, x, plan, w), (y, x, w))
    assert check(lambda x, w: bt.scatter(bt.gather(x, plan, w), plan, w), (x, w))


def test_a_third_derivative_exists(device):
    plan = small_plan(device)
    x, _, w = operands(device)
    first = bt.scatter(bt.gather(x, plan, w).pow(3), plan, w).sum()
    (second,) = torch.autograd.grad(first, x, create_graph=True)
    (third,) = torch.autograd.grad(second.sum(), w, create_graph=True)
    third.pow(2).sum().backward()
    assert x.grad.abs().sum() > 0 and w.grad.abs().sum() > 0


@pytest.mark.parametrize("needs", [(True, False), (False, True), (True, True)])
def test_only_the_wanted_gradients_are_made_and_only_their_operands_saved(device, needs):
    plan = small_plan(device)
    x, y, w = operands(device)
    for rows, operation in ((x, bt.gather), (y, bt.scatter)):
        rows.requires_grad_(needs[0]), w.requires_grad_(needs[1])
        result = operation(rows, plan, w)
        saved = {t.data_ptr() for t in result.grad_fn.saved_tensors if t is not None}
        assert (rows.data_ptr() in saved) == needs[1]
        assert (w.data_ptr() in saved) == needs[0]
        result.sum().backward()
        assert (rows.grad is not None, w.grad is not None) == needs
        rows.grad = w.grad = None


def test_an_argument_that_is_not_saved_is_not_kept_alive(device):
    plan = small_plan(device)
    w = torch.ones(5, 2, device=device)
    x = leaf(5, 4, device=device, dtype=torch.float32) * 1  # not a leaf: nobody else holds it
    alive = weakref.ref(x)
    y = bt.gather(x, plan, w)
    del x
    gc.collect()
    assert alive() is None
    y.sum().backward()


@pytest.mark.parametrize("rows", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("weights", [torch.bfloat16, torch.float16, torch.float32])
def test_gradients_come_in_the_dtype_and_shape_of_their_tensor(device, rows, weights):
    plan = small_plan(device)
    x = leaf(5, 4, device=device, dtype=rows)
    for shape in ((5, 2), (10,)):
        w = leaf(*shape, device=device, dtype=weights)
        out = bt.scatter(bt.gather(x, plan, w), plan, w)
        assert out.dtype == rows
        dx, dw = torch.autograd.grad(out.sum(), (x, w))
        assert (dx.dtype, dx.shape, dw.dtype, dw.shape) == (rows, x.shape, weights, w.shape)


def test_gradients_equal_those_of_plain_indexing(device):
    torch.manual_seed(0)
    tokens, top_k, num_experts, capacity, hidden = 50, 3, 7, 15, 20
    ids = torch.randint(-1, num_experts, (tokens, top_k), device=device)
    plan = bt.plan(ids, num_experts, capacity)
    x, w = leaf(tokens, hidden, device=device), leaf(tokens, top_k, device=device)
    mix = torch.randn(num_experts, hidden, hidden, device=device, dtype=torch.float64)
    rows = plan.row_of_assignment.long().reshape(-1)
    kept = rows >= 0
    token = torch.arange(tokens, device=device).repeat_interleave(top_k)

    def plain(x, w):
        y = x.new_zeros(num_experts * capacity, hidden).index_put((rows[kept],), x[token[kept]])
        y = torch.bmm(y.view(num_experts, capacity, hidden), mix).view(-1, hidden)
        return x.new_zeros(tokens, hidden).index_add(0, token[kept], y[rows[kept]] * w.reshape(-1)[kept][:, None])

    ours = bt.scatter(torch.bmm(bt.gather(x, plan), mix), plan, w)
    torch.testing.assert_close(ours, plain(x, w))
    grad = torch.randn_like(ours)
    for got, want in zip(
        torch.autograd.grad(ours, (x, w), grad), torch.autograd.grad(plain(x, w), (x, w), grad), strict=True
    ):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize(("tokens", "capacity"), [(0, 2), (5, 0), (0, 0)])
def test_a_batch_without_tokens_or_capacity_stays_connected(device, tokens, capacity):
    ids = torch.zeros(tokens, 2, dtype=torch.int32, device=device)
    plan = bt.plan(ids, 3, capacity)
    x, w = leaf(tokens, 4, device=device), leaf(tokens, 2, device=device)
    bt.scatter(bt.gather(x, plan, w), plan, w).sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x)) and torch.equal(w.grad, torch.zeros_like(w))


def test_a_batch_of_masked_tokens_alone_stays_connected(device):
    plan = bt.plan(torch.full((5, 2), -1, device=device), 3, 2)
    x, w = leaf(5, 4, device=device), leaf(5, 2, device=device)
    out = bt.scatter(bt.gather(x, plan, w), plan, w)
    assert torch.equal(out, torch.zeros_like(out))
    out.sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x)) and torch.equal(w.grad, torch.zeros_like(w))


def test_nan_in_an_empty_rows_gradient_reaches_nothing(device):
    plan = bt.plan(torch.tensor([[0], [2]], device=device), 3, 2)
    x, w = leaf(2, 4, device=device), leaf(2, 1, device=device)
    y = bt.gather(x, plan, w)
    dy = torch.full_like(y, float("nan"))
    dy[0, 0], dy[2, 0] = 1, 1
    y.backward(dy)
    assert x.grad.isfinite().all() and w.grad.isfinite().all()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_gives_the_same_gradients(device, reentrant):
    plan = small_plan(device)
    x, _, w = operands(device)

    def layer(x, plan, w):
        return bt.scatter(torch.tanh(bt.gather(x, plan)), plan, w)

    want = torch.autograd.grad(layer(x, plan, w).sum(), (x, w))
    out = checkpoint(layer, x, plan, w, use_reentrant=reentrant)
    out.sum().backward()
    assert torch.equal(x.grad, want[0]) and torch.equal(w.grad, want[1])


def test_autocast_leaves_the_dtypes_of_the_operations_alone(device):
    plan = small_plan(device)
    layer = torch.nn.Linear(4, 4, device=device)
    x, w = leaf(5, 4, device=device, dtype=torch.float32), leaf(5, 2, device=device, dtype=torch.float32)
    with torch.autocast(device, dtype=torch.bfloat16):
        y = bt.gather(x, plan)
        assert y.dtype == torch.float32  # as given
        z = layer(y)
        assert z.dtype == torch.bfloat16  # autocast's doing
        out = bt.scatter(z, plan, w)
        assert out.dtype == torch.bfloat16  # rows bf16 beside weights f32
    out.float().sum().backward()
    assert (x.grad.dtype, w.grad.dtype) == (torch.float32, torch.float32)
    want = bt.scatter(z.detach(), plan, w.detach())
    assert torch.equal(out, want)


def test_forward_mode_is_refused(device):
    plan = small_plan(device)
    x, y, w = operands(device)
    for operation, rows in ((bt.gather, x), (bt.scatter, y)):
        with pytest.raises(NotImplementedError, match="forward-mode"):
            torch.func.jvp(lambda rows, op=operation: op(rows, plan), (rows,), (rows,))
        with pytest.raises(NotImplementedError, match="forward-mode"):
            torch.func.jvp(lambda w, op=operation, rows=rows: op(rows.detach(), plan, w), (w,), (w,))


def test_the_transform_grad_is_refused_by_torch(device):
    plan = small_plan(device)
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda x: bt.gather(x, plan).sum())(torch.randn(5, 4, device=device))


@pytest.mark.filterwarnings("ignore:.*batching rule")
def test_vmap_runs_sample_by_sample(device):
    plan = small_plan(device)
    x = torch.randn(3, 5, 4, device=device)
    want = torch.stack([bt.gather(row, plan) for row in x])
    assert torch.equal(torch.vmap(lambda x: bt.gather(x, plan))(x), want)


def test_out_records_no_gradient_and_says_so(device):
    plan = small_plan(device)
    x, y, w = operands(device)
    with pytest.raises(ValueError, match=r"\[gather\] out was given, but an argument needs a gradient"):
        bt.gather(x, plan, out=torch.empty_like(y))
    with pytest.raises(ValueError, match=r"\[scatter\] out was given"):
        bt.scatter(y.detach(), plan, w, out=torch.empty_like(x))
    with torch.no_grad():
        assert torch.equal(bt.gather(x, plan, out=torch.empty_like(y)), bt.gather(x, plan))


def out_calls(device):
    """The name of each operation that takes out=: (call(out), what is written)."""
    plan, other = small_plan(device), small_plan(device)
    x, y, w = (tensor.detach() for tensor in operands(device))
    ids = torch.tensor(IDS, device=device)
    both = {"scatter_backward": lambda out: bt.scatter_backward(y, x, plan, w, out=out)}
    both["gather_backward"] = lambda out: bt.gather_backward(y, x, plan, w, out=out)
    return {
        "plan": (lambda out: bt.plan(ids, 3, 2, out=other), (other.maps,)),
        "gather": (lambda out: bt.gather(x, plan, out=out[0]), (y.clone(),)),
        "scatter": (lambda out: bt.scatter(y, plan, w, out=out[0]), (x.clone(),)),
        "wgrad": (lambda out: bt.wgrad(y, x, plan, out=out[0]), (w.clone(),)),
        "scatter_backward": (both["scatter_backward"], (y.clone(), w.clone())),
        "gather_backward": (both["gather_backward"], (x.clone(), w.clone())),
    }


class Watcher(TorchDispatchMode):
    """Under any mode the operations take torch's dispatcher, not the short way."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("way", [nullcontext, Watcher])
@pytest.mark.parametrize("name", ["plan", "gather", "scatter", "wgrad", "scatter_backward", "gather_backward"])
def test_what_out_overwrites_gets_a_new_version(device, name, way):
    call, written = out_calls(device)[name]
    versions = [tensor._version for tensor in written]
    with way():
        call(written)
    assert all(tensor._version > before for tensor, before in zip(written, versions, strict=True))


@pytest.mark.parametrize("way", [nullcontext, Watcher])
def test_backward_refuses_what_out_has_overwritten(device, way):
    plan, other = small_plan(device), small_plan(device)
    x, y, _ = operands(device)
    rows = y.detach().clone()
    squares = (rows * y).sum()  # saves rows
    moved = bt.gather(x, other).sum()  # saves the maps
    with way(), torch.no_grad():
        bt.gather(x, plan, out=rows)
        bt.plan(torch.tensor(IDS, device=device), 3, 2, out=other)
    for loss in (squares, moved):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_a_result_of_its_own_keeps_version_0(device):
    plan = small_plan(device)
    x, y, _ = (tensor.detach() for tensor in operands(device))
    assert plan.maps._version == bt.gather(x, plan)._version == bt.scatter(y, plan)._version == 0
