"""Every case of tests/data/vectors.json through the command line, on every backend that runs here, bit for bit."""

import json

import numpy as np
import pytest
from program import BF16, ROOT, backends, load, make_plan, read_plan, run, save

CASES = json.loads((ROOT / "tests/data/vectors.json").read_text())
DTYPES = {"f32": np.float32, "f64": np.float64, "bf16": BF16, "f16": np.float16}


def assert_same_bits(got, want):
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert got.tobytes() == want.tobytes(), (got, want)


class Case:
    def __init__(self, case, folder, backend):
        self.case, self.folder, self.backend = case, folder, backend
        self.dtype = DTYPES[case["dtype"]]
        self.weights = []
        if "weights" in case:
            self.weights = ["--weights", save(folder / "w.npy", np.float32(case["weights"]))]
        by_weight = ["--policy", case["policy"], *(self.weights if case["policy"] == "by_weight" else [])]
        sizes = case["num_experts"], case["expert_capacity"]
        self.plan = make_plan(folder, np.int32(case["expert_ids"]), *sizes, "--backend", backend, *by_weight)

    def tokens(self, name):
        return np.array(self.case[name], self.dtype).reshape(self.case["tokens"], self.case["hidden_size"])

    def expert_rows(self, name):
        case = self.case
        shape = case["num_experts"], case["expert_capacity"], case["hidden_size"]
        return np.array(case[name], self.dtype).reshape(shape)

    def put(self, name, array):
        return save(self.folder / f"{name}.npy", array)

    def run(self, operation, *arguments, out="--out"):
        result = self.folder / f"{operation}-result.npy"
        run(operation, "--plan", self.plan, "--backend", self.backend, *arguments, out, result)
        return load(result)


@pytest.fixture(params=backends())
def backend(request):
    return request.param


@pytest.mark.parametrize("vector", CASES, ids=[case["name"] for case in CASES])
def test_a_vector_comes_out_exactly(vector, backend, tmp_path):
    case = Case(vector, tmp_path, backend)
    arrays = read_plan(case.plan)
    for name, want in vector["plan"].items():
        assert arrays[name].dtype == np.int32
        assert arrays[name].ravel().tolist() == np.ravel(want).tolist(), name
    want_kept = np.minimum(vector["plan"]["tokens_per_expert"], vector["expert_capacity"])
    assert arrays["kept_per_expert"].tolist() == want_kept.tolist()

    if "gather" in vector:
        x = case.put("x", case.tokens("x"))
        assert_same_bits(case.run("gather", "--x", x), case.expert_rows("gather"))
    if "gather_weighted" in vector:
        assert_same_bits(case.run("gather", "--x", x, *case.weights), case.expert_rows("gather_weighted"))
    y = case.put("y", case.expert_rows("gather" if "gather" in vector else "y"))
    assert_same_bits(case.run("scatter", "--y", y, *case.weights), case.tokens("scatter"))
    assert_same_bits(case.run("gather-backward", "--grad", y, *case.weights), case.tokens("scatter"))
    if "wgrad" in vector:
        grad = case.put("grad", case.tokens("grad"))
        want = np.float32(vector["wgrad"]).reshape(vector["tokens"], vector["top_k"])
        assert_same_bits(case.run("wgrad", "--y", y, "--grad", grad), want)
        dw = tmp_path / "dw.npy"
        dy = case.run("scatter-backward", "--y", y, "--grad", grad, *case.weights, "--out-weights", dw, out="--out-y")
        assert_same_bits(load(dw), want)
        assert_same_bits(dy, case.run("gather", "--x", grad, *case.weights))
