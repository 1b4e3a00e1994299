"""What a launch refuses, what it does without one, and how it is told where to run."""

import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from binmoe.ascend import launch, library, tiles
from problems import assert_same, problem

PACKAGE = Path(launch.__file__).resolve().parents[2]


@pytest.fixture
def p():
    return problem(31, "f32", 9, 20, 4, 2, 3, extra=0)


def run_python(code, **environment):
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | environment | {"PYTHONPATH": str(PACKAGE)}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)


def test_without_an_npu_the_reason_is_given():
    code = """
import torch
from binmoe import ascend
plan = ascend.plan(torch.zeros((2, 1), dtype=torch.int32), 1, 2)
try:
    ascend.gather(plan, torch.zeros(2, 8))
except RuntimeError as error:
    print(type(error).__name__, error)
"""
    done = run_python(code)
    assert "NoDeviceError [gather] tensors are on the CPU, but the Triton-Ascend kernels run on an NPU" in done.stdout
    assert "TRITON_INTERPRET=1" in done.stdout


def test_importing_loads_neither_torch_nor_triton_nor_the_library():
    code = "import sys, binmoe.ascend; print(sorted({'torch', 'triton', 'numpy'} & set(sys.modules)))"
    assert run_python(code, BINMOE_LIBRARY="/nowhere.so").stdout == "[]\n"


def test_the_operations_are_taken_from_where_the_installed_triton_ascend_has_them():
    """3.2.0 has them in triton.language; later ones in an extension, of which a stand-in is planted here."""
    later = """
import sys, types
import triton.language.extra as extra
extra.cann = types.ModuleType("triton.language.extra.cann")
extra.cann.extension = types.ModuleType("triton.language.extra.cann.extension")
sys.modules |= {module.__name__: module for module in (extra.cann, extra.cann.extension)}
"""
    look = "from binmoe.ascend import rows; print(rows.extension.__name__, rows.index_library.__name__)"
    assert run_python(look).stdout == "triton.language triton.language.extra.ascend.libdevice\n"
    assert run_python(later + look).stdout.split() == 2 * ["triton.language.extra.cann.extension"]


def test_tensors_elsewhere_are_refused(p):
    with pytest.raises(launch.NoDeviceError, match="tensors are on meta, but the Triton-Ascend kernels run on an NPU"):
        launch.gather(p.plan, p.x.to("meta"))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda p: launch.gather(p.plan, p.x[:5]), r"\[gather\] x has 5 rows, but the plan was made for 9"),
        (lambda p: launch.gather(p.plan, p.x.double()), "x is torch.float64, but the kernels take float32"),
        (lambda p: launch.gather(p.plan, p.x[0]), "x has 1 dimensions, but must have 2"),
        (lambda p: launch.gather(p.plan, p.x[:, ::2]), "columns are 2 apart, but rows must be contiguous"),
        (
            lambda p: launch.gather(p.plan, p.x, p.weights[:5]),
            r"shape \[5, 2\], but the plan has \[9, 2\]",
        ),
        (
            lambda p: launch.gather(p.plan, p.x, p.weights.t()),
            r"shape \[2, 9\], but the plan has \[9, 2\]",
        ),
        (lambda p: launch.gather(p.plan, p.x, p.weights.double()), "weights are torch.float64, but the kernels take"),
        (lambda p: launch.gather(p.plan, p.x, p.weights.to("meta")), "weights are on meta, but the rows are on cpu"),
        (lambda p: launch.scatter(p.plan, p.y[:-1]), r"\[scatter\] y has 11 rows, but the plan was made for 12"),
        (lambda p: launch.wgrad(p.plan, p.y, p.grad.half()), "grad has dtype torch.float16, but y has torch.float32"),
        (lambda p: launch.wgrad(p.plan, p.y, p.grad[:, :7]), "grad has 7 columns, but y has 20"),
        (
            lambda p: launch.scatter_backward(p.plan, p.y, p.grad[:8], dw_dtype=torch.float32),
            r"\[scatter_backward\] grad has 8 rows, but the plan was made for 9",
        ),
        (
            lambda p: launch.gather_backward(p.plan, p.y, dw_dtype=torch.float32),
            r"\[gather_backward\] dw_dtype is given, but x is None",
        ),
        (
            lambda p: launch.scatter_backward(p.plan, None, p.grad, dw_dtype=torch.float32),
            r"\[scatter_backward\] dw_dtype is given, but y is None",
        ),
        (
            lambda p: launch.gather(p.plan, p.x, out=torch.zeros(4, 3, 19)),
            r"\[4, 3, 19\] .* must be \[4, 3, 20\]",
        ),
        (lambda p: launch.scatter(p.plan, p.y, out=p.y[:9]), r"\[scatter\] out overlaps an input"),
        (
            lambda p: launch.scatter(p.plan, p.y, out=torch.zeros(1, 20).expand(9, 20)),
            "out: its rows overlap: 0 apart, 20 long",
        ),
        (
            lambda p: launch.gather(p.plan, torch.empty(1 << 30).as_strided((9, 20), (1 << 26, 1))),
            "x: rows are 67108864 elements apart, but at most",
        ),
    ],
)
def test_wrong_arguments_are_refused_with_their_values(p, change, text):
    with pytest.raises(ValueError, match=text):
        change(p)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("order", ["token", "expert"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("indices", r"the plan's indices has 17 entries, but tokens \* top_k is 18"),
        ("row_of_assignment", r"the plan's row_of_assignment has 16 entries, but tokens \* top_k is 18"),
        ("bins", "the plan's bins has 3 entries, but num_experts is 4"),
    ],
)
def test_maps_of_another_length_than_the_plan_says_are_refused(p, name, text, order, check):
    plan = replace(p.plan, **{name: getattr(p.plan, name)[:-1]})
    is_read = check or name == "bins" or (name == "indices") == (order == "expert")
    with pytest.raises(ValueError, match=text) if is_read else nullcontext():
        launch.gather(plan, p.x, options=launch.Options(check=check, order=order))


def test_a_row_copy_without_an_order_means_expert_order(p, monkeypatch):
    orders, constexprs = [], tiles.constexprs
    monkeypatch.setattr(
        tiles, "constexprs", lambda tile, **sizes: orders.append(tile.order) or constexprs(tile, **sizes)
    )
    for options in (launch.Options(), launch.Options(row_copy="indexed_load"), launch.Options(order="token")):
        launch.gather(p.plan, p.x, options=options)
    assert orders == ["token", "expert", "token"]


def test_an_unsound_plan_is_refused_unless_the_caller_vouches_for_it(p):
    p.plan.indices[0] = p.plan.indices[1]
    with pytest.raises(library.LibraryError, match="index_unique"):
        launch.scatter(p.plan, p.y)
    launch.scatter(p.plan, p.y, options=launch.Options(check=False))


@pytest.mark.parametrize("order", ["token", "expert"])
def test_with_the_check_off_no_map_leads_outside_a_tensor(p, order):
    """The interpreter's reads are its process's: an address far outside would end it."""
    far = 2**30
    for name, value in (("indices", far), ("indices", -far), ("row_of_assignment", far), ("bin_ids", far)):
        getattr(p.plan, name).fill_(value)
    how = launch.Options(check=False, order=order, num_programs=2)
    launch.gather(p.plan, p.x, p.weights, options=how)
    launch.scatter_backward(p.plan, p.y, p.grad, p.weights, dw_dtype=torch.float32, options=how)
    launch.scatter(p.plan, p.y, p.weights, options=how)


def test_an_unknown_soc_is_refused_with_those_there_are(p):
    with pytest.raises(library.LibraryError, match="910B3"):
        launch.gather(p.plan, p.x, options=launch.Options(check=False, soc="Ascend310"))


def test_a_sub_block_of_one_row_is_refused():
    sizes = {"tokens": 9, "hidden_size": 8, "num_experts": 4, "top_k": 2, "expert_capacity": 3}
    tile = library.tile_plan(op="gather", order="expert", rows=torch.float32, **sizes)
    one = tile.__class__(**{**tile.__dict__, "sub_block_size": 1})
    with pytest.raises(ValueError, match="2 rows a sub-block at least"):
        tiles.constexprs(one, top_k=2, hidden_size=8, element_bytes=4, has_weights=False)


@pytest.mark.parametrize("shape", [(0, 8, 3, 2, 4), (5, 0, 3, 2, 4), (5, 8, 3, 2, 0)], ids=str)
def test_a_size_of_zero_wants_no_launch_and_leaves_no_element_unwritten(shape):
    p = problem(33, "f32", *shape, extra=0)
    assert_same(launch.gather(p.plan, p.x), library.gather(p.plan, p.x), "y")
    assert_same(launch.scatter(p.plan, p.y), library.scatter(p.plan, p.y), "out")
    zeros = torch.zeros(p.plan.row_of_assignment.shape)
    assert_same(launch.wgrad(p.plan, p.y, p.grad), zeros, "dw")
    dy, dw = launch.scatter_backward(p.plan, p.y, p.grad, dw_dtype=torch.float32)
    assert_same(dy, library.gather(p.plan, p.grad), "dy")
    assert_same(dw, zeros, "dw")


def test_an_output_given_is_written_and_nothing_beside_it(p):
    for columns in (20, 23):
        room = torch.full((14, columns), 7.0)
        out = room[1:13, :20]
        if columns == 20:
            result = launch.gather(p.plan, p.x, out=out.view(4, 3, 20))
        else:
            result = launch.gather(p.plan, p.x, out=room.as_strided((4, 3, 20), (3 * 23, 23, 1), 23))
        assert_same(result, library.gather(p.plan, p.x), "y")
        assert (room[0] == 7).all() and (room[13] == 7).all() and (room[:, 20:] == 7).all()


def test_maps_of_another_integer_type_are_taken(p):
    wide = {name: getattr(p.plan, name).long() for name in library.PLAN_MAPS[:-1]}
    plan = p.plan.__class__(p.plan.tokens, p.plan.top_k, p.plan.num_experts, p.plan.expert_capacity, **wide)
    assert_same(launch.gather(plan, p.x), library.gather(p.plan, p.x), "y")


def test_both_gradients_of_a_gather(p):
    dx, dw = launch.gather_backward(p.plan, p.y, p.weights, p.x, dw_dtype=torch.float32)
    assert_same(dx, library.scatter(p.plan, p.y, p.weights), "dx")
    assert_same(dw, launch.wgrad(p.plan, p.y, p.x), "dw")
    assert launch.gather_backward(p.plan, p.y)[1] is None
