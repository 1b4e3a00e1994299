"""python -m binmoe.bench: it verifies before it times, and what it prints and writes is what it measured."""

import json
import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from binmoe.bench import __main__ as program
from binmoe.bench import layer as layers
from binmoe.bench import report
from binmoe.bench.problem import MODELS, Shape, find_model, make_problem, make_routing
from binmoe.bench.timing import CpuClock, CudaClock, Time
from binmoe.bench.verify import Expected
from binmoe.bench.ways import OPERATIONS, OURS, ways_of

TINY = Shape(find_model("24x5x3"), 40, 0.9, "zipf")  # some dropped, some rows empty


def test_every_way_but_torch_compile_is_verified_in_both_forms(device):
    for dtype in (torch.bfloat16, torch.float32):
        problem = make_problem(TINY, dtype, device)
        assert problem.plan.load().dropped > 0
        assert not problem.used.all()
        buffers = problem.new_buffers(0)
        for operation in OPERATIONS:
            expected = Expected(operation, problem, buffers)
            for name, (way, takes_out) in ways_of(operation, compiled=False).items():
                expected.check(name, way(problem, buffers, False), ours=name == OURS)
                if takes_out:
                    expected.check(name, way(problem, buffers, True), ours=name == OURS)


@pytest.mark.parametrize("operation", ["gather", "scatter", "backward"])
def test_torch_compile_of_the_expression_gives_the_same(operation):
    problem = make_problem(TINY, torch.bfloat16, "cpu")
    buffers = problem.new_buffers(0)
    way, _ = ways_of(operation)["torch.compile"]
    Expected(operation, problem, buffers).check("torch.compile", way(problem, buffers, True), ours=False)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_one_wrong_element_is_found(operation):
    problem = make_problem(TINY, torch.float32, "cpu")
    buffers = problem.new_buffers(0)
    expected = Expected(operation, problem, buffers)
    way, _ = ways_of(operation, compiled=False)[OURS]
    result = way(problem, buffers, False)
    part = result.indices if operation == "plan" else result[0] if operation == "backward" else result
    flat = part.view(-1)
    place = int(flat.abs().argmax())
    flat[place] = flat[place] * 1.01 + 1
    with pytest.raises(ValueError, match=rf"{operation} by {OURS}: 1 of \d+ wrong in \w+, first "):
        expected.check(OURS, result, ours=True)


def test_routings_are_those_of_the_c_plus_plus_benchmark():
    """Computed here by Python integers from bench/routing.cc's formula: SplitMix64 noise, Gumbel top-k."""
    mask = 2**64 - 1

    def mix(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    def score(index, p):
        bits = mix((mix(2024) + index * 0x9E3779B97F4A7C15) & mask)
        return np.log(p) - np.log(-np.log((bits >> 11) * 2.0**-53 + 2.0**-54))

    for routing, weight in (("uniform", lambda e: 1.0), ("zipf", lambda e: 1 / (e + 1))):
        ids = make_routing(routing, 20, 3, 7)
        for t in range(20):
            scores = [score(t * 7 + e, weight(e)) for e in range(7)]
            assert ids[t].tolist() == sorted(range(7), key=lambda e: -scores[e])[:3]
    assert make_routing("uniform", 4, 3, 2).tolist() == [[a, b, a] for a, b in make_routing("uniform", 4, 2, 2)]
    assert not make_routing("one", 4, 2, 8).any()


def test_models_are_found_by_name_or_by_sizes():
    assert find_model("deepseek-v3") == ("deepseek-v3", 7168, 256, 8)
    assert find_model("64x8x2")[1:] == (64, 8, 2)
    assert set(MODELS) == {"mixtral-8x7b", "gpt-oss-120b", "qwen3-30b", "deepseek-v3", "llama4-maverick"}
    with pytest.raises(ValueError, match="no model 'gpt-5'"):
        find_model("gpt-5")


def test_the_least_bytes_are_those_of_the_design():
    problem = make_problem(Shape(find_model("10x2x1"), 6, 1.0, "one"), torch.bfloat16, "cpu")  # 3 of 6 kept, 6 rows
    assert {operation: problem.least_bytes(operation) for operation in OPERATIONS} == {
        "plan": 4 * 6 + 8 * 6 + 4 * 6,
        "gather": (3 + 6) * 20 + 4 * 3,
        "scatter": (3 + 6) * 20 + 4 * 6 + 4 * 6,
        "wgrad": (3 + 3) * 20 + 4 * 6 + 4 * 6,
        "backward": (3 + 3 + 6) * 20 + 4 * 6 + 2 * 4 * 6,
    }


def test_the_clock_reports_what_a_call_takes():
    clock = CpuClock(rounds=3, seconds_a_sample=0.01)
    times = clock.measure({"sleep": clock.prepare(lambda index: time.sleep(0.005))})
    assert times["sleep"].us >= 5000
    assert times["sleep"].low <= times["sleep"].us <= times["sleep"].high


def test_the_layers_ways_agree_and_a_wrong_one_is_found():
    layer = layers.Layer("tiny", 48, 16, 4, 2, 24, True)
    ways, x = layers.make_ways(layer, torch.float32, "cpu", compiled=False)
    parameters = list(ways[OURS].parameters())
    grad = torch.randn(48, 16)
    expected = layers.results_of(ways["torch indexing"], x, grad, parameters)
    layers.verify(OURS, layers.results_of(ways[OURS], x, grad, parameters), expected)
    ways[OURS].layer.capacity_factor = 0.5
    with pytest.raises(ValueError, match="layer by binmoe: tensor 0 is off by"):
        layers.verify(OURS, layers.results_of(ways[OURS], x, grad, parameters), expected)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_mode_of_a_device_times_every_way(operation, device):
    problem = make_problem(TINY, torch.bfloat16, device)
    modes = list(program.clocks_of(program.parse(["--device", device, "--rounds", "2"])))
    assert [given for _, _, given in modes] == [True, False]
    for _, clock, given in modes:
        times, failed = program.times_of(operation, problem, clock, given, compiled=False)
        assert failed == {}
        assert set(times) == set(ways_of(operation, compiled=False))
        assert all(0 < entry.low <= entry.us <= entry.high for entry in times.values())


def test_a_layers_training_step_is_timed(device):
    clock = CpuClock(2) if device == "cpu" else CudaClock(2, graph=False, calls_a_sample=4)
    times, failed = layers.measure(layers.Layer("tiny", 48, 16, 4, 2, 24, True), torch.bfloat16, device, clock, False)
    assert failed == {}
    assert set(times) == {OURS, "torch indexing"}


def test_a_way_of_torch_that_fails_is_named_and_the_others_are_measured(monkeypatch):
    def broken(problem, buffers, into):
        raise RuntimeError("no such kernel\nand more")

    ways = ways_of("gather", compiled=False) | {"broken": (broken, False)}
    monkeypatch.setattr(program, "ways_of", lambda operation, compiled: ways)
    problem = make_problem(TINY, torch.float32, "cpu")
    times, failed = program.times_of("gather", problem, CpuClock(2, 0.001), False, False)
    assert failed == {"broken": "RuntimeError: no such kernel"}
    assert set(times) == set(ways) - {"broken"}
    ways[OURS] = (broken, False)
    with pytest.raises(RuntimeError, match="no such kernel"):
        program.times_of("gather", problem, CpuClock(2, 0.001), False, False)


def test_the_tables_show_medians_spread_and_the_ratio_to_the_fastest_torch_way():
    times = {OURS: Time(50.0, 49.0, 51.0), "slow": Time(200.0, 200.0, 200.0), "fast": Time(75.0, 60.0, 90.0)}
    result = {
        "operation": "gather",
        "mode": "allocating",
        "label": "tiny",
        "share_of_copy": 0.5,
        "times": program.entries(times),
        "failed": {"torch.compile": "RuntimeError: no compiler"},
    }
    assert report.ratio(result) == 1.5
    lines = list(report.tables([result]))
    assert lines[0] == "gather, allocating: us"
    assert lines[2] == "| shape | binmoe | share of copy | slow | fast | fastest torch / binmoe |"
    assert lines[4] == "| tiny | 50 +-2% | 0.50 | 200 +-0% | 75 +-20% | 1.50 |"
    assert lines[6] == "not measured: torch.compile, tiny: RuntimeError: no compiler"


def test_the_program_writes_what_it_prints(tmp_path):
    path = tmp_path / "new" / "record.json"
    command = [sys.executable, "-m", "binmoe.bench", "--models", "24x5x3", "--tokens", "40", "--decode-tokens", "7"]
    command += ["--rounds", "2", "--no-compile", "--layer-sizes", "16", "8", "2", "1", "8", "0", "--json", str(path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # it may share the machine with other tests
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    record = json.loads(path.read_text())
    assert record["copy_gb_per_s"] > 0
    assert record["command"].startswith("python -m binmoe.bench --models 24x5x3")
    results = record["results"]
    assert len(results) == len(OPERATIONS) * 2 * 2 + 1  # two shapes, two modes; the layer
    for result in results:
        assert OURS in result["times"]
        assert len(result["times"]) > 1
        assert all(entry["low_us"] <= entry["us"] <= entry["high_us"] for entry in result["times"].values())
        assert f"| {result['label']} | {report._time(result['times'][OURS])} |" in done.stdout
    assert len(re.findall(r"^\| shape ", done.stdout, re.MULTILINE)) == len(OPERATIONS) * 2 + 1


def test_wrong_arguments_end_with_status_2():
    for arguments in (["--models", "nothing"], ["--device", "cpu", "--dtype", "int8"]):
        with pytest.raises(SystemExit) as exit_of:
            program.parse(arguments)
        assert exit_of.value.code == 2
