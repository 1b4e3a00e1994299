"""binmoe_tile_plan against `binmoe tile --json`: the same numbers, for every kernel."""

import ctypes
import itertools
import json
import os
import subprocess
from ctypes import POINTER, Structure, c_char, c_char_p, c_double, c_int32, c_int64
from pathlib import Path

import binmoe_c as b
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("BINMOE_PROGRAM", str(ROOT / "build/tests/bin/binmoe"))
FAMILIES, FORMS = ("ascendc", "triton"), ("indexed_load", "element_insert", "index_select", None)
OPS, ORDERS = ("plan", "gather", "scatter", "wgrad", "scatter-backward"), ("token", "expert")
DTYPES = {"f32": b.F32, "bf16": b.BF16, "f16": b.F16}
SIZES = {"tokens": 16384, "hidden_size": 4096, "expert_capacity": 5120, "num_experts": 8, "top_k": 2}


class Request(Structure):
    _fields_ = (
        ("soc", c_char_p),
        *((name, c_int32) for name in ("family", "row_copy", "op", "order", "rows", "weights", "dw", "policy")),
        *((name, c_int64) for name in ("tokens", "hidden_size", "expert_capacity")),
        *((name, c_int32) for name in ("num_experts", "top_k")),
    )


class Buffer(Structure):
    _fields_ = (("name", c_char * 64), ("bytes", c_int64), ("count", c_int32))


class Tile(Structure):
    _fields_ = (
        *((name, c_int32) for name in ("order", "row_copy", "num_programs")),
        *((name, c_int64) for name in ("items", "items_per_block", "sub_block_size", "block_x")),
        *((name, c_int64) for name in ("ub_bytes", "ub_limit_bytes")),
        ("estimate_us", c_double),
        ("num_buffers", c_int32),
        ("buffers", Buffer * 32),
    )


b.lib.binmoe_tile_plan.argtypes = [POINTER(Request), POINTER(Tile)]


def request(op="gather", soc="910B3", family="triton", form="element_insert", dtype="bf16", weights=None, order=None):
    codes = (FAMILIES.index(family), -1 if form is None else FORMS.index(form), OPS.index(op))
    codes += (-1 if order is None else ORDERS.index(order),)
    return Request(soc.encode(), *codes, DTYPES[dtype], -1 if weights is None else DTYPES[weights], b.F32, 0, **SIZES)


def printed(op, soc, family, form, dtype, weights, order):
    command = [PROGRAM, "tile", "--json", "--soc", soc, "--op", op, "--dtype", dtype, "--family", family]
    command += (["--row-copy", form] if form else []) + (["--order", order] if order else [])
    command += ["--weights", "--weights-dtype", weights] if weights else []
    for name, value in SIZES.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize("soc", ["910B3", "910_9382", "950_959x"])
@pytest.mark.parametrize("op", OPS)
def test_a_tile_plan_is_the_one_that_the_command_prints(op, soc):
    names = {
        entry["soc"] for entry in json.loads(subprocess.check_output([PROGRAM, "tile", "--list", "--json"]))["socs"]
    }
    soc = soc if soc in names else sorted(names)[-1]
    orders = (None, *ORDERS) if op == "gather" else (None,)
    families = FAMILIES[:1] if op == "plan" else FAMILIES  # the plan has no Triton kernel
    for family, form, dtype, weights, order in itertools.product(families, FORMS, DTYPES, (None, "f32"), orders):
        arguments = (op, soc, family, form, dtype, weights, order)
        want, tile = printed(*arguments), Tile()
        b.call("tile_plan", request(*arguments), tile)
        got = {name: getattr(tile, name) for name in ("num_programs", "sub_block_size", "block_x")}
        got |= {name: getattr(tile, name) for name in ("ub_bytes", "ub_limit_bytes", "estimate_us")}
        got["order"] = ORDERS[tile.order] if op == "gather" else None
        got["row_copy"] = None if tile.row_copy < 0 else FORMS[tile.row_copy]
        buffers = tile.buffers[: tile.num_buffers]
        got["buffers"] = [{"name": x.name.decode(), "bytes": x.bytes, "count": x.count} for x in buffers]
        assert got == {name: want[name] for name in got}, arguments


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"soc": None}, b.INVALID_ARGUMENT, "the SoC's name is null"),
        ({"soc": b"310P"}, b.UNSUPPORTED, "310P"),
        ({"family": 2}, b.INVALID_ARGUMENT, "2 is no kernel family"),
        ({"row_copy": 3}, b.INVALID_ARGUMENT, "3 is no row copy"),
        ({"op": 5}, b.INVALID_ARGUMENT, "5 is no operation"),
        ({"order": 2}, b.INVALID_ARGUMENT, "2 is no order"),
        ({"rows": 9}, b.INVALID_ARGUMENT, "9 is no dtype"),
        ({"rows": b.F64}, b.INVALID_ARGUMENT, "rows of f64 are not taken"),
        ({"top_k": 0}, b.INVALID_ARGUMENT, "top_k is 0, but must be at least 1"),
        ({"hidden_size": -1}, b.INVALID_ARGUMENT, "must not be negative"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(change, code, text):
    asked, tile = request(), Tile()
    for name, value in change.items():
        setattr(asked, name, value)
    with pytest.raises(b.BinmoeError, match=text) as caught:
        b.call("tile_plan", asked, tile)
    assert caught.value.code == code


def test_null_pointers_are_refused():
    for arguments in ((None, Tile()), (request(), None)):
        with pytest.raises(b.BinmoeError, match="is null"):
            b.call("tile_plan", *arguments)


def test_the_structs_have_the_headers_sizes():
    """As a C compiler lays them out; a field that is missing here would shift the numbers."""
    source = "#include <binmoe/binmoe_c.h>\n"
    source += "".join(
        f'_Static_assert(sizeof({name}) == {ctypes.sizeof(kind)}, "{name}");\n'
        for name, kind in (("binmoe_tile_request", Request), ("binmoe_tile_buffer", Buffer), ("binmoe_tile", Tile))
    )
    command = ["cc", "-std=c11", "-fsyntax-only", "-I", str(ROOT / "include"), "-x", "c", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("sizes", "form"),
    [
        ({"tokens": 16384, "num_experts": 8}, "indexed_load"),  # runs as long as a sub-block: copies side by side
        ({"tokens": 64, "num_experts": 128, "hidden_size": 7168}, "element_insert"),  # runs of a row or two
    ],
)
def test_a_gather_in_expert_order_gets_the_row_copy_that_costs_less(sizes, form):
    asked, tile = request(form=None, order="expert"), Tile()
    for name, value in sizes.items():
        setattr(asked, name, value)
    b.call("tile_plan", asked, tile)
    assert FORMS[tile.row_copy] == form
    asked.row_copy = FORMS.index("index_select")
    b.call("tile_plan", asked, tile)
    assert FORMS[tile.row_copy] == "index_select"
