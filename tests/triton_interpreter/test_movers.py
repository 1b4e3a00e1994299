"""Every kernel in the interpreter against the library, bit for bit; wgrad within its bound. (bf16 results that round
are held within a step: the interpreter cuts; tests/triton has the exact ones, of the lowered code.)"""

import json
import random
from pathlib import Path

import pytest
import torch
from binmoe.ascend import launch, library
from problems import DTYPES, FORMS, GRIDS, assert_dw, assert_same, problem, rounding_steps, small_tiles

VECTORS = json.loads((Path(__file__).parents[1] / "data/vectors.json").read_text())
# tokens, hidden_size, num_experts, top_k, expert_capacity: drops, empty rows, experts without a token, C > T, C = 1,
# one expert; columns that are no line of 32 bytes, less than a tile, whole tiles.
SHAPES = [
    (1, 1, 1, 1, 1),
    (5, 7, 3, 2, 9),
    (23, 64, 5, 3, 6),
    (17, 100, 9, 8, 1),
    (40, 33, 4, 2, 13),
    (12, 96, 30, 1, 4),
]


def options(**settings):
    return launch.Options(check=False, **settings)


@pytest.mark.parametrize(("order", "form"), FORMS)
@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["name"])
def test_every_vector_comes_out_exactly(case, order, form):
    dtype, hidden = DTYPES[case["dtype"]], case["hidden_size"]
    ids = torch.tensor(case["expert_ids"], dtype=torch.int32).reshape(case["tokens"], case["top_k"])
    weights = torch.tensor(case["weights"]).view(ids.shape) if "weights" in case else None
    priority = weights if case["policy"] == "by_weight" else None
    plan = library.make_plan(ids, case["num_experts"], case["expert_capacity"], case["policy"], priority)

    def matrix(name):
        return torch.tensor(case[name], dtype=torch.float64).reshape(-1, hidden).to(dtype)

    tile = small_tiles(plan, "gather", case["dtype"], hidden, order=order, row_copy=form)
    for name, w in (("gather", None), ("gather_weighted", weights)):
        if name in case:
            y = launch.gather(plan, matrix("x"), w, options=options(tile=tile))
            assert_same(y, matrix(name), name)
    y = matrix("y" if "y" in case else "gather")
    steps = rounding_steps(case["dtype"])
    assert_same(launch.scatter(plan, y, weights, options=options()), matrix("scatter"), "scatter", steps)
    if "grad" in case:
        dw = torch.tensor(case["wgrad"], dtype=torch.float32)
        assert_same(launch.wgrad(plan, y, matrix("grad"), options=options()).view(-1), dw, "wgrad")
        assert_same(
            launch.scatter_backward(plan, y, matrix("grad"), weights, dw_dtype=torch.float32, options=options())[1],
            dw,
            "dw",
        )


@pytest.mark.parametrize("weights", [None, "f32"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("order", "form"), FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gather_gives_the_librarys_bits_in_every_form(shape, order, form, dtype, weights):
    p = problem(3, dtype, *shape, weights=weights)
    tile = small_tiles(p.plan, "gather", dtype, shape[1], order=order, row_copy=form)
    y = launch.gather(p.plan, p.x, p.weights, options=options(tile=tile, num_programs=GRIDS[shape[0] % 4]))
    want = library.gather(p.plan, p.x, p.weights)
    assert_same(y, want, "y", rounding_steps(dtype) if weights else 0)


@pytest.mark.parametrize("weights", [None, "f32"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_scatter_sums_as_the_library_does(shape, dtype, weights):
    p = problem(5, dtype, *shape, weights=weights)
    tile = small_tiles(p.plan, "scatter", dtype, shape[1])
    out = launch.scatter(p.plan, p.y, p.weights, options=options(tile=tile, num_programs=GRIDS[shape[0] % 4]))
    assert_same(out, library.scatter(p.plan, p.y, p.weights), "out", rounding_steps(dtype))


@pytest.mark.parametrize("weights", [None, "f32"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_backward_is_the_librarys(shape, dtype, weights):
    p = problem(7, dtype, *shape, weights=weights)
    tile = small_tiles(p.plan, "scatter_backward", dtype, shape[1])
    how = options(tile=tile, num_programs=GRIDS[shape[0] % 4])
    dy, dw = launch.scatter_backward(p.plan, p.y, p.grad, p.weights, dw_dtype=torch.float32, options=how)
    want = library.gather(p.plan, p.grad, p.weights)
    assert_same(dy, want, "dy", rounding_steps(dtype) if weights else 0)
    assert_dw(dw, p)


@pytest.mark.parametrize(("dtype", "dw_dtype"), [("f32", "f32"), ("bf16", "f32"), ("f16", "f16"), ("f32", "bf16")])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_wgrad_is_within_its_bound(shape, dtype, dw_dtype):
    p = problem(9, dtype, *shape)
    tile = small_tiles(p.plan, "wgrad", dtype, shape[1])
    how = options(tile=tile, num_programs=GRIDS[shape[0] % 4])
    dw = launch.wgrad(p.plan, p.y, p.grad, dtype=DTYPES[dw_dtype], options=how)
    assert_dw(dw, p, DTYPES[dw_dtype])


@pytest.mark.parametrize("weights", ["bf16", "f16"])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_weights_of_any_dtype_are_widened_exactly(dtype, weights):
    p = problem(15, dtype, 19, 40, 5, 3, 8, weights=weights)
    for order, form in FORMS:
        y = launch.gather(p.plan, p.x, p.weights, options=options(order=order, row_copy=form, num_programs=7))
        assert_same(y, library.gather(p.plan, p.x, p.weights), "y")
    out = launch.scatter(p.plan, p.y, p.weights, options=options(num_programs=7))
    assert_same(out, library.scatter(p.plan, p.y, p.weights), "out")
    how = options(num_programs=7)
    dy, _ = launch.scatter_backward(p.plan, p.y, p.grad, p.weights, dw_dtype=DTYPES[weights], options=how)
    assert_same(dy, library.gather(p.plan, p.grad, p.weights), "dy")


@pytest.mark.parametrize("op", ["token", "expert", "scatter", "wgrad", "scatter_backward"])
def test_the_grid_changes_no_bit(op):
    p = problem(11, "f32", 37, 50, 6, 3, 9)
    results = []
    for grid in GRIDS:
        how = options(num_programs=grid, order=op if op in ("token", "expert") else None)
        if op == "scatter":
            result = (launch.scatter(p.plan, p.y, p.weights, options=how),)
        elif op == "wgrad":
            result = (launch.wgrad(p.plan, p.y, p.grad, options=how),)
        elif op == "scatter_backward":
            result = launch.scatter_backward(p.plan, p.y, p.grad, p.weights, dw_dtype=torch.float32, options=how)
        else:
            result = (launch.gather(p.plan, p.x, p.weights, options=how),)
        results.append(result)
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
            assert_same(got, want, op)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(5))
def test_random_problems_with_random_tiles(seed, dtype, grid):
    """Sizes, tiles and weights drawn; every kernel and form. The name replays a case."""
    draw = random.Random(f"{seed} {dtype} {grid}")
    shape = (
        draw.choice([1, 3, 16, 29, 50]),
        draw.choice([1, 15, 16, 31, 48, 70, 129]),
        draw.choice([1, 2, 7, 33]),
        draw.choice([1, 2, 3, 5, 8]),
        draw.choice([1, 2, 5, 17, 60]),
    )
    p = problem(seed, dtype, *shape, weights=draw.choice([None, "f32", dtype]), masked=draw.random() < 0.7)
    sizes = {"columns": draw.choice([16, 32, 64]), "rows": draw.choice([2, 3, 4, 8]), "tokens": draw.choice([1, 2, 5])}
    steps = rounding_steps(dtype)

    def how(op, **settings):
        return options(tile=small_tiles(p.plan, op, dtype, shape[1], **sizes, **settings), num_programs=grid)

    want = library.gather(p.plan, p.x, p.weights)
    for order, form in FORMS:
        y = launch.gather(p.plan, p.x, p.weights, options=how("gather", order=order, row_copy=form))
        assert_same(y, want, f"y, {order} order, {form}", steps if p.weights is not None else 0)
    out = launch.scatter(p.plan, p.y, p.weights, options=how("scatter"))
    assert_same(out, library.scatter(p.plan, p.y, p.weights), "out", steps)
    assert_dw(launch.wgrad(p.plan, p.y, p.grad, options=how("wgrad")), p)
    backward = how("scatter_backward")
    dy, dw = launch.scatter_backward(p.plan, p.y, p.grad, p.weights, dw_dtype=torch.float32, options=backward)
    assert_same(dy, library.gather(p.plan, p.grad, p.weights), "dy", steps if p.weights is not None else 0)
    assert_dw(dw, p)


@pytest.mark.parametrize("first_run", range(9))
@pytest.mark.parametrize("form", library.ROW_COPIES)
def test_an_expert_may_change_at_every_position_of_a_sub_block(first_run, form):
    ids = torch.tensor([[0]] * first_run + [[2]] * (8 - first_run) + [[3]], dtype=torch.int32)
    plan = library.make_plan(ids, 4, 9)
    x = torch.randn(9, 40, generator=torch.Generator().manual_seed(first_run))
    tile = small_tiles(plan, "gather", "f32", 40, order="expert", row_copy=form)
    for grid in (1, 2):
        y = launch.gather(plan, x, options=options(tile=tile, num_programs=grid))
        assert_same(y, library.gather(plan, x), "y")


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8])
def test_choices_are_summed_in_chunks_of_any_size(rows):
    p = problem(13, "f32", 9, 40, 6, 5, 7)
    for op in ("scatter", "wgrad", "scatter_backward"):
        how = options(tile=small_tiles(p.plan, op, "f32", 40, rows=rows), num_programs=2)
        if op == "scatter":
            out = launch.scatter(p.plan, p.y, p.weights, options=how)
            assert_same(out, library.scatter(p.plan, p.y, p.weights), "out")
        elif op == "wgrad":
            assert_dw(launch.wgrad(p.plan, p.y, p.grad, options=how), p)
        else:
            dy, dw = launch.scatter_backward(p.plan, p.y, p.grad, p.weights, dw_dtype=torch.float32, options=how)
            assert_same(dy, library.gather(p.plan, p.grad, p.weights), "dy")
            assert_dw(dw, p)


def test_a_sum_of_nothing_and_of_minus_zero_is_plus_zero():
    ids = torch.tensor([[0, -1], [-1, -1], [0, 0]], dtype=torch.int32)
    plan = library.make_plan(ids, 1, 3)
    y = torch.full((3, 8), -0.0)
    out = launch.scatter(plan, y, options=options())
    assert_same(out, torch.zeros(3, 8), "out")


def test_a_kept_nan_and_infinity_go_where_they_belong():
    ids = torch.tensor([[0], [1], [0]], dtype=torch.int32)
    plan = library.make_plan(ids, 2, 1)
    x = torch.tensor([[float("nan")], [float("inf")], [3.0]])
    weights = torch.tensor([[0.0], [0.0], [float("nan")]])
    y = launch.gather(plan, x, weights, options=options())
    assert_same(y, library.gather(plan, x, weights), "y")
    out = launch.scatter(plan, y, weights, options=options())
    assert_same(out, library.scatter(plan, y.view(2, 1), weights), "out")
