"""Cases for the tests: random plans' inputs, rows with strides and offsets, comparison by bits."""

import numpy as np
import oracle
from hypothesis import strategies as st

ID_TYPES = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64]
SENTINEL = 0xA5


@st.composite
def routings(draw):
    """(expert_ids, num_experts, expert_capacity, policy, priority, seed); more drops and masks than in life."""
    seed = draw(st.integers(0, 2**32 - 1))
    tokens = draw(st.sampled_from([0, 1, 2, 3, 7, 31, 33, 64, 130]))
    top_k = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 9]))
    num_experts = draw(st.sampled_from([1, 2, 5, 8, 16, 127, 300]))
    id_type = np.dtype(draw(st.sampled_from(ID_TYPES)))
    capacity = draw(st.sampled_from([0, 1, 2, 3, 8, 50, 300]))
    policy = draw(st.sampled_from(oracle.POLICIES))
    skew = draw(st.sampled_from(["even", "one", "low"]))
    rng = np.random.default_rng(seed)
    limit = min({"even": num_experts, "one": 1, "low": 2}[skew], num_experts, np.iinfo(id_type).max + 1)
    lowest = -1 if id_type.kind == "i" and draw(st.booleans()) else 0
    ids = rng.integers(lowest, limit, (tokens, top_k)).astype(id_type)
    priority = None
    if policy == "by_weight":
        few = np.array([0.5, -0.0, 0.0, 2.0, -1.0, np.nan, np.inf, 0.25])  # ties, signed zeros and NaN are common
        dtype = oracle.ROW_DTYPES[draw(st.sampled_from(sorted(oracle.ROW_DTYPES)))]
        priority = few[rng.integers(0, len(few), ids.shape)].astype(dtype)
    return ids, num_experts, capacity, policy, priority, seed


def padded(values, offset=0, extra=0):
    """A copy of a matrix at `offset` elements into a buffer, its rows `extra` elements apart; the rest is SENTINEL."""
    row_count, cols = values.shape
    buffer = np.full((offset + row_count * (cols + extra)) * values.dtype.itemsize, SENTINEL, np.uint8)
    flat = buffer.view(values.dtype)[offset:]
    view = np.lib.stride_tricks.as_strided(
        flat, values.shape, ((cols + extra) * values.dtype.itemsize, values.dtype.itemsize)
    )
    view[...] = values
    return view, buffer


def nan_output(row_count, cols, dtype, offset=0, extra=0):
    return padded(np.full((row_count, cols), np.nan, dtype), offset, extra)


def bits(array):
    """The bits of an array as unsigned numbers; every NaN alike."""
    array = np.ascontiguousarray(array)
    clean = np.where(np.isnan(array.astype(np.float64)), np.array(np.nan, array.dtype), array)
    return clean.astype(array.dtype).view(f"u{array.dtype.itemsize}")


def assert_same(got, want, what):
    """Equal bit for bit; the first place that differs otherwise."""
    assert got.dtype == want.dtype and got.shape == want.shape, (what, got.dtype, got.shape, want.dtype, want.shape)
    wrong = np.argwhere(bits(got) != bits(want))
    if len(wrong):
        place = tuple(wrong[0])
        raise AssertionError(f"{what}[{place}] is {got[place]}, not {want[place]}; {len(wrong)} differ")


def assert_padding_untouched(view, buffer, what):
    """Nothing outside the view's elements was written."""
    probe = buffer.copy()
    start = view.ctypes.data - buffer.ctypes.data
    for row in range(view.shape[0]):
        begin = start + row * view.strides[0]
        probe[begin : begin + view.shape[1] * view.dtype.itemsize] = SENTINEL
    assert (probe == SENTINEL).all(), f"{what}: bytes outside its rows were written"


def assert_plan(got, want):
    """A plan of the library (tails included) against the oracle's."""
    n = len(want.indices)
    for name in ("indices", "bin_ids"):
        np.testing.assert_array_equal(getattr(got, name)[:n], getattr(want, name), name)
    assert (got.indices[n:] == -1).all() and (got.bin_ids[n:] == want.num_experts).all()
    np.testing.assert_array_equal(got.row_of_assignment, want.row_of_assignment.reshape(-1), "row_of_assignment")
    for name in ("bins", "tokens_per_expert", "kept_per_expert"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name), name)


def assert_dw(got, value_and_bound):
    """Within the bound, and within the rounding of dw's own dtype."""
    value, bound = value_and_bound
    dtype = got.dtype
    digits = {"float32": 24, "float64": 53, "float16": 11, "bfloat16": 8}[dtype.name]
    smallest = {"float32": 2.0**-149, "float64": 2.0**-1074, "float16": 2.0**-24, "bfloat16": 2.0**-133}[dtype.name]
    allowed = bound * 1.001 + (np.abs(value) + bound) * 2.0**-digits + smallest
    found = got.reshape(value.shape)
    wrong = np.argwhere(~(np.abs(found.astype(np.longdouble) - value) <= allowed))
    if len(wrong):
        place = tuple(wrong[0])
        raise AssertionError(f"dw[{place}] is {found[place]}, not {value[place]} +- {allowed[place]}")
