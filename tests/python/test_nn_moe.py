"""binmoe.nn.MoE and ExpertMLP, against loops over tokens and experts."""

import math
from fractions import Fraction

import binmoe.torch
import pytest
import torch
from binmoe import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

HIDDEN, EXPERTS, TOP_K = 12, 5, 2


def make_layer(capacity_factor=1.0, policy="token_order", seed=0, **router_settings):
    torch.manual_seed(seed)
    router = nn.Router(HIDDEN, EXPERTS, TOP_K, **router_settings)
    experts = nn.ExpertMLP(EXPERTS, HIDDEN, 16, activation="silu", gated=True)
    return nn.MoE(router, experts, capacity_factor, policy)


def expert_by_hand(experts, e, row):
    """SwiGLU of one row."""
    gate, up = (row @ experts.w_in[e]).chunk(2)
    return (functional.silu(gate) * up) @ experts.w_out[e]


def layer_by_hand(layer, x, policy):
    """(out, kept) of tokens x [T, H], one assignment at a time; the order decides who finds room."""
    routing = layer.router(x)
    tokens = len(x)
    capacity = math.ceil(Fraction(str(layer.capacity_factor)) * tokens * TOP_K / EXPERTS)
    assignments = [(t, k) for t in range(tokens) for k in range(TOP_K)]
    if policy == "choice_order":
        assignments.sort(key=lambda a: (a[1], a[0]))
    elif policy == "by_weight":
        assignments.sort(key=lambda a: -routing.weights[a].item())
    room = [capacity] * EXPERTS
    kept = set()
    for a in assignments:
        e = routing.expert_ids[a].item()
        if room[e] > 0:
            room[e] -= 1
            kept.add(a)
    rows = []
    for t in range(tokens):
        total = torch.zeros(HIDDEN)
        for k in range(TOP_K):
            if (t, k) in kept:
                e = routing.expert_ids[t, k].item()
                total = total + routing.weights[t, k] * expert_by_hand(layer.experts, e, x[t])
        rows.append(total)
    return torch.stack(rows), kept


@pytest.mark.parametrize("policy", ["token_order", "choice_order", "by_weight"])
@pytest.mark.parametrize("capacity_factor", [0.0, 0.3, 1.0, 2.5])
def test_the_layer_is_what_loops_over_tokens_and_experts_say(policy, capacity_factor):
    layer = make_layer(capacity_factor, policy)
    x = torch.randn(23, HIDDEN)
    expected, kept = layer_by_hand(layer, x, policy)
    result = layer(x)
    torch.testing.assert_close(result.out, expected)
    assert result.plan.load().kept == len(kept)


@pytest.mark.parametrize("policy", ["token_order", "choice_order", "by_weight"])
def test_gradients_are_those_of_the_loops(policy):
    layer = make_layer(0.8, policy, normalize="after_top_k")
    x = torch.randn(17, HIDDEN, requires_grad=True)
    direction = torch.randn(17, HIDDEN)
    inputs = [x, *layer.parameters()]
    expected = torch.autograd.grad((layer_by_hand(layer, x, policy)[0] * direction).sum(), inputs)
    actual = torch.autograd.grad((layer(x).out * direction).sum(), inputs)
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_capacity_follows_the_tokens_of_each_call_and_the_factor():
    layer = make_layer(1.1)
    for tokens in (1, 10, 25):
        assert layer(torch.randn(tokens, HIDDEN)).plan.sizes.expert_capacity == math.ceil(1.1 * tokens * 2 / 5 - 1e-9)
    layer.capacity_factor = EXPERTS / TOP_K
    assert layer(torch.randn(25, HIDDEN)).plan.load().dropped == 0
    layer.multiple = 8
    assert layer(torch.randn(10, HIDDEN)).plan.sizes.expert_capacity == 16


def test_leading_sizes_are_kept_and_mean_the_same_as_one_row_of_tokens():
    layer = make_layer()
    x = torch.randn(3, 4, 2, HIDDEN)
    assert torch.equal(layer(x).out, layer(x.view(24, HIDDEN)).out.view(x.shape))
    transposed = torch.randn(HIDDEN, 8).T
    assert torch.equal(layer(transposed).out, layer(transposed.contiguous()).out)


def test_a_token_without_room_has_an_output_of_zero():
    layer = make_layer(0.3)
    result = layer(torch.randn(30, HIDDEN))
    dropped = (result.plan.row_of_assignment < 0).all(dim=1)
    assert dropped.any()
    assert not result.out[dropped].any()
    assert result.out[~dropped].any(dim=1).all()


@pytest.mark.parametrize(("tokens", "capacity_factor"), [(0, 1.0), (6, 0.0)])
def test_no_tokens_and_no_room_stay_connected_to_autograd(tokens, capacity_factor):
    layer = make_layer(capacity_factor)
    x = torch.randn(tokens, HIDDEN, requires_grad=True)
    result = layer(x)
    (result.out.sum() + result.load_balancing_loss() + result.z_loss()).backward()
    assert x.grad.shape == x.shape
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
    assert not layer.experts.w_in.grad.any()


def test_the_losses_of_the_output_are_those_of_the_functions():
    layer = make_layer()
    result = layer(torch.randn(20, HIDDEN))
    counts = torch.bincount(result.routing.expert_ids.flatten(), minlength=EXPERTS)
    expected = nn.load_balancing_loss(result.routing.probabilities, counts, TOP_K)
    assert torch.equal(result.load_balancing_loss(), expected)
    assert torch.equal(result.z_loss(), nn.router_z_loss(result.routing.logits))


def test_a_state_dict_has_plain_names_and_restores_the_layer():
    first, second = make_layer(seed=1), make_layer(seed=2)
    assert list(first.state_dict()) == ["router.weight", "experts.w_in", "experts.w_out"]
    x = torch.randn(9, HIDDEN)
    assert not torch.equal(first(x).out, second(x).out)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x).out, second(x).out)


def test_checkpointing_gives_the_same_gradients():
    layer = make_layer()
    x = torch.randn(15, HIDDEN, requires_grad=True)
    parameters = [x, *layer.parameters()]
    plain = torch.autograd.grad(layer(x).out.square().sum(), parameters)
    again = torch.autograd.grad(checkpoint(layer, x, use_reentrant=False).out.square().sum(), parameters)
    for first, second in zip(plain, again, strict=True):
        assert torch.equal(first, second)


def test_compile_takes_the_whole_layer_with_any_number_of_tokens(device):
    layer = make_layer(1.25, normalize="after_top_k").to(device)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for tokens in (12, 31, 64):
        x = torch.randn(tokens, HIDDEN, device=device, requires_grad=True)
        expected, actual = layer(x), compiled(x)
        torch.testing.assert_close(actual.out, expected.out)
        assert torch.equal(actual.plan.row_of_assignment, expected.plan.row_of_assignment)
        gradients = [torch.autograd.grad(result.out.square().sum(), [x, layer.router.weight])
                     for result in (actual, expected)]  # fmt: skip
        for ours, theirs in zip(*gradients, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_autocast_keeps_the_weights_wide_and_the_rows_narrow(device):
    layer = make_layer().to(device)
    x = torch.randn(20, HIDDEN, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        result = layer(x)
    assert result.out.dtype == torch.bfloat16
    assert result.routing.weights.dtype == torch.float32
    torch.testing.assert_close(result.out.float(), layer(x).out, rtol=0.05, atol=0.02)
    result.out.sum().backward()
    assert layer.router.weight.grad.dtype == torch.float32


def test_any_module_that_returns_a_routing_is_a_router():
    class RoundRobin(torch.nn.Module):
        num_experts, top_k = 3, 1

        def forward(self, x):
            ids = torch.arange(len(x), dtype=torch.int32)[:, None] % 3
            scores = torch.full((len(x), 3), 1 / 3)
            return nn.Routing(ids, torch.ones(len(x), 1), scores.log(), scores)

    result = nn.MoE(RoundRobin(), torch.nn.Identity(), 1.0)(torch.randn(7, 4))
    assert result.plan.load().kept == 7
    assert isinstance(result.plan, binmoe.torch.Plan)


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", torch.tanh])
def test_expert_mlp_is_one_mlp_for_each_bin(gated, bias, activation):
    torch.manual_seed(3)
    mlp = nn.ExpertMLP(3, 6, 8, activation=activation, gated=gated, bias=bias)
    y = torch.randn(3, 4, 6)
    function = {"relu": torch.relu, "gelu": functional.gelu, "silu": functional.silu}.get(activation, activation)
    out = mlp(y)
    for e in range(3):
        hidden = y[e] @ mlp.w_in[e] + (mlp.b_in[e] if bias else 0)
        hidden = function(hidden[:, :8]) * hidden[:, 8:] if gated else function(hidden)
        expected = hidden @ mlp.w_out[e] + (mlp.b_out[e] if bias else 0)
        torch.testing.assert_close(out[e], expected)
    names = ["w_in", "w_out"] + ["b_in", "b_out"] * bias
    assert sorted(mlp.state_dict()) == sorted(names)


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match=r"\[MoE\] policy is 'random'"):
        nn.MoE(nn.Router(4, 2, 1), torch.nn.Identity(), policy="random")
    with pytest.raises(ValueError, match=r"\[ExpertMLP\] activation is 'step'"):
        nn.ExpertMLP(2, 4, 4, activation="step")
    with pytest.raises(ValueError, match="factor"):
        nn.MoE(nn.Router(4, 2, 1), torch.nn.Identity(), -1.0)(torch.randn(3, 4))
