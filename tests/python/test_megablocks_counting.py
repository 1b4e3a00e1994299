"""binmoe.megablocks: sort, histogram, the cumulative sums, and the small helpers."""

import numpy as np
import pytest
import torch
from binmoe import megablocks as ops

DTYPES = [torch.int16, torch.int32, torch.int64]


def random_integers(high, shape, dtype, device="cpu"):
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, high, shape, generator=generator).to(dtype).to(device)


@pytest.mark.parametrize("max_val", [None, 128])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 32, 1024, 16384])
def test_sort_gives_values_and_stable_indices_in_the_dtype_of_x(count, dtype, max_val, device):
    max_val = max_val or torch.iinfo(dtype).max
    x = random_integers(max_val, (count,), dtype, device)
    values, indices = ops.sort(x, int(np.ceil(np.log2(max_val))))
    order = np.argsort(x.cpu().numpy(), kind="stable")
    assert values.dtype == indices.dtype == dtype
    np.testing.assert_array_equal(indices.cpu().numpy(), order)
    np.testing.assert_array_equal(values.cpu().numpy(), x.cpu().numpy()[order])


def test_sort_without_end_bit_puts_negative_values_first():
    values, indices = ops.sort(torch.tensor([3, -1, 0, -1, 2], dtype=torch.int32))
    assert values.tolist() == [-1, -1, 0, 2, 3]
    assert indices.tolist() == [1, 3, 2, 4, 0]


def test_sort_compares_the_bits_below_end_bit_only():
    values, indices = ops.sort(torch.tensor([9, 1, 4, 12], dtype=torch.int32), 2)
    assert values.tolist() == [4, 12, 9, 1]  # low two bits 0, 0, 1, 1
    assert indices.tolist() == [2, 3, 0, 1]


def test_sort_refuses_positions_that_int16_cannot_hold():
    assert ops.sort(torch.zeros(32768, dtype=torch.int16))[1][-1] == 32767
    with pytest.raises(ValueError, match=r"\[sort\] x has 32769 entries, whose positions torch.int16 cannot hold"):
        ops.sort(torch.zeros(32769, dtype=torch.int16))


@pytest.mark.parametrize("max_val", [128, 1024])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "columns"), [(1, 32), (2, 1024), (8, 16384), (3, 0), (0, 5)])
def test_histogram_counts_each_row_in_int32(rows, columns, dtype, max_val, device):
    x = random_integers(max_val, (rows, columns), dtype, device)
    out = ops.histogram(x, max_val)
    expected = np.array([np.bincount(row, minlength=max_val) for row in x.cpu().numpy()], np.int32)
    assert out.dtype == torch.int32
    np.testing.assert_array_equal(out.cpu().numpy(), expected.reshape(rows, max_val))


def test_histogram_of_a_vector_is_a_vector_and_counts_nothing_outside():
    x = torch.tensor([0, 2, 2, 3, -1, 7], dtype=torch.int64)
    assert ops.histogram(x, 3).tolist() == [1, 0, 2]
    assert ops.histogram(x, 0).tolist() == []
    assert ops.histogram(torch.tensor([255, 0, 255], dtype=torch.uint8), 256)[255] == 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "columns"), [(1, 32), (2, 1024), (16, 1024), (128, 16384)])
def test_cumulative_sums_keep_the_dtype(rows, columns, dtype, device):
    x = random_integers(2, (rows, columns), dtype, device)
    expected = np.cumsum(x.cpu().numpy().astype(np.int64), axis=1)
    inclusive, exclusive = ops.inclusive_cumsum(x, 1), ops.exclusive_cumsum(x, 1)
    assert inclusive.dtype == exclusive.dtype == dtype
    np.testing.assert_array_equal(inclusive.cpu().numpy(), expected)
    np.testing.assert_array_equal(exclusive.cpu().numpy(), expected - x.cpu().numpy())


@pytest.mark.parametrize("dim", [0, 1])
def test_cumulative_sums_of_a_vector_ignore_dim_and_stay_a_vector(dim):
    x = torch.tensor([2, 0, 5], dtype=torch.int32)
    assert ops.inclusive_cumsum(x, dim).tolist() == [2, 2, 7]
    assert ops.exclusive_cumsum(x, dim).tolist() == [0, 2, 2]
    assert ops.inclusive_cumsum(x[:1], dim).shape == (1,)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int16, torch.int32])
@pytest.mark.parametrize(("tokens", "centers", "rows"), [(8, 1, 1), (8, 4, 2), (8, 8, 8), (16384, 128, 8)])
def test_replicate_repeats_each_value_over_its_bin(tokens, centers, rows, dtype, device):
    bins = ops.inclusive_cumsum(ops.histogram(random_integers(centers, (tokens,), torch.int32, device), centers), 0)
    x = (torch.randn(rows, centers, generator=torch.Generator().manual_seed(5)) * 100).to(dtype).to(device)
    counts = np.diff(bins.cpu().numpy(), prepend=0)
    out = ops.replicate(x, bins, tokens)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out.cpu().numpy(), np.repeat(x.cpu().numpy(), counts, axis=1))


def test_the_gradient_of_replicate_sums_a_bin_in_float32(device):
    bins = torch.tensor([4000, 4000, 4096], dtype=torch.int32, device=device)
    x = torch.zeros(1, 3, dtype=torch.float16, device=device, requires_grad=True)
    ops.replicate(x, bins, 4096).backward(torch.full((1, 4096), 1.5, dtype=torch.float16, device=device))
    assert x.grad.tolist() == [[6000.0, 0.0, 144.0]]  # a sum in f16 would stand still at 4096


def test_helpers_do_what_their_names_say():
    x = torch.arange(6.0).view(2, 3)
    assert torch.equal(ops.repeat(x, (2, 1)), torch.cat((x, x)))
    assert ops.repeat(x, (1, 1)) is x
    assert torch.equal(ops.sum(x), torch.tensor([3.0, 5.0, 7.0]))
    assert torch.equal(ops.sum(x, 1), torch.tensor([3.0, 12.0]))
    assert torch.equal(ops.sum(x[:1]), x[0])
    counts = torch.tensor([0, 1, 127, 128, 129], dtype=torch.int32)
    rounded = ops.round_up(counts, 128)
    assert rounded.tolist() == [0, 128, 128, 128, 256]
    assert rounded.dtype == torch.int32


VALUE_ERRORS = {
    "sort of a matrix": lambda: ops.sort(torch.zeros(2, 2, dtype=torch.int32)),
    "sort by too many bits": lambda: ops.sort(torch.zeros(2, dtype=torch.int16), 17),
    "histogram of a cube": lambda: ops.histogram(torch.zeros(1, 1, 1, dtype=torch.int32), 2),
    "histogram of negative size": lambda: ops.histogram(torch.zeros(1, dtype=torch.int32), -1),
    "cumsum of a cube": lambda: ops.inclusive_cumsum(torch.zeros(1, 1, 1, dtype=torch.int32), 1),
    "replicate of a vector": lambda: ops.replicate(torch.zeros(2), torch.tensor([1, 2]), 2),
    "replicate with other bins": lambda: ops.replicate(torch.zeros(1, 2), torch.tensor([1, 2, 3]), 3),
    "replicate past the bins": lambda: ops.replicate(torch.zeros(1, 2), torch.tensor([1, 2]), 3),
    "replicate with bins that decrease": lambda: ops.replicate(torch.zeros(1, 2), torch.tensor([4, 3]), 3),
    "round_up to 0": lambda: ops.round_up(torch.zeros(1, dtype=torch.int32), 0),
}
TYPE_ERRORS = {
    "sort of floats": lambda: ops.sort(torch.zeros(2)),
    "sort of bytes": lambda: ops.sort(torch.zeros(2, dtype=torch.uint8)),
    "histogram of floats": lambda: ops.histogram(torch.zeros(2), 2),
    "cumsum of floats": lambda: ops.exclusive_cumsum(torch.zeros(2), 0),
    "round_up of int64": lambda: ops.round_up(torch.zeros(1, dtype=torch.int64), 128),
    "round_up to a float": lambda: ops.round_up(torch.zeros(1, dtype=torch.int32), 128.0),
}


@pytest.mark.parametrize("call", VALUE_ERRORS.values(), ids=VALUE_ERRORS.keys())
def test_a_wrong_shape_or_value_is_a_value_error(call):
    with pytest.raises(ValueError, match=r"^\[\w+\] "):
        call()


@pytest.mark.parametrize("call", TYPE_ERRORS.values(), ids=TYPE_ERRORS.keys())
def test_a_wrong_dtype_is_a_type_error(call):
    with pytest.raises(TypeError, match=r"^\[\w+\] "):
        call()


def test_topology_is_left_out_and_says_so():
    with pytest.raises(NotImplementedError, match="leaves topology out"):
        ops.topology(None, 128, 4)


def test_every_other_name_of_megablocks_is_there_with_its_arguments():
    arguments = {
        "binned_gather": "x indices bins bin_size top_k",
        "binned_scatter": "x indices weights bins top_k",
        "exclusive_cumsum": "x dim",
        "gather": "x indices bin_ids bins top_k",
        "histogram": "x max_val",
        "inclusive_cumsum": "x dim",
        "padded_gather": "x indices bin_ids bins padded_bins top_k",
        "padded_scatter": "x indices bin_ids weights bins padded_bins top_k",
        "repeat": "x tiling",
        "replicate": "x bins num_outputs",
        "round_up": "x value",
        "scatter": "x indices bin_ids weights bins top_k",
        "sort": "x end_bit",
        "sum": "x dim",
    }
    for name, names in arguments.items():
        code = getattr(ops, name).__code__
        assert " ".join(code.co_varnames[: code.co_argcount]) == names, name
    assert set(ops.__all__) == set(arguments) | {"topology"}
