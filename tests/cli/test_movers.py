"""The commands that move rows: dtypes, shapes, weights, two outputs."""

import numpy as np
import pytest
from program import BF16, backends, descr_of, load, make_plan, run, run_json, save

RAW = ["?", "i1", "<u2", ">u2", "<i4", ">i8", "<f4", ">f4", "<f8", "<c8", ">c16", "S3", "<U2", ">U2", "<M8[ns]",
       "<m8[25s]", "V7", "V1", "<f2"]  # fmt: skip
FIELDS = [
    [("a", "<i4"), ("b", "<f2", (3,))],
    [("a", ">i4"), (("a title", "b"), [("c", "S1"), ("d", "|u1", (2, 2))])],
    [("\u03b1", "<i4")],
]


def bytes_of(dtype, shape):
    """An array of that dtype with bytes from a fixed seed."""
    dtype = np.dtype(dtype)
    raw = np.random.default_rng(7).integers(0, 100, (*shape, dtype.itemsize), np.uint8)
    return raw.view(np.dtype((np.void, dtype.itemsize))).view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", RAW + FIELDS, ids=str)
@pytest.mark.filterwarnings("ignore:Stored array in format 3.0")
def test_an_unweighted_gather_copies_any_rows_and_keeps_the_descr(dtype, plan, tmp_path):
    x = bytes_of(dtype, (4, 3))
    out = tmp_path / "y.npy"
    for backend in backends():
        run("gather", "--plan", plan, "--x", save(tmp_path / "x.npy", x), "--out", out, "--backend", backend)
        assert np.load(out).dtype == np.load(tmp_path / "x.npy").dtype
        y = np.load(out)
        want = np.zeros((3, 2, 3), x.dtype)
        for row, token in {0: 0, 1: 1, 2: 0, 3: 2, 4: 1, 5: 3}.items():
            want.reshape(6, 3)[row] = x[token]
        assert y.tobytes() == want.tobytes()


def test_an_unweighted_gather_leaves_uint16_alone(plan, tmp_path):
    x = save(tmp_path / "x.npy", np.uint16([[1], [2], [3], [4]]))
    run("gather", "--plan", plan, "--x", x, "--dtype", "bf16", "--out", tmp_path / "y.npy")
    assert descr_of(tmp_path / "y.npy") == "<u2"
    assert np.load(tmp_path / "y.npy").ravel().tolist() == [1, 2, 1, 3, 2, 4]


@pytest.mark.parametrize("bits", [lambda a: a, lambda a: a.view(np.uint16)], ids=["V2", "uint16"])
def test_bf16_comes_in_two_forms_and_goes_out_in_one(bits, plan, tmp_path):
    x = np.arange(8).reshape(4, 2).astype(BF16)
    w = np.float32([[1, 2], [3, 4], [5, 6], [7, 0.5]]).astype(BF16)
    rows, weights = save(tmp_path / "x.npy", bits(x)), save(tmp_path / "w.npy", bits(w))
    common = ["--plan", plan, "--weights", weights, "--dtype", "bf16"]
    y, out, dx, dw = (tmp_path / f"{name}.npy" for name in ("y", "out", "dx", "dw"))
    run("gather", *common, "--x", rows, "--out", y)
    assert load(y).dtype == BF16
    assert load(y).reshape(6, 2)[:, 1].tolist() == [1, 12, 2, 25, 9, 3.5]
    save(y, bits(load(y)))
    run("scatter", *common, "--y", y, "--out", out)
    assert load(out).dtype == BF16
    run("gather-backward", *common, "--grad", y, "--x", rows, "--out-weights", dw, "--out", dx)
    assert load(dx).tobytes() == load(out).tobytes()
    assert load(dw).dtype == np.float32
    run("wgrad", "--plan", plan, "--dtype", "bf16", "--y", y, "--grad", rows, "--out", tmp_path / "dw2.npy")
    assert load(dw).tobytes() == load(tmp_path / "dw2.npy").tobytes()


@pytest.mark.parametrize("rows", ["f4", "f8", "f2"])
def test_weights_are_taken_flat_and_in_every_dtype(rows, plan, tmp_path):
    y = save(tmp_path / "y.npy", np.arange(18).reshape(3, 2, 3).astype(rows))
    want = None
    for dtype in ["f4", "f2", BF16, *(["f8"] if rows == "f8" else [])]:
        for shape in ((4, 2), (8,)):
            w = save(tmp_path / "w.npy", (np.arange(8) / 4).reshape(shape).astype(dtype))
            run("scatter", "--plan", plan, "--y", y, "--weights", w, "--out", tmp_path / "out.npy")
            got = np.load(tmp_path / "out.npy")
            assert got.dtype == rows
            want = got if want is None else want
            assert got.tolist() == want.tolist()
    assert want[0].tolist() == [1.5, 1.75, 2]


@pytest.mark.parametrize(("rows", "gradients"), [("f4", "f4"), ("f8", "f8"), ("f2", "f4"), (BF16, "f4")])
def test_weight_gradients_are_f32_and_with_f64_rows_f64(rows, gradients, plan, tmp_path):
    y = save(tmp_path / "y.npy", np.arange(6).reshape(3, 2, 1).astype(rows))
    grad = save(tmp_path / "g.npy", np.float32([[1], [2], [3], [4]]).astype(rows))
    want = [[0, 2], [8, 2], [9, 0], [0, 20]]
    outs = [tmp_path / f"{i}.npy" for i in range(4)]
    run("wgrad", "--plan", plan, "--y", y, "--grad", grad, "--out", outs[0])
    run("scatter-backward", "--plan", plan, "--y", y, "--grad", grad, "--out-y", outs[3], "--out-weights", outs[1])
    run("gather-backward", "--plan", plan, "--grad", y, "--x", grad, "--out-weights", outs[2], "--out", outs[3])
    for out in outs[:3]:
        assert np.load(out).dtype == gradients
        assert np.load(out).tolist() == want


def test_empty_rows_and_dropped_tokens_have_no_influence(tmp_path):
    nan = np.float32(np.nan)
    plan = make_plan(tmp_path, [[0], [0], [-1]], 2, 1)  # token 1 is dropped, token 2 masked, expert 1 empty
    x = save(tmp_path / "x.npy", np.array([[3], [nan], [nan]]))
    w = save(tmp_path / "w.npy", np.array([[2], [nan], [nan]], np.float32))
    run("gather", "--plan", plan, "--x", x, "--weights", w, "--out", tmp_path / "y.npy")
    assert np.load(tmp_path / "y.npy").ravel().tolist() == [6, 0]
    y = save(tmp_path / "y.npy", np.array([[[6]], [[nan]]], np.float64))
    run("gather-backward", "--plan", plan, "--grad", y, "--weights", w, "--x", x, "--out-weights", tmp_path / "dw.npy",
        "--out", tmp_path / "dx.npy")  # fmt: skip
    assert np.load(tmp_path / "dx.npy").ravel().tolist() == [12, 0, 0]
    assert np.load(tmp_path / "dw.npy").ravel().tolist() == [18, 0, 0]


def test_no_columns_is_a_hidden_size(plan, tmp_path):
    x = save(tmp_path / "x.npy", np.zeros((4, 0), np.float32))
    run("gather", "--plan", plan, "--x", x, "--out", tmp_path / "y.npy")
    assert np.load(tmp_path / "y.npy").shape == (3, 2, 0)
    run("wgrad", "--plan", plan, "--y", tmp_path / "y.npy", "--grad", x, "--out", tmp_path / "dw.npy")
    assert np.load(tmp_path / "dw.npy").tolist() == [[0, 0]] * 4


def test_the_report_names_backend_and_outputs(plan, tmp_path):
    x, out = save(tmp_path / "x.npy", np.zeros((4, 1), np.float32)), tmp_path / "y.npy"
    for backend in backends():
        common = ["gather", "--plan", plan, "--x", x, "--out", out, "--backend", backend]
        assert run(*common).stdout == f"wrote {out}: [3, 2, 1] <f4 ({backend})\n"
        assert run_json(*common) == {
            "backend": backend,
            "outputs": [{"file": str(out), "shape": [3, 2, 1], "descr": "<f4"}],
        }
