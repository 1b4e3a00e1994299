"""python -m binmoe.ascend.check: what it says when it cannot run, its options, its report."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PYTHON_FOLDER = Path(__file__).resolve().parents[2] / "python"


def run(*arguments, **environment):
    settings = {**os.environ, "PYTHONPATH": str(PYTHON_FOLDER), **environment}
    command = [sys.executable, "-m", "binmoe.ascend.check", *arguments]
    return subprocess.run(command, env=settings, capture_output=True, text=True)


@pytest.mark.parametrize(("required", "status"), [("0", 77), ("1", 1)])
def test_without_gcc_it_says_so_and_skips_or_fails(required, status):
    done = run("--json", PATH="/nowhere", BINMOE_REQUIRE_ASCEND=required)
    assert done.returncode == status
    assert "NOTHING WAS CHECKED: gcc is missing" in done.stderr
    assert json.loads(done.stdout) == {"checks": [], "mutants": [], "skipped": "gcc is missing: apt-get install gcc"}


def test_a_library_that_is_not_there_is_named():
    done = run(BINMOE_LIBRARY="/nowhere/libbinmoe.so", BINMOE_REQUIRE_ASCEND="1")
    assert done.returncode == 1
    assert "the C++ library: " in done.stderr and "/nowhere/libbinmoe.so" in done.stderr


def test_an_interpreting_process_is_refused():
    assert "TRITON_INTERPRET=1 is set" in run(TRITON_INTERPRET="1", BINMOE_REQUIRE_ASCEND="1").stderr


def test_unknown_levels_and_kernels_are_usage_errors(ascend_check):
    assert ascend_check.missing() is None
    done = run("--level", "hope")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there are: lowered run, UB, IR, interpreter" in done.stderr
    assert run("--level", "IR", "--kernel", "sort").returncode == 2


def test_a_level_of_a_kernel_can_be_asked_for(ascend_check):
    assert ascend_check.missing() is None
    done = run("--level", "IR", "--kernel", "wgrad", "--json")
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout)
    assert [set(check) for check in report["checks"]] == [{"kernel", "case", "level", "passed", "detail"}]
    assert (report["checks"][0]["kernel"], report["checks"][0]["level"]) == ("wgrad", "IR")


def test_the_fixture_skips_or_fails_where_nothing_can_be_checked(tmp_path):
    tmp_path.joinpath("test_it.py").write_text("def test_it(ascend_check):\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "binmoe.ascend.check.plugin", str(tmp_path)]
    for required, words in (("0", "1 skipped"), ("1", "1 error")):
        settings = {**os.environ, "PYTHONPATH": str(PYTHON_FOLDER), "PATH": "/nowhere"}
        settings["BINMOE_REQUIRE_ASCEND"] = required
        done = subprocess.run(command, env=settings, capture_output=True, text=True, cwd=tmp_path)
        assert words in done.stdout and "gcc is missing" in done.stdout, done.stdout
