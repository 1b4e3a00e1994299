"""The command line's backend `reference` against the second oracle, on recorded routing and on random arrays."""

import json

import numpy as np
import oracle
import program
import pytest


class Case:
    """Routing and rows in files, the plan made by the command line, and the oracle's plan."""

    def __init__(self, folder, ids, num_experts, capacity, policy="token_order", priority=None):
        self.folder, self.ids = folder, ids
        self.want = oracle.plan(ids, num_experts, capacity, policy, priority)
        more = [] if priority is None else ["--weights", program.save(folder / "priority.npy", priority)]
        if policy != "token_order":
            more += ["--policy", policy]
        self.summary = program.run_json(
            *["plan", "--backend", "reference", "--expert-ids", program.save(folder / "ids.npy", ids)],
            *["--num-experts", num_experts, "--expert-capacity", capacity, "--out", folder / "plan", *more],
        )

    def run(self, operation, arrays, outputs):
        """Give `arrays` {option: array} to an operation; its outputs in the order of the options."""
        arguments = [operation, "--backend", "reference", "--plan", self.folder / "plan"]
        for option, array in arrays.items():
            if array is not None:
                arguments += [option, program.save(self.folder / f"{operation}{option}.npy", array)]
        paths = [self.folder / f"{operation}-result{option}.npy" for option in outputs]
        for option, path in zip(outputs, paths, strict=True):
            arguments += [option, path]
        program.run(*arguments)
        return [program.load(path) for path in paths]


def assert_bits(got, want, what):
    assert got.dtype == want.dtype, what
    assert got.shape == want.shape, what
    np.testing.assert_array_equal(got.view(f"u{got.itemsize}"), want.view(f"u{want.itemsize}"), what)


def assert_dw(got, value_and_bound):
    """The command line writes f32, or f64 for f64 rows: one more rounding."""
    value, bound = value_and_bound
    assert np.isfinite(got).all()
    allowed = bound + (np.abs(value) + bound) * np.finfo(got.dtype).eps
    assert (np.abs(got.astype(np.longdouble) - value) <= allowed).all()


@pytest.mark.parametrize("policy", oracle.POLICIES)
def test_a_recorded_trace_is_planned_as_the_oracle_does(tmp_path, policy):
    ids = np.load(program.TRACES / "flame-moe-290m_layer02_ids.npy")
    weights = np.load(program.TRACES / "flame-moe-290m_layer02_weights.npy") if policy == "by_weight" else None
    capacity = oracle.expert_capacity(1.25, *ids.shape, 64)
    case = Case(tmp_path, ids, 64, capacity, policy, weights)
    for name in program.PLAN_ARRAYS:
        assert_bits(np.load(tmp_path / f"plan/{name}.npy"), getattr(case.want, name), name)
    want = {
        **oracle.load(case.want),
        "tokens": ids.shape[0],
        "top_k": ids.shape[1],
        "num_experts": 64,
        "expert_capacity": capacity,
        "policy": policy,
        "tokens_per_expert": case.want.tokens_per_expert.tolist(),
    }
    for found in (case.summary, json.loads((tmp_path / "plan/plan.json").read_text())):
        assert found["max_over_mean_load"] == pytest.approx(want["max_over_mean_load"], rel=1e-9)
        rest = {name: found[name] for name in want if name != "max_over_mean_load"}
        assert rest == {name: value for name, value in want.items() if name != "max_over_mean_load"}


@pytest.mark.parametrize("dtype_name", sorted(oracle.ROW_DTYPES))
@pytest.mark.parametrize("weighted", [True, False])
def test_every_operation_gives_the_oracles_answer(tmp_path, dtype_name, weighted):
    dtype, rng = oracle.ROW_DTYPES[dtype_name], np.random.default_rng(7)
    ids = rng.integers(-1, 6, (50, 3)).astype(np.int64)
    case = Case(tmp_path, ids, 6, 17)
    want, hidden = case.want, 23
    assert want.kept_per_expert.sum() < len(want.indices) < ids.size  # some dropped, some masked

    def matrix(rows):
        return rng.standard_normal((rows, hidden)).astype(dtype)

    x, grad, y = matrix(50), matrix(50), matrix(6 * 17)
    w = rng.standard_normal(ids.shape).astype(np.float32) if weighted else None
    cube = y.reshape(6, 17, hidden)

    (got,) = case.run("gather", {"--x": x, "--weights": w}, ["--out"])
    assert_bits(got, oracle.gather(want, x, w).reshape(cube.shape), "gather")
    (got,) = case.run("scatter", {"--y": cube, "--weights": w}, ["--out"])
    assert_bits(got, oracle.scatter(want, y, w), "scatter")
    (got,) = case.run("wgrad", {"--y": cube, "--grad": grad}, ["--out"])
    assert_dw(got, oracle.wgrad(want, y, grad))

    arrays = {"--y": cube, "--grad": grad, "--weights": w}
    dy, dw = case.run("scatter-backward", arrays, ["--out-y", "--out-weights"])
    want_dy, want_dw = oracle.scatter_backward(want, y, grad, w)
    assert_bits(dy, want_dy.reshape(cube.shape), "dy")
    assert_dw(dw, want_dw)

    arrays = {"--grad": cube, "--weights": w, "--x": x}
    dx, dw = case.run("gather-backward", arrays, ["--out", "--out-weights"])
    want_dx, want_dw = oracle.gather_backward(want, y, x, w)
    assert_bits(dx, want_dx, "dx")
    assert_dw(dw, want_dw)


def test_the_points_of_capacity_are_the_oracles(tmp_path):
    ids = np.load(program.TRACES / "olmoe-1b-7b_github_once_layer07_ids.npy").copy()
    ids[::7, 0] = -1
    path = program.save(tmp_path / "ids.npy", ids)
    found = program.run_json("capacity", "--expert-ids", path, "--num-experts", 64)
    counts = np.bincount(ids[ids >= 0], minlength=64)
    factors = [0.25, 0.5, 0.75, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4]
    assert [point["capacity_factor"] for point in found["points"]] == factors
    for point in found["points"]:
        capacity = oracle.expert_capacity(point["capacity_factor"], *ids.shape, 64)
        kept = int(np.minimum(counts, capacity).sum())
        assert point["expert_capacity"] == capacity
        assert point["dropped_share"] == pytest.approx(1 - kept / counts.sum(), abs=1e-9)
        assert point["empty_row_share"] == pytest.approx((64 * capacity - kept) / counts.sum(), abs=1e-9)
    for entry, share in zip(found["smallest"], [0, 0.001, 0.01, 0.05], strict=True):
        assert entry["max_dropped_share"] == pytest.approx(share)
        dropped = [
            int(np.maximum(counts - c, 0).sum()) for c in (entry["expert_capacity"], entry["expert_capacity"] - 1)
        ]
        assert dropped[0] <= share * counts.sum() < dropped[1]
