"""tile, simulate, and the backend ascend-model: what they print and refuse. The kernels' results: tests/ascend."""

import json
import re
from pathlib import Path

import pytest
from program import run

KERNELS = Path(__file__).parents[2] / "src/ascend/kernels"
SIZES = ["--tokens", 300, "--hidden-size", 256, "--num-experts", 8, "--top-k", 2, "--expert-capacity", 80]
LARGE = ["--tokens", 16384, "--hidden-size", 4096, "--num-experts", 8, "--top-k", 2, "--expert-capacity", 5120]


def tile(*options):
    return json.loads(run("tile", *options, "--json").stdout)


@pytest.mark.parametrize("op", ["plan", "gather", "scatter", "wgrad", "scatter-backward"])
def test_the_buffers_of_a_tile_plan_add_up_to_its_budget(op):
    plan = tile("--op", op, *LARGE)
    fields = "soc family row_copy op order dtype num_programs sub_block_size block_x buffers ub_bytes ub_limit_bytes"
    assert list(plan) == [*fields.split(), "estimate_us"]
    assert sum(b["bytes"] * b["count"] for b in plan["buffers"]) == plan["ub_bytes"] <= plan["ub_limit_bytes"] == 188160
    assert all(b["bytes"] % 32 == 0 for b in plan["buffers"])
    assert plan["num_programs"] == 40


def test_the_order_the_family_and_the_chip_are_the_callers_choice():
    assert tile("--op", "gather", "--order", "expert", *LARGE)["order"] == "expert"
    assert tile("--op", "gather", *LARGE)["order"] == "token"
    assert tile("--op", "wgrad", *LARGE)["order"] is None
    triton = tile("--op", "gather", "--family", "triton", "--row-copy", "index_select", *LARGE)
    assert (triton["family"], triton["row_copy"]) == ("triton", "index_select")
    assert triton["ub_bytes"] <= triton["ub_limit_bytes"] == (192 - 16) * 1024
    assert tile("--soc", "Ascend910_9382", *LARGE)["num_programs"] == 48


def test_the_list_names_every_chip_with_its_cores():
    socs = json.loads(run("tile", "--list", "--json").stdout)["socs"]
    cores = {soc["soc"]: soc["vector_cores"] for soc in socs}
    assert len(cores) == 16
    assert (cores["910B1"], cores["910B4"], cores["910_9391"], cores["950_959x"]) == (48, 40, 48, 72)
    assert all(soc["source"] for soc in socs)


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--soc", "910B9", *LARGE], 2, "there is no SoC '910B9'; there are: 910B1, "),
        (["--op", "sort", *LARGE], 2, "--op names 'sort'; there are: plan, gather, scatter, wgrad, scatter-backward"),
        (["--dtype", "f64", *LARGE], 2, "--dtype names 'f64'; there are: f32, bf16, f16"),
        (["--order", "row", *LARGE], 2, "--order names 'row'"),
        (["--op", "scatter", "--order", "token", *LARGE], 1, "only gather has orders"),
        (LARGE[2:], 2, "--tokens is needed"),
        ([*LARGE[:-3], 0, *LARGE[-2:]], 2, "top-k"),
        (["--op", "plan", "--family", "triton", *LARGE], 1, "a plan has no Triton kernel"),
        (["--op", "wgrad", *LARGE[:-3], 20000, *LARGE[-2:]], 1, "bytes of UB, but 910B3 has 188160"),
    ],
)
def test_a_wrong_request_is_refused(options, code, text):
    assert text in run("tile", *options, code=code).stderr


@pytest.mark.parametrize("op", ["plan", "gather", "scatter", "wgrad", "scatter-backward"])
def test_simulate_reports_each_launch_and_a_share_of_the_bound(op):
    out = json.loads(run("simulate", "--op", op, "--weights", *SIZES, "--json").stdout)
    assert out["launches"] and all(len(launch["programs"]) == 40 for launch in out["launches"])
    assert max(launch["ub_high_water"] for launch in out["launches"]) == out["ub_bytes"]
    assert 0 < out["share_of_bound"] <= 1
    assert out["estimate_slow_scalar_us"] >= out["estimate_us"] * 0.9
    assert sum(launch["gm_written_bytes"] for launch in out["launches"]) > 0
    assert out["minimum_bytes"] > 0


def test_simulate_takes_a_plan_and_writes_a_trace(tmp_path):
    ids = Path("data/traces/flame-moe-290m_layer05_ids.npy")
    sizes = ["--num-experts", 64, "--capacity-factor", 1.25]
    run("plan", "--expert-ids", ids, *sizes, "--out", tmp_path / "plan")
    trace = tmp_path / "trace.json"
    done = run("simulate", "--hidden-size", 64, "--plan", tmp_path / "plan", "--trace", trace)
    assert "no rule was broken" in done.stdout and "estimate" in done.stdout
    assert len(json.loads(trace.read_text())["traceEvents"]) > 1000


def test_a_triton_kernel_cannot_be_simulated():
    assert "only Ascend C kernels" in run("simulate", "--family", "triton", *SIZES, code=2).stderr


def test_the_model_refuses_dtypes_that_its_kernels_do_not_take():
    done = run("bench", *SIZES[:-2], "--backend", "ascend-model", "--dtype", "f64", "--op", "gather", code=2)
    assert "the backend ascend-model does not take f64; it takes: f32, bf16, f16, bytes" in done.stderr


def test_kernels_include_nothing_but_kernel_operator_and_each_other():
    for source in KERNELS.glob("*.h"):
        text = source.read_text()
        for name in re.findall(r'#include [<"]([^>"]+)[>"]', text):
            assert name in ("kernel_operator.h", "stdint.h") or (KERNELS / name).is_file(), f"{source.name}: {name}"
        code = re.sub(r"//.*", "", text)
        assert not re.search(r"\bstd::|\bvirtual\b|\bthrow\b|\btry\b|\bnew\b|\bdelete\b", code), source.name
