"""binmoe.torch under opcheck, torch.compile, pytrees, copies and CUDA graphs."""

import copy
import pickle

import binmoe.torch as bt
import pytest
import torch
from binmoe.torch import ops, plans
from tensors import nan_like
from torch.utils import _pytree as pytree

IDS = [[0, 1], [2, 0], [1, 0], [-1, 2], [0, 0]]
SIZES = (5, 2, 3, 2)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


def operands(device, dtype=torch.float32, requires_grad=True):
    torch.manual_seed(1)
    shapes = ((5, 4), (3, 2, 4), (5, 2))
    return [torch.randn(s, device=device, dtype=dtype, requires_grad=requires_grad) for s in shapes]


def test_every_operator_passes_opcheck(device):
    ids = torch.tensor(IDS, device=device)
    plan = bt.plan(ids, 3, 2)
    maps = plan.maps
    x, y, w = operands(device)
    fixed = operands(device, requires_grad=False)
    x_free, y_free, w_free = fixed
    for weights in (w, w.reshape(-1).detach().requires_grad_(), None):
        torch.library.opcheck(ops.gather.overload, (x, maps, weights, *SIZES))
        torch.library.opcheck(ops.scatter.overload, (y, maps, weights, *SIZES))
        torch.library.opcheck(ops.scatter_backward.overload, (y, x, maps, weights, *SIZES, torch.float32))
    torch.library.opcheck(ops.wgrad.overload, (y, x, maps, *SIZES, torch.float32))
    torch.library.opcheck(plans.plan_op.overload, (ids, 3, 2, "token_order", None))
    torch.library.opcheck(plans.plan_op.overload, (ids, 3, 2, "by_weight", w_free))
    bins = plan.bins.clone()
    torch.library.opcheck(
        plans.plan_from_bins_op.overload, (plan.indices[: int(bins[-1])].clone(), None, bins, 5, 2, 2)
    )
    outs = torch.empty_like(x_free), torch.empty_like(y_free), torch.empty_like(w_free)
    torch.library.opcheck(ops.gather_out.overload, (x_free, maps, w_free, *SIZES, outs[1]))
    torch.library.opcheck(ops.scatter_out.overload, (y_free, maps, w_free, *SIZES, outs[0]))
    torch.library.opcheck(ops.wgrad_out.overload, (y_free, x_free, maps, *SIZES, outs[2]))
    torch.library.opcheck(ops.scatter_backward_out.overload, (y_free, x_free, maps, w_free, *SIZES, outs[1], outs[2]))
    torch.library.opcheck(ops.gather_backward_out.overload, (y_free, x_free, maps, w_free, *SIZES, outs[0], outs[2]))
    entries = plan.indices[: int(bins[-1])].clone()
    bins_arguments = (entries, None, bins, 5, 2, 2, maps.clone())
    torch.library.opcheck(plans.plan_from_bins_out_op.overload, bins_arguments)
    torch.library.opcheck(plans.plan_out_op.overload, (ids, 3, 2, "token_order", None, maps.clone()))


def layer(x, ids, w, factor=1.1):
    capacity = bt.expert_capacity(x.shape[0], ids.shape[1], 4, factor)
    plan = bt.plan(ids, 4, capacity)
    return bt.scatter(torch.tanh(bt.gather(x, plan)), plan, bt.renormalize(w, plan)), plan.kept_per_expert


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_layer_compiles_to_one_graph_for_any_number_of_tokens(device, backend):
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=backend)
    counts = torch._dynamo.utils.counters
    counts.clear()
    for tokens in (16, 7, 33):
        x = torch.randn(tokens, 6, device=device, requires_grad=True)
        w = torch.rand(tokens, 2, device=device, requires_grad=True)
        ids = torch.randint(0, 4, (tokens, 2), device=device)
        got, want = compiled(x, ids, w), layer(x, ids, w)
        torch.testing.assert_close(got, want)
        for a, b in zip(
            torch.autograd.grad(got[0].sum(), (x, w)), torch.autograd.grad(want[0].sum(), (x, w)), strict=True
        ):
            torch.testing.assert_close(a, b)
    assert counts["stats"]["unique_graphs"] == 1


def test_a_plan_passes_into_and_out_of_a_compiled_function(device):
    @torch.compile(fullgraph=True, backend="aot_eager", dynamic=True)
    def move(x, plan, w):
        return bt.scatter(bt.gather(x, plan), plan, w), plan

    @torch.compile(fullgraph=True, backend="aot_eager", dynamic=True)
    def make(ids):
        return bt.plan(ids, 3, 2)

    x, _, w = operands(device, requires_grad=False)
    ids = torch.tensor(IDS, device=device)
    plan = make(ids)
    assert isinstance(plan, bt.Plan) and plan.sizes == SIZES
    assert torch.equal(plan.maps, bt.plan(ids, 3, 2).maps)
    out, same = move(x, plan, w)
    assert torch.equal(out, bt.scatter(bt.gather(x, plan), plan, w))
    assert isinstance(same, bt.Plan) and torch.equal(same.maps, plan.maps)


def test_checkpointing_inside_a_compiled_function(device):
    from torch.utils.checkpoint import checkpoint

    def inner(x, plan, w):
        return bt.scatter(torch.tanh(bt.gather(x, plan)), plan, w)

    def outer(x, ids, w):
        plan = bt.plan(ids, 3, 2)
        return checkpoint(inner, x, plan, w, use_reentrant=False)

    x, _, w = operands(device)
    ids = torch.tensor(IDS, device=device)
    want = torch.autograd.grad(outer(x, ids, w).sum(), (x, w))
    compiled = torch.compile(outer, fullgraph=True, backend="aot_eager")
    got = torch.autograd.grad(compiled(x, ids, w).sum(), (x, w))
    torch.testing.assert_close(got, want)


def test_out_compiles(device):
    def move(x, plan, w, y, out, dw):
        bt.gather(x, plan, w, out=y)
        bt.scatter(y, plan, w, out=out)
        bt.wgrad(y, x, plan, out=dw)

    plan = bt.plan(torch.tensor(IDS, device=device), 3, 2)
    x, y, w = operands(device, requires_grad=False)
    outs = [nan_like(t.shape, t.dtype, device) for t in (y, x, w)]
    wants = [nan_like(t.shape, t.dtype, device) for t in (y, x, w)]
    torch.compile(move, fullgraph=True)(x, plan, w, *outs)
    move(x, plan, w, *wants)
    for got, want in zip(outs, wants, strict=True):
        assert torch.equal(got, want)


def test_a_plan_is_a_pytree_that_can_be_copied_and_pickled(device):
    plan = bt.plan(torch.tensor(IDS, device=device), 3, 2)
    leaves, spec = pytree.tree_flatten(plan)
    assert [leaf is t for leaf, t in zip(leaves, (plan.maps,), strict=True)] == [True]
    again = pytree.tree_unflatten(leaves, spec)
    cloned = pytree.tree_map(torch.clone, plan)
    x, _, w = operands(device, requires_grad=False)
    want = bt.gather(x, plan, w)
    for other in (again, cloned, copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
        assert isinstance(other, bt.Plan) and other.sizes == plan.sizes
        assert torch.equal(bt.gather(x, other, w), want)


def test_fake_tensors_take_no_memory():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        ids = torch.zeros(1 << 20, 8, dtype=torch.int32)
        plan = bt.plan(ids, 256, 1 << 17)
        y = bt.gather(torch.empty(1 << 20, 7168, dtype=torch.bfloat16), plan)
        assert y.shape == (256, 1 << 17, 7168) and y.dtype == torch.bfloat16
        assert bt.scatter(y, plan).shape == (1 << 20, 7168)


def test_tensors_of_the_meta_device_get_shapes():
    plan = bt.plan(torch.zeros(10, 2, dtype=torch.int32, device="meta"), 3, 4)
    assert bt.gather(torch.empty(10, 6, device="meta"), plan).shape == (3, 4, 6)


def test_a_dispatch_mode_sees_every_operation(device):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        names = ()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function.namespace == "binmoe":
                self.names += (function._opname,)
            return function(*args, **(kwargs or {}))

    x, _, w = operands(device, requires_grad=False)
    with Seen() as seen:
        plan = bt.plan(torch.tensor(IDS, device=device), 3, 2)
        bt.scatter(bt.gather(x, plan), plan, w)
    assert seen.names == ("plan", "gather", "scatter")


@pytest.mark.usefixtures("cuda")
def test_a_cuda_graph_replays_with_new_ids():
    torch.manual_seed(0)
    ids = torch.randint(0, 8, (64, 2), device="cuda")
    x, w = torch.randn(64, 32, device="cuda"), torch.rand(64, 2, device="cuda")

    def step():
        plan = bt.plan(ids, 8, 20)
        return bt.scatter(bt.gather(x, plan), plan, w)

    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    for _ in range(3):
        ids.random_(0, 8)
        graph.replay()
        assert torch.equal(out, step())


@pytest.mark.usefixtures("cuda")
def test_compiled_layers_run_in_cuda_graphs():
    torch.manual_seed(0)
    ids = torch.randint(0, 4, (64, 2), device="cuda")
    x, w = (torch.rand(64, n, device="cuda", requires_grad=True) for n in (32, 2))
    compiled = torch.compile(layer, fullgraph=True, mode="reduce-overhead")
    want = torch.autograd.grad(layer(x, ids, w)[0].sum(), (x, w))
    for _ in range(4):  # warm up, record, replay
        torch.compiler.cudagraph_mark_step_begin()
        got = torch.autograd.grad(compiled(x, ids, w)[0].sum(), (x, w))
        torch.testing.assert_close(got, want)
