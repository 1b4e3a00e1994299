"""binmoe plan, check and capacity: what they write and print."""

import json

import numpy as np
import pytest
from program import BF16, PLAN_ARRAYS, make_plan, read_plan, run, run_json, save, tree


def test_a_plan_has_six_arrays_and_a_summary(plan):
    arrays = read_plan(plan)
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "indices": [0, 3, 5, 1, 4, 2, 7],
        "bin_ids": [0, 0, 0, 1, 1, 2, 2],
        "bins": [3, 5, 7],
        "tokens_per_expert": [3, 2, 2],
        "kept_per_expert": [2, 2, 2],
        "row_of_assignment": [[0, 2], [4, 1], [3, -1], [-1, 5]],
    }
    assert all(array.dtype == np.int32 for array in arrays.values())
    assert {path.name for path in plan.iterdir()} == {"plan.json", *(f"{name}.npy" for name in PLAN_ARRAYS)}
    assert json.loads((plan / "plan.json").read_text()) == {
        "format_version": 1, "tokens": 4, "top_k": 2, "num_experts": 3, "expert_capacity": 2, "policy": "token_order",
        "kept": 6, "dropped": 1, "masked": 1, "empty_rows": 0, "max_over_mean_load": 3 * 3 / 7,
        "tokens_per_expert": [3, 2, 2],
    }  # fmt: skip


def test_json_is_what_stands_in_plan_json(tmp_path):
    ids = save(tmp_path / "ids.npy", np.int64([[0], [1]]))
    out = tmp_path / "plan"
    done = run("plan", "--json", "--expert-ids", ids, "--num-experts", 2, "--expert-capacity", 1, "--out", out)
    assert done.stdout == (out / "plan.json").read_text()


def test_the_text_shows_counts_and_a_bar_per_expert(tmp_path):
    ids = save(tmp_path / "ids.npy", np.int32([[0], [0], [0], [0], [2], [-1]]))
    done = run("plan", "--expert-ids", ids, "--num-experts", 3, "--expert-capacity", 2, "--out", tmp_path / "plan")
    lines = done.stdout.splitlines()
    assert lines[0] == "6 tokens, top_k 1, 3 experts, capacity 2, token_order"
    assert [" ".join(line.split()) for line in lines[1:5]] == [
        "kept 3 60.0 % of the unmasked assignments",
        "dropped 2 40.0 % of the unmasked assignments",
        "masked 1 16.7 % of all assignments",
        "empty rows 3 50.0 % of the expert rows",
    ]
    assert lines[5].split() == ["max/mean", "load", "2.40"]
    assert [line.split() for line in lines[7:]] == [["0", "4", "#" * 25 + "x" * 25], ["1", "0"], ["2", "1", "#" * 13]]


def test_many_experts_share_bars(tmp_path):
    ids = save(tmp_path / "ids.npy", np.arange(100, dtype=np.int32).reshape(100, 1))
    done = run("plan", "--expert-ids", ids, "--num-experts", 100, "--expert-capacity", 1, "--out", tmp_path / "plan")
    bars = done.stdout.splitlines()[7:]
    assert len(bars) == 25
    assert bars[0].split()[:2] == ["0-3", "4"]
    assert bars[-1].split()[:2] == ["96-99", "4"]


@pytest.mark.parametrize(
    ("policy", "weights", "kept"),
    [
        ("token_order", None, [0, 1]),
        ("choice_order", None, [0, 2]),
        ("by_weight", np.float32([0.1, np.nan, 0.3, 0.2]), [2, 3]),
        ("by_weight", np.float64([[0.4, 0.1], [0.3, 0.2]]), [0, 2]),
        ("by_weight", np.array([[0.1, 0.1], [0.1, 0.1]], BF16), [0, 1]),
        ("by_weight", np.float16([[0, -0.0], [1, 0]]), [2, 0]),
    ],
)
def test_the_policies_choose_who_is_kept(policy, weights, kept, tmp_path):
    more = [] if weights is None else ["--weights", save(tmp_path / "w.npy", weights)]
    plan = make_plan(tmp_path, np.int32([[0, 0], [0, 0]]), 1, 2, "--policy", policy, *more)
    assert read_plan(plan)["indices"][:2].tolist() == kept
    assert json.loads((plan / "plan.json").read_text())["policy"] == policy


def test_uint16_weights_order_as_bf16_when_asked(tmp_path):
    weights = np.array([[0.1], [-1.0], [0.3]], BF16).view(np.uint16)
    more = ["--policy", "by_weight", "--dtype", "bf16", "--weights", save(tmp_path / "w.npy", weights)]
    plan = make_plan(tmp_path, np.int32([[0], [0], [0]]), 1, 2, *more)
    assert read_plan(plan)["indices"].tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("factor", "multiple", "capacity"),
    [("1", 1, 10), ("1.1", 1, 11), ("0", 1, 0), ("0", 8, 0), ("1.1", 8, 16), ("1e-300", 1, 1), ("2.5", 25, 25)],
)
def test_a_factor_gives_the_capacity(factor, multiple, capacity, tmp_path):
    ids = save(tmp_path / "ids.npy", np.int32([[-1, 0]] * 10))
    got = run_json("plan", "--expert-ids", ids, "--num-experts", 2, "--capacity-factor", factor, "--multiple", multiple,
                   "--out", tmp_path / "plan")  # fmt: skip
    assert got["expert_capacity"] == capacity


@pytest.mark.parametrize("tokens", [0, 3])
@pytest.mark.parametrize("capacity", [0, 2])
def test_empty_plans_are_plans(tokens, capacity, tmp_path):
    ids = np.full((tokens, 2), -1, np.int32)
    plan = make_plan(tmp_path, ids, 3, capacity)
    arrays = read_plan(plan)
    assert arrays["indices"].shape == (0,)
    assert arrays["row_of_assignment"].tolist() == [[-1, -1]] * tokens
    assert run_json("check", "--plan", plan) == {"valid": True}
    x = save(tmp_path / "x.npy", np.ones((tokens, 5), np.float32))
    run("gather", "--plan", plan, "--x", x, "--out", tmp_path / "y.npy")
    y = np.load(tmp_path / "y.npy")
    assert y.shape == (3, capacity, 5)
    assert not y.any()
    run("scatter", "--plan", plan, "--y", tmp_path / "y.npy", "--out", tmp_path / "out.npy")
    assert np.load(tmp_path / "out.npy").tolist() == [[0] * 5] * tokens


def test_threads_and_backends_give_the_same_plan(tmp_path):
    ids = np.random.default_rng(1).integers(-1, 30, (3000, 4)).astype(np.int16)
    trees = []
    for more in (["--threads", 1], ["--threads", 3], ["--backend", "reference"]):
        folder = tmp_path / str(len(trees))
        folder.mkdir()
        trees.append(tree(make_plan(folder, ids, 30, 350, *more)))
    assert trees[0] == trees[1] == trees[2]


def test_capacity_gives_points_and_the_smallest_capacities(tmp_path):
    load = np.array([70, 20, 6, 4])
    ids = np.repeat(np.arange(4), load).astype(np.int32)
    ids = save(tmp_path / "ids.npy", np.append(ids, [-1] * 20).reshape(60, 2))
    got = run_json("capacity", "--expert-ids", ids, "--num-experts", 4)
    factors = [0.25, 0.5, 0.75, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4]
    assert [point["capacity_factor"] for point in got["points"]] == factors
    for point in got["points"]:
        capacity = point["expert_capacity"]
        assert capacity == np.ceil(round(point["capacity_factor"] * 100) * 120 / 4 / 100)
        dropped = np.maximum(load - capacity, 0).sum()
        assert point["dropped_share"] == dropped / 100
        assert point["empty_row_share"] == (4 * capacity - (100 - dropped)) / 100
    assert [(s["max_dropped_share"], s["expert_capacity"]) for s in got["smallest"]] == [
        (0, 70), (0.001, 70), (0.01, 69), (0.05, 65),
    ]  # fmt: skip


def test_a_smallest_factor_gives_back_its_capacity(tmp_path):
    for seed in range(5):
        ids = np.random.default_rng(seed).zipf(1.5, (997, 3)) % 7
        path = save(tmp_path / "ids.npy", ids.astype(np.int32))
        common = ["--expert-ids", path, "--num-experts", 7]
        for smallest in run_json("capacity", *common)["smallest"]:
            factor = repr(smallest["capacity_factor"])
            plan = run_json("plan", *common, "--capacity-factor", factor, "--out", tmp_path / "plan")
            assert plan["expert_capacity"] == smallest["expert_capacity"]
            assert plan["dropped"] <= smallest["max_dropped_share"] * ids.size


def test_capacity_tells_of_more_rows_than_a_plan_can_have(tmp_path):
    path = save(tmp_path / "ids.npy", np.zeros((40_000, 1), np.int32))
    smallest = run_json("capacity", "--expert-ids", path, "--num-experts", 2**16)["smallest"]
    assert (smallest[0]["expert_capacity"], smallest[0]["capacity_factor"]) == (40_000, 2**16)


def test_capacity_of_nothing_is_zero(tmp_path):
    path = save(tmp_path / "ids.npy", np.zeros((0, 2), np.int32))
    got = run_json("capacity", "--expert-ids", path, "--num-experts", 4)
    assert {point["expert_capacity"] for point in got["points"]} == {0}
    assert {smallest["expert_capacity"] for smallest in got["smallest"]} == {0}
    assert "0 of 0 assignments unmasked" in run("capacity", "--expert-ids", path, "--num-experts", 4).stdout


def test_check_takes_bins_of_another_system(tmp_path):
    indices = save(tmp_path / "i.npy", np.int32([5, 0, 2]))
    bins = save(tmp_path / "b.npy", np.int32([0, 2, 3]))
    ids = save(tmp_path / "e.npy", np.int32([1, 1, 2]))
    common = ["check", "--indices", indices, "--bins", bins, "--num-tokens", 3, "--top-k", 2]
    assert run(*common).stdout == "valid: 3 of 6 assignments in 3 experts\n"
    assert run_json(*common, "--bin-ids", ids) == {"valid": True}
