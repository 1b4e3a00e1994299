"""scripts/npu_first_run.py with the interpreter in place of an NPU: what it finds, what it writes, how it ends."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from binmoe.ascend import launch

SCRIPT = Path(__file__).parents[2] / "scripts/npu_first_run.py"


@pytest.fixture(scope="module")
def first_run():
    spec = importlib.util.spec_from_file_location("npu_first_run", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["npu_first_run"] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def run(first_run, tmp_path, dtypes):
    case = first_run.Case("small", 9, 24, 3, 2, 4)
    out = tmp_path / "report.json"
    code = first_run.main(["--interpret", "--out", str(out)], small=(case,), dtypes=dtypes)
    return code, json.loads(out.read_text())


def test_every_kernel_and_form_is_run_and_reported(first_run, tmp_path, capsys):
    code, report = run(first_run, tmp_path, ("f32", "bf16"))
    assert code == 0
    calls = {(r["kernel"], r["form"], r["dtype"], r["weights"]) for r in report["results"]}
    assert len(calls) == len(report["results"]) == 2 * 2 * 7
    assert {kernel for kernel, *_ in calls} == {
        "binned_gather",
        "binned_gather_by_token",
        "binned_scatter",
        "binned_scatter_wgrad",
        "binned_scatter_backward",
    }
    assert all(r["passed"] and r["us"] is None for r in report["results"])
    assert report["complete"] and report["interpreted"] and report["environment"]["triton-ascend"]
    assert "28 calls, 0 failed" in capsys.readouterr().out


def test_a_wrong_result_is_found_named_and_fails_the_run(first_run, tmp_path, monkeypatch):
    scatter, wgrad = launch.scatter, launch.wgrad

    def off_by_a_bit(*arguments, **settings):
        out = scatter(*arguments, **settings)
        out.view(-1)[3] = out.view(-1)[3] * (1 + 2**-22) + 1e-30
        return out

    def nearly(*arguments, **settings):
        return wgrad(*arguments, **settings) + 1e-2

    monkeypatch.setattr(launch, "scatter", off_by_a_bit)
    monkeypatch.setattr(launch, "wgrad", nearly)
    code, report = run(first_run, tmp_path, ("f32",))
    wrong = {r["kernel"]: r["detail"] for r in report["results"] if not r["passed"]}
    assert code == 1 and set(wrong) == {"binned_scatter", "binned_scatter_wgrad"}
    assert "at (0, 3): " in wrong["binned_scatter"] and "1 of 216 differ" in wrong["binned_scatter"]
    assert "of 18 differ" in wrong["binned_scatter_wgrad"]


def test_a_kernel_that_raises_is_reported_and_the_others_run_on(first_run, tmp_path, monkeypatch):
    def broken(*arguments, **settings):
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(launch, "gather", broken)
    code, report = run(first_run, tmp_path, ("f32",))
    wrong = [r for r in report["results"] if not r["passed"]]
    assert code == 1 and {r["kernel"] for r in wrong} == {"binned_gather", "binned_gather_by_token"}
    assert all("no such instruction" in r["detail"] for r in wrong)


def test_a_negative_zero_for_a_dropped_choice_is_a_fault(first_run, tmp_path, monkeypatch):
    wgrad = launch.wgrad

    def negative(*arguments, **settings):
        dw = wgrad(*arguments, **settings)
        return dw.masked_fill(arguments[0].row_of_assignment < 0, -0.0)

    monkeypatch.setattr(launch, "wgrad", negative)
    code, report = run(first_run, tmp_path, ("f32",))
    wrong = {r["kernel"]: r["detail"] for r in report["results"] if not r["passed"]}
    assert code == 1 and set(wrong) == {"binned_scatter_wgrad"}
    assert ": -0.0, not 0.0" in wrong["binned_scatter_wgrad"]


def test_a_problem_that_cannot_be_made_is_reported_and_the_others_run_on(first_run, tmp_path, monkeypatch):
    problem = first_run.Runner.problem

    def broken(self, case, dtype, weighted):
        if dtype == "f32":
            raise MemoryError("no room")
        return problem(self, case, dtype, weighted)

    monkeypatch.setattr(first_run.Runner, "problem", broken)
    code, report = run(first_run, tmp_path, ("f32", "f16"))
    wrong = [r for r in report["results"] if not r["passed"]]
    assert code == 1 and len(report["results"]) == 2 + 2 * 7
    assert [r["kernel"] for r in wrong] == 2 * ["the problem"] and all("no room" in r["detail"] for r in wrong)


def test_what_ends_the_program_leaves_the_results_so_far(first_run, tmp_path, monkeypatch):
    calls = []

    def interrupted(*arguments, **settings):
        calls.append(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "scatter", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(first_run, tmp_path, ("f32",))
    report = json.loads((tmp_path / "report.json").read_text())
    assert len(calls) == 1 and not report["complete"] and len(report["results"]) == len(first_run.FORMS)


def test_timing_gives_bandwidth_and_a_share_of_the_copy(first_run):
    runner = first_run.Runner("cpu", times=3, grid=1)
    assert runner.measure_copy(1 << 16) > 0
    results = list(runner.run(first_run.Case("one", 1, 8, 1, 1, 1), "f32", False))
    for r in results:
        assert r.passed and r.us > 0 and r.gb_s > 0 and r.share_of_copy == r.gb_s / runner.copy_gb_s
        assert "of the copy" in first_run.describe(r)


def test_without_a_device_it_says_so_and_ends_with_2(first_run, tmp_path, capsys):
    assert first_run.main(["--out", str(tmp_path / "none.json")]) == 2
    assert "torch_npu cannot be imported" in capsys.readouterr().err
    assert not (tmp_path / "none.json").exists()
