"""The other levels on small kernels: lowering, the text's properties, UB planning."""

import itertools
import random
import subprocess
import tempfile
from pathlib import Path

import pytest

TILE = {"x": "*bf16", "y": "*bf16", "n": "i32"}


@pytest.fixture
def lowered(ascend_check):
    import small_kernels

    def lowered(name, types=TILE, **constexprs):
        return ascend_check.lower(getattr(small_kernels, name), types, constexprs)

    return lowered


def test_lowering_says_which_arguments_were_given_wrongly(ascend_check):
    import small_kernels

    with pytest.raises(ValueError, match=r"copy_kernel: arguments given wrongly or not at all: \['BLOCK', 'block'\]"):
        ascend_check.lower(small_kernels.copy_kernel, TILE, {"block": 4})


def test_what_the_compiler_refuses_is_reported_in_its_own_words(ascend_check):
    import small_kernels

    with pytest.raises(ascend_check.LoweringError, match="copy_kernel"):
        ascend_check.lower(small_kernels.copy_kernel, {**TILE, "x": "i32"}, {"BLOCK": 32})


@pytest.mark.parametrize(("status", "crashes", "calls"), [(-6, 2, 3), (-6, 3, 3), (1, 1, 1)])
def test_a_crash_of_the_compiler_is_tried_again_and_a_refusal_is_not(ascend_check, status, crashes, calls):
    from binmoe.ascend.check import tools

    made = []

    def work():
        made.append(status)
        if len(made) <= crashes:
            raise subprocess.CalledProcessError(status, "triton-adapter-opt")
        return "text"

    if crashes < calls:
        assert tools.again_after_a_crash(work) == "text"
    else:
        with pytest.raises(subprocess.CalledProcessError):
            tools.again_after_a_crash(work)
    assert (len(made), ascend_check.missing()) == (calls, None)


def test_properties_count_copies_and_stores(ascend_check, lowered):
    found = ascend_check.ir_properties(lowered("copy_kernel", BLOCK=32))
    assert (found["copies"], found["stores"]) == (1, 1)
    assert not any(found[name] for name in ("scalar_loads", "scalar_stores", "tile_selects", "atomics", "read_outputs"))


def test_properties_name_an_output_that_is_read_back(ascend_check, lowered):
    types = {"x": "*fp32", "y": "*fp32", "n": "i32"}
    assert ascend_check.ir_properties(lowered("read_back_kernel", types, BLOCK=32))["read_outputs"] == ["y"]


@pytest.mark.parametrize("target", ["Ascend910B1", "Ascend910B3", "Ascend910_9382"])
def test_a_tile_in_a_loop_takes_its_bytes_twice(ascend_check, lowered, target):
    usage = ascend_check.ub_usage(lowered("tile_kernel", ROWS=16, COLUMNS=512), target)
    assert (usage.used_bytes, usage.limit_bytes, usage.fits) == (2 * 16 * 512 * 2, 192 * 1024, True)


def test_an_overflow_gives_the_bytes_that_were_wanted(ascend_check, lowered):
    usage = ascend_check.ub_usage(lowered("tile_kernel", ROWS=64, COLUMNS=1024))
    assert (usage.used_bytes, usage.fits) == (2 * 64 * 1024 * 2, False)


def test_the_planner_alone_and_the_whole_compiler_agree(ascend_check):
    """bishengir-compile runs the same planner; a retry without double buffering would be a note."""
    from binmoe.ascend.check.suite.running import lowered
    from binmoe.ascend.check.suite.table import KERNELS, Variant
    from binmoe.ascend.check.tools import path_of
    from binmoe.ascend.check.ub import highest_address

    for kernel in KERNELS:
        mlir = lowered(Variant(kernel, weights="f32", block_x=512))
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "kernel.mlir").write_text(mlir)
            command = [path_of("bishengir-compile"), f"{folder}/kernel.mlir", "--target=Ascend910B3"]
            command += ["--enable-auto-multi-buffer=true", "--enable-auto-bind-sub-block=true"]
            command += ["--enable-hfusion-compile=true", "--enable-hivm-compile=true"]
            command += ["--enable-triton-kernel-compile=true", f"--save-temps={folder}", "-o", f"{folder}/kernel"]
            done = subprocess.run(command, capture_output=True, text=True)
            assert "[NOTE]" not in done.stdout + done.stderr, kernel
            whole = highest_address(Path(folder, "module.hivm.opt.mlir").read_text())
        assert whole == ascend_check.ub_usage(mlir).used_bytes, kernel


def _random_plans(seed, count):
    """Tile plans of any sizes: (kernel, the numbers), the last ones with tails and odd lengths."""
    from binmoe.ascend.check.suite import ub_level
    from binmoe.ascend.check.suite.table import KERNELS, forms_of

    rng = random.Random(seed)
    choices = [(kernel, form) for kernel in KERNELS for form in forms_of(kernel)]
    for kernel, form in itertools.islice(itertools.cycle(choices), count):
        hidden = rng.choice([rng.randrange(300, 9000), 16 * rng.randrange(20, 500)])
        sizes = (hidden, rng.choice([4, 64, 300]), rng.choice([1, 2, 3, 4, 6, 8, 9, 16]), 4096)
        weights = None if kernel == "wgrad" else rng.choice([None, "f32", "bf16"])
        yield ub_level.planned(kernel, form, "random", "910B3", rng.choice(["f32", "bf16", "f16"]), weights, sizes)


def test_the_budget_is_an_upper_bound_within_a_quarter_for_any_sizes(ascend_check):
    from binmoe.ascend.check.suite import ub_level

    plans = list(_random_plans(seed=5, count=70))
    found = ub_level.usages([plan.variant for plan in plans], "Ascend910B3")
    complaints = [text for text in map(ub_level.complaint, plans, found) if text]
    assert not complaints, "\n".join(complaints)
