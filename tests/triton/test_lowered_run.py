"""The lowered run reports what is wrong with a kernel, and nothing that is not."""

import subprocess
from pathlib import Path

import pytest
import torch

BLOCK = 32
SIGNATURE = {"x": "*fp32", "y": "*fp32", "n": "i32"}


@pytest.fixture
def run(ascend_check):
    """run(kernel name, x, y, n, ...) -> RunResult"""
    import small_kernels

    def run(name, x, y, n, grid=(3,), types=SIGNATURE, **settings):
        mlir = ascend_check.lower(getattr(small_kernels, name), types, {"BLOCK": BLOCK})
        return ascend_check.run_lowered(mlir, grid, [x, y, n], **settings)

    return run


def kinds(result):
    return {fault.kind for fault in result.faults}


@pytest.mark.parametrize("n", [1, 31, 32, 33, 100])
def test_a_right_kernel_gives_the_right_result_and_no_fault(run, n):
    x, y = torch.randn(n), torch.full((n,), float("nan"))
    result = run("copy_kernel", x, y, n)
    assert (result.num_faults, result.faults, result.touched_guards) == (0, [], [])
    assert torch.equal(x, y)
    assert (result.read_bytes["x"], result.written_bytes["y"]) == (4 * n, 4 * n)
    assert (result.rewritten_bytes["y"], result.unwritten_bytes["y"]) == (0, 0)


def test_a_read_and_a_write_past_the_end_are_faults_with_argument_offset_and_size(run):
    x, y = torch.randn(40), torch.zeros(40)
    result = run("unmasked_copy_kernel", x, y, 40)
    read, write = (next(f for f in result.faults if f.kind.startswith(k)) for k in ("read", "write"))
    assert (read.kind, read.argument, read.program) == ("read outside a tensor", "x", 1)
    assert (write.kind, write.argument, write.program) == ("write outside a tensor", "y", 1)
    assert (write.offset_bytes, write.size_bytes) == (128, 128)
    assert result.touched_guards == [], "a bad write goes nowhere"


def test_what_is_written_twice_or_never_is_counted(run):
    x, y = torch.randn(64), torch.zeros(64)
    result = run("first_block_kernel", x, y, 64)
    assert result.num_faults == 0
    assert (result.rewritten_bytes["y"], result.unwritten_bytes["y"]) == (2 * 128, 128)


def test_a_write_to_an_input_is_a_fault_and_leaves_it_alone(run):
    x, y = torch.randn(20), torch.zeros(20)
    kept = x.clone()
    result = run("store_to_input_kernel", x, y, 20, grid=(1,), outputs=["y"])
    assert kinds(result) == {"write to an input"}
    assert torch.equal(x, kept)


def test_a_store_mask_that_depends_on_data_reads_the_output(run):
    x, y = torch.randn(BLOCK), torch.zeros(BLOCK)
    assert kinds(run("read_back_kernel", x, y, BLOCK, grid=(1,), outputs=["y"])) == {"read of an output"}


def test_an_insert_outside_its_tile_is_a_fault(run):
    x, y = torch.randn(2 * BLOCK), torch.zeros(2 * BLOCK)
    assert kinds(run("insert_below_kernel", x, y, 2, grid=(1,))) == {"write outside a UB buffer"}


@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_sixteen_bit_types_round_to_nearest_even(run, name, dtype):
    x = torch.tensor([1.0, 1.0078125, -1.0, 3.3e38, float("inf"), float("nan"), 1e-7, 0.0]).to(dtype)
    y = torch.zeros(8, dtype=dtype)
    types = {"x": f"*{name}", "y": f"*{name}", "n": "i32"}
    assert run("half_sum_kernel", x, y, 8, grid=(1,), types=types).num_faults == 0
    want = (x.float() + 0.001953125).to(dtype)
    assert torch.equal(y.isnan(), want.isnan())
    assert torch.equal(y.nan_to_num(0.0), want.nan_to_num(0.0))


def test_programs_run_in_the_order_that_is_asked_for_and_only_those(run):
    x, y = torch.randn(100), torch.zeros(100)
    result = run("copy_kernel", x, y, 100, programs=[2, 0])
    assert result.unwritten_bytes["y"] == 128
    assert torch.equal(y[:32], x[:32]) and torch.equal(y[64:96], x[64:96]) and not y[32:64].any()


def test_a_tensor_between_guards_is_used_in_place_and_a_huge_one_costs_nothing(ascend_check, run):
    x = ascend_check.Guarded((1 << 31,), torch.float32)
    y = ascend_check.Guarded.poisoned((70,), torch.float32)
    x.tensor[:70] = torch.arange(70)
    assert run("copy_kernel", x, y, 70).num_faults == 0
    assert torch.equal(y.tensor, x.tensor[:70]) and y.margins_are_clean()


def test_the_runtime_compiles_without_a_warning(ascend_check, tmp_path):
    source = Path(ascend_check.__file__).with_name("runtime.c")
    command = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-c", source]
    subprocess.run([*command, "-o", tmp_path / "runtime.o"], check=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda x, y: [x, y], "2 arguments were given, but the kernel takes 3"),
        (lambda x, y: [x.double(), y, 4], "x is torch.float64, but the kernel takes f32"),
    ],
)
def test_wrong_arguments_are_refused(ascend_check, arguments, message):
    import small_kernels

    mlir = ascend_check.lower(small_kernels.copy_kernel, SIGNATURE, {"BLOCK": BLOCK})
    with pytest.raises(ascend_check.RunError, match=message):
        ascend_check.run_lowered(mlir, (1,), arguments(torch.zeros(4), torch.zeros(4)))
