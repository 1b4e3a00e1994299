"""binmoe.megablocks: gather, scatter and their padded forms, at the sizes that MegaBlocks' users know."""

import megablocks_oracle as oracle
import numpy as np
import pytest
import torch
from binmoe import megablocks as ops

# tokens, hidden_size, num_experts, top_k
SIZES = [(4, 2, 2, k) for k in (1, 2)] + [(1024, 1, e, k) for e in (4, 64, 128) for k in (1, 2, 4)]
SIZES += [(1024, 1536, 4, 1), (1024, 1536, 64, 2), (1024, 1536, 128, 4), (16384, 768, 4, 1), (16384, 1, 128, 4)]


class Batch:
    """f16 rows, sorted assignments, bins padded to a multiple of 128, flat f16 weights."""

    def __init__(self, tokens, hidden_size, num_experts, top_k, device="cpu", block=128):
        generator = torch.Generator().manual_seed(2)
        self.top_k = top_k
        self.x = torch.randn(tokens, hidden_size, generator=generator).half().to(device)
        experts = torch.randint(0, num_experts, (tokens * top_k,), generator=generator).int().to(device)
        self.bin_ids, self.indices = ops.sort(experts)
        counts = ops.histogram(experts, num_experts)
        self.bins = ops.inclusive_cumsum(counts, 0)
        self.padded_bins = ops.inclusive_cumsum(ops.round_up(counts, block), 0)
        self.weights = torch.rand(tokens * top_k, generator=generator).half().to(device)
        self.num_rows = int(self.padded_bins[-1])
        self.y = torch.randn(self.num_rows, hidden_size, generator=generator).half().to(device)
        self.padded_rows = self.rows_with(self.padded_bins)
        self.rows = self.rows_with(self.bins)

    def rows_with(self, bins):
        arrays = [numpy_of(tensor).astype(np.int64) for tensor in (self.indices, self.bins, bins)]
        return oracle.rows_of_padded(*arrays)

    def padded_gather(self, x=None, **changed):
        names = ("indices", "bin_ids", "bins", "padded_bins", "top_k")
        arguments = [changed.get(name, getattr(self, name)) for name in names]
        return ops.padded_gather(self.x if x is None else x, *arguments)

    def padded_scatter(self, y, weights, **changed):
        arguments = [changed.get(name, getattr(self, name)) for name in ("bins", "padded_bins", "top_k")]
        return ops.padded_scatter(y, self.indices, self.bin_ids, weights, *arguments)


def numpy_of(tensor):
    return tensor.detach().cpu().numpy()


def assert_same_bits(actual, expected):
    actual = numpy_of(actual)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize(("tokens", "hidden_size", "num_experts", "top_k"), SIZES)
def test_padded_gather_lays_bins_at_their_padded_starts_and_zeroes_between(
    tokens, hidden_size, num_experts, top_k, device
):
    batch = Batch(tokens, hidden_size, num_experts, top_k, device)
    expected = oracle.gather(numpy_of(batch.x), batch.padded_rows, batch.num_rows, top_k)
    assert_same_bits(batch.padded_gather(), expected)


@pytest.mark.parametrize(("tokens", "hidden_size", "num_experts", "top_k"), SIZES)
def test_padded_scatter_rounds_products_then_sums_as_megablocks(tokens, hidden_size, num_experts, top_k, device):
    batch = Batch(tokens, hidden_size, num_experts, top_k, device)
    out = batch.padded_scatter(batch.y, batch.weights)
    weights = numpy_of(batch.weights)
    expected = oracle.scatter(numpy_of(batch.y), batch.padded_rows, top_k, weights, round_products=True)
    # MegaBlocks' own tolerance, and the order of a float32 sum of at most four terms, which may change the last bit.
    np.testing.assert_allclose(numpy_of(out), expected, rtol=5e-3)


def test_gather_and_scatter_are_the_padded_ones_without_padding(device):
    batch = Batch(1024, 24, 64, 4, device)
    y = ops.gather(batch.x, batch.indices, batch.bin_ids, batch.bins, 4)
    assert_same_bits(y, oracle.gather(numpy_of(batch.x), batch.rows, 4096, 4))
    assert torch.equal(y, batch.padded_gather(padded_bins=batch.bins))
    out = ops.scatter(y, batch.indices, batch.bin_ids, batch.weights, batch.bins, 4)
    assert torch.equal(out, batch.padded_scatter(y, batch.weights, padded_bins=batch.bins))
    # Every choice of a token stands with the same row, so unweighted they sum to K times it.
    assert torch.equal(ops.scatter(y, batch.indices, batch.bin_ids, None, batch.bins, 4), 4 * batch.x)


def test_rows_between_the_bins_have_no_influence_on_padded_scatter():
    batch = Batch(64, 8, 4, 2)
    poisoned = batch.y.clone()
    between = np.setdiff1d(np.arange(batch.num_rows), batch.padded_rows)
    poisoned[torch.tensor(between)] = torch.nan
    assert torch.equal(batch.padded_scatter(poisoned, batch.weights), batch.padded_scatter(batch.y, batch.weights))


def test_gradients_are_the_other_operation_and_the_dot_of_the_rows():
    batch = Batch(256, 96, 8, 2)
    x, y, weights = (tensor.requires_grad_() for tensor in (batch.x, batch.y, batch.weights))
    grad_y, grad_out = torch.randn_like(y), torch.randn_like(x)
    batch.padded_gather(x).backward(grad_y)
    # The two terms of a token are summed in float32 and rounded once.
    assert_same_bits(x.grad, oracle.scatter(numpy_of(grad_y), batch.padded_rows, 2))
    batch.padded_scatter(y, weights).backward(grad_out)
    assert_same_bits(y.grad, oracle.gather(numpy_of(grad_out), batch.padded_rows, len(y), 2, numpy_of(weights)))
    dw, bound = oracle.weight_gradient(numpy_of(y), batch.padded_rows, numpy_of(grad_out), 2)
    assert weights.grad.dtype == torch.float16
    assert np.all(np.abs(numpy_of(weights.grad) - dw) <= bound + 2.0**-11 * np.abs(dw) + 2.0**-25)


def test_gradcheck_holds_in_double_twice():
    batch = Batch(6, 3, 2, 2, block=4)
    x, weights = batch.x.double().requires_grad_(), batch.weights.double().requires_grad_()

    def both(x, weights):
        return batch.padded_scatter(batch.padded_gather(x) ** 2, weights)

    assert torch.autograd.gradcheck(both, (x, weights))
    assert torch.autograd.gradgradcheck(both, (x, weights))


@pytest.mark.parametrize("dtype", [torch.int16, torch.int64])
def test_maps_of_any_integer_dtype_give_the_same(dtype):
    batch = Batch(64, 8, 4, 2)
    maps = {name: getattr(batch, name).to(dtype) for name in ("indices", "bin_ids", "bins", "padded_bins")}
    assert torch.equal(batch.padded_gather(**maps), batch.padded_gather())


REFUSED = {
    "x of three dimensions": lambda b: b.padded_gather(b.x.unsqueeze(0)),
    "too few indices": lambda b: b.padded_gather(indices=b.indices[:-1], bin_ids=b.bin_ids[:-1]),
    "too few bin_ids": lambda b: b.padded_gather(bin_ids=b.bin_ids[:-1]),
    "bin_ids of other bins": lambda b: b.padded_gather(bin_ids=b.bin_ids.flip(0)),
    "bins that do not end at T*K": lambda b: b.padded_gather(bins=b.bins - 1),
    "a repeated index": lambda b: b.padded_gather(indices=torch.zeros_like(b.indices)),
    "padded_bins of another length": lambda b: b.padded_gather(padded_bins=b.padded_bins[:-1]),
    "padded_bins without room": lambda b: b.padded_gather(padded_bins=b.bins - 1),
    "y with too few rows": lambda b: b.padded_scatter(b.y[:-1], b.weights),
    "too few weights": lambda b: b.padded_scatter(b.y, b.weights[:-1]),
    "two-dimensional bins": lambda b: b.padded_scatter(b.y, b.weights, bins=b.bins.view(2, -1)),
    "indices not a multiple of top_k": lambda b: b.padded_scatter(b.y, b.weights, top_k=3),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED.keys())
def test_wrong_arguments_are_refused(call):
    with pytest.raises(ValueError, match=r"^\[\w+\] "):
        call(Batch(8, 4, 4, 2))


def test_no_tokens_are_legal():
    batch = Batch(0, 4, 3, 2)
    y = batch.padded_gather()
    assert y.shape == (0, 4)
    assert batch.padded_scatter(y, batch.weights).shape == (0, 4)
