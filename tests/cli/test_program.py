"""Help, info, demo and the common options."""

import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from program import PROGRAM, ROOT, TRACES, backends, run, run_json

COMMANDS = ["plan", "check", "gather", "scatter", "wgrad", "scatter-backward", "gather-backward", "capacity", "bench",
            "info", "demo", "tile", "simulate"]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    text = run(command, "--help").stdout
    assert f"Usage: binmoe {command}" in text
    assert re.search(rf"\nExamples?:\n  binmoe {command}\s", text)
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 120
    for option in ("--backend", "--options", "--threads", "--json"):
        assert option in text
    if command not in ("bench", "info", "demo", "tile", "simulate"):
        assert "Formula:" in text
        assert "Files:" in text


def test_the_program_lists_its_commands():
    text = run("--help").stdout
    assert all(f"\n  {command} " in text for command in COMMANDS)
    assert "Exit codes: 0 done; 1 the data is wrong" in text
    assert run("--version").stdout.strip() == run_json("info")["version"]


def test_info_lists_every_backend_and_why_not():
    info = run_json("info")
    assert [backend["name"] for backend in info["backends"]] == ["cuda", "cpu", "reference", "ascend-model"]
    for backend in info["backends"]:
        assert backend["supported"] == (backend["reason"] is None)
        assert backend["description"]
    on_host = [name for name in backends() if name != "cuda"]
    assert info["default_backend"] == on_host[0]
    text = run("info").stdout
    assert f"* {on_host[0]}: " in text
    assert text.startswith("binmoe " + info["version"])


def test_the_backend_asked_for_is_the_one_in_force():
    assert run_json("info", "--backend", "reference")["default_backend"] == "reference"
    assert "* reference" in run("info", BINMOE_BACKEND="reference").stdout
    assert run_json("info", "--threads", 3)["threads"] == 3


def test_slow_work_shows_progress_on_a_terminal_only():
    command = [PROGRAM, "demo", "--backend", "reference", "--hidden-size", "3000"]
    ours, theirs = os.openpty()
    on_a_terminal = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert on_a_terminal.returncode == 0
    assert re.fullmatch(r"(\r\x1b\[K[a-z -]+ \.\.\. \d+ s)+\r\x1b\[K", shown), shown
    assert subprocess.run(command, cwd=ROOT, capture_output=True).stderr == b""


@pytest.mark.parametrize("backend", backends())
def test_the_demo_is_sound_on_every_backend(backend):
    done = subprocess.run([PROGRAM, "demo", "--backend", backend], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "2048 tokens, top_k 6, 64 experts, capacity 240, token_order" in done.stdout
    assert done.stdout.count("equals the reference bit for bit") == 5
    assert "dw within its bound" in done.stdout


def test_the_demo_takes_another_trace_and_prints_json():
    trace = "mixtral-8x7b_wikipedia_once_layer00"
    sizes = ["--num-experts", 8, "--hidden-size", 7]
    got = run_json("demo", "--data", ROOT / "data", "--trace", trace, *sizes)
    assert got["sound"]
    steps = "plan, gather, expert step, scatter, scatter-backward, expert backward, gather-backward"
    assert ", ".join(step["step"] for step in got["steps"]) == steps
    assert all(step["us"] > 0 and step["sound"] for step in got["steps"])


def test_the_demo_says_where_it_looked(tmp_path):
    done = subprocess.run([PROGRAM, "demo"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("binmoe: data/traces/flame-moe-290m_layer05_ids.npy: there is no such trace; name")


def test_the_demo_refuses_a_damaged_trace(tmp_path):
    (tmp_path / "traces").mkdir()
    for part in ("ids", "weights"):
        shutil.copy(TRACES / f"flame-moe-290m_layer05_{part}.npy", tmp_path / "traces")
    path = tmp_path / "traces/flame-moe-290m_layer05_ids.npy"
    ids = np.load(path)
    ids[3, 0] = 64
    np.save(path, ids)
    done = run("demo", "--data", tmp_path, code=1)
    assert "expert_ids[18] is 64, but must be in [-1, 64) (check expert_id_range)" in done.stderr
