"""binmoe_c.h itself: codes, texts, faults, the table, foreign threads and workspaces."""

import threading

import binmoe_c as b
import numpy as np
import oracle
import pytest
from cases import assert_plan, assert_same
from variants import VARIANTS

IDS = np.array([[2, 0], [0, 2], [2, 1]], np.int32)


def refused(code, match, function, *arguments, **named):
    with pytest.raises(b.BinmoeError, match=match) as caught:
        function(*arguments, **named)
    assert caught.value.code == code
    return caught.value.fault


def test_every_backend_of_the_table_is_tried():
    supported = {name for name, reason in b.backends().items() if reason is None}
    assert {variant.split()[0] for variant in VARIANTS} | {"ascend-model"} == supported


def test_the_table_names_its_backends_and_says_why_one_is_missing():
    table = b.backends()
    assert table["reference"] is None
    assert b.lib.binmoe_backend_name(len(table)) is None
    for name, reason in table.items():
        if reason is not None:
            refused(b.UNSUPPORTED, f"the backend {name} cannot run here", b.make_plan, IDS, 3, 2, ctx=b.context(name))
    fault = refused(
        b.UNSUPPORTED,
        "no backend is called 'abacus'; there are: .*reference",
        b.make_plan,
        IDS,
        3,
        2,
        ctx=b.context("abacus"),
    )
    assert fault == (None, 0, 0, 0)
    assert b.lib.binmoe_version().count(b".") == 2


@pytest.mark.parametrize(
    ("id_type", "bad"),
    [(np.int8, -2), (np.uint8, 255), (np.int16, 3), (np.uint16, 65535), (np.int32, -(2**31)), (np.int64, 2**32)],
)
def test_an_id_out_of_range_is_refused_before_any_output(backend, id_type, bad):
    ids = IDS.astype(id_type)
    ids[1, 1] = bad
    plan = b.Plan(3, 2, 3, 2)
    arguments = (b.values(ids, b.ID_TYPES), 0, None, plan.arrays, b.context(backend))
    text = rf"^\[plan\] expert_ids\[3\] is {bad}, but must be in \[-1, 3\)"
    fault = refused(b.INVALID_DATA, text, b.call, "plan", *arguments)
    assert fault == ("expert_id_range", 3, bad, 3)
    with pytest.raises(oracle.FaultError) as caught:
        oracle.plan(ids, 3, 2)
    assert caught.value.fault == fault
    for name in ("indices", "bin_ids", "row_of_assignment", "bins", "tokens_per_expert", "kept_per_expert"):
        assert (getattr(plan, name) == -77).all(), name


def broken(name, position, value):
    plan = b.make_plan(IDS, 3, 1)
    getattr(plan, name)[position] = value
    return plan


@pytest.mark.parametrize(
    ("array", "position", "value", "fault"),
    [
        ("bins", 0, -1, ("bins_nonnegative", 0, -1, 0)),
        ("bins", 1, 1, ("bins_monotonic", 1, 1, 2)),
        ("bins", 2, 7, ("bins_limit", 2, 7, 6)),
        ("bin_ids", 2, 0, ("bin_ids", 2, 0, 1)),
        ("indices", 4, 6, ("index_range", 4, 6, 6)),
        ("indices", 4, -1, ("index_range", 4, -1, 6)),
        ("indices", 4, 1, ("index_unique", 4, 1, 0)),
        ("tokens_per_expert", 1, 5, ("tokens_per_expert", 1, 5, 1)),
        ("kept_per_expert", 0, 2, ("kept_per_expert", 0, 2, 1)),
        ("row_of_assignment", 2, 1, ("row_of_assignment", 2, 1, -1)),
    ],
)
def test_check_names_the_first_fault(array, position, value, fault):
    assert b.check(broken(array, position, value)) == fault
    assert b.lib.binmoe_last_fault().astuple() == fault


def test_check_looks_at_the_tails_and_at_masked_assignments():
    ids = np.array([[0, -1], [-1, 0]], np.int8)
    for name, position, value, fault in (
        ("indices", 2, 0, ("indices_tail", 2, 0, -1)),
        ("bin_ids", 3, 0, ("bin_ids_tail", 3, 0, 2)),
        ("row_of_assignment", 1, 1, ("row_of_assignment", 1, 1, -1)),
    ):
        plan = b.make_plan(ids, 2, 2)
        getattr(plan, name)[position] = value
        assert b.check(plan) == fault


def test_bins_from_elsewhere_are_checked_before_any_output(backend):
    indices = np.array([1, 2, 5, 0, 3], np.int32)
    bins = np.array([2, 3, 6], np.int32)
    fault = refused(
        b.INVALID_DATA, "but there are 5 indices", b.plan_from_bins, indices, bins, None, 3, 2, 2, b.context(backend)
    )
    assert fault == ("bins_end", 2, 6, 5)
    found = b.Fault()
    code = b.lib.binmoe_check_bins(b.make_bins(indices, bins), b.Sizes(3, 2, 3, 2), None, found)
    assert (code, found.astuple()) == (b.INVALID_DATA, fault)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((3, 0, 3, 2), "top_k is 0, but must be at least 1"),
        ((3, 2, 0, 2), "num_experts is 0, but must be at least 1"),
        ((3, 2, 3, -1), "expert_capacity is -1, but must not be negative"),
        ((-1, 2, 3, 2), "tokens is -1, but must not be negative"),
        ((3, 2, 1 << 16, 1 << 15), r"num_experts \* expert_capacity is 65536 \* 32768, but must be below 2\^31"),
        ((4, 2, 3, 2), r"expert_ids has 6 entries, but tokens \* top_k is 8"),
    ],
)
def test_sizes_are_refused_with_both_values(sizes, text):
    plan = b.Plan(*sizes)
    refused(b.INVALID_ARGUMENT, text, b.call, "plan", b.values(IDS, b.ID_TYPES), 0, None, plan.arrays, None)


def test_arguments_of_the_movers_are_refused():
    plan, x = b.make_plan(IDS, 3, 2), np.zeros((3, 4), np.float32)
    y, w = np.full((6, 4), 7, np.float32), np.ones(6, np.float32)

    def gather(x, w, y):
        b.call("gather", plan.arrays, b.rows(x), b.values(w), b.rows(y), None)

    refused(b.INVALID_ARGUMENT, "x has 2 rows, but the plan was made for 3", gather, x[:2], None, y)
    refused(b.INVALID_ARGUMENT, "y holds f16, but x holds f32", gather, x, None, y.astype(np.float16))
    refused(b.INVALID_ARGUMENT, "weights has 5 entries, but the plan has 6", gather, x, w[:5], y)
    refused(b.INVALID_ARGUMENT, "weights are f64, but the rows are f32", gather, x, w.astype(np.float64), y)
    refused(b.INVALID_ARGUMENT, "overlaps", gather, y[:3], None, y)
    array = b.values(w)
    array.type = 9
    refused(b.INVALID_ARGUMENT, "9 is no dtype", b.call, "gather", plan.arrays, b.rows(x), array, b.rows(y), None)
    refused(b.INVALID_ARGUMENT, "the plan is null", b.call, "gather", None, b.rows(x), None, b.rows(y), None)
    refused(
        b.INVALID_ARGUMENT,
        "weights were given, but the policy token_order does not use them",
        b.make_plan,
        IDS,
        3,
        2,
        "token_order",
        w,
    )
    assert (y == 7).all()


@pytest.mark.parametrize("factor", [-1.0, float("nan"), float("inf")])
def test_a_factor_must_be_finite_and_not_negative(factor):
    refused(b.INVALID_ARGUMENT, "must be finite and not negative", b.expert_capacity, factor, 10, 1, 1)


def test_the_last_error_belongs_to_its_thread():
    refused(b.INVALID_ARGUMENT, "the multiple is 0", b.expert_capacity, 1.0, 10, 1, 1, 0)
    seen = []
    thread = threading.Thread(target=lambda: seen.append((b.lib.binmoe_last_error(), b.lib.binmoe_last_fault().check)))
    thread.start()
    thread.join()
    assert seen == [(b"", None)]
    assert b"the multiple is 0" in b.lib.binmoe_last_error()


def big_case():
    """Large enough that a backend splits it among threads."""
    rng = np.random.default_rng(11)
    ids = rng.integers(-1, 16, (6000, 4)).astype(np.int32)
    x = rng.standard_normal((6000, 64)).astype(np.float32)
    w = rng.standard_normal(ids.shape).astype(np.float32)
    return ids, x, w


@pytest.mark.parametrize("concurrency", [1, 2, 7])
def test_a_foreign_parallel_for_gives_the_same_bits(backend, concurrency):
    ids, x, w = big_case()
    calls = []

    def backwards(state, chunks, body, argument):
        calls.append((state, chunks))
        for chunk in reversed(range(chunks)):
            body(argument, chunk)

    foreign = b.context(backend, parallel_for=b.PARALLEL_FOR(backwards), parallel_state=1234, concurrency=concurrency)
    results = []
    for ctx in (b.context(backend), foreign):
        plan = b.make_plan(ids, 16, 1500, ctx=ctx)
        y, out = np.full((16 * 1500, 64), np.nan, np.float32), np.full_like(x, np.nan)
        b.call("gather", plan.arrays, b.rows(x), b.values(w), b.rows(y), ctx)
        b.call("scatter", plan.arrays, b.rows(y), b.values(w), b.rows(out), ctx)
        results.append((plan, y, out))
    assert_plan(results[1][0], oracle.plan(ids, 16, 1500))
    assert_same(results[1][1], results[0][1], "y")
    assert_same(results[1][2], results[0][2], "out")
    assert all(state == 1234 and chunks >= 1 for state, chunks in calls)
    if backend != "reference" and concurrency > 1:
        assert calls, "the backend never called the foreign parallel_for"


def test_a_plan_runs_in_a_workspace_of_the_stated_size(backend):
    ids, _, w = big_case()
    wanted = b.c_size_t()
    sizes = b.Sizes(*ids.shape, 16, 1500)
    b.call("plan_workspace_bytes", sizes, b.POLICIES["by_weight"], b.F32, b.context(backend), b.byref(wanted))
    workspace = np.full(wanted.value + 64, 0xA5, np.uint8)
    ctx = b.context(backend, workspace=workspace.ctypes.data, workspace_bytes=wanted.value)
    assert_plan(b.make_plan(ids, 16, 1500, "by_weight", w, ctx), oracle.plan(ids, 16, 1500, "by_weight", w))
    assert (workspace[wanted.value :] == 0xA5).all()
    if wanted.value > 0:
        ctx.workspace_bytes -= 1
        refused(b.INVALID_ARGUMENT, "the workspace has", b.make_plan, ids, 16, 1500, "by_weight", w, ctx)
