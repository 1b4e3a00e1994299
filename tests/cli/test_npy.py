""".npy files as the program reads and writes them: versions, byte orders, headers that lie."""

import io

import numpy as np
import pytest
from program import BF16, descr_of, header, load, make_plan, read_plan, refused, run, save

IDS = np.array([[0, 1], [1, -1]], np.int32)
GOOD = header("'<i4'", "(2, 2)") + IDS.tobytes()


def plan_of(path, tmp_path):
    run("plan", "--expert-ids", path, "--num-experts", 2, "--expert-capacity", 2, "--out", tmp_path / "plan")
    return read_plan(tmp_path / "plan")


def refused_ids(data, tmp_path):
    path = tmp_path / "ids.npy"
    path.write_bytes(data)
    out = tmp_path / "plan"
    message = refused("plan", "--expert-ids", path, "--num-experts", 2, "--expert-capacity", 2, "--out", out)
    assert message.startswith(f"binmoe: {path}: ")
    assert not out.exists()
    return message


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version_is_read(version, tmp_path):
    path = tmp_path / "ids.npy"
    path.write_bytes(header("'<i4'", "(2, 2)", version=version) + IDS.tobytes())
    assert plan_of(path, tmp_path)["indices"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 2)}",
        '{"shape":(2,2,),"descr":"<i4","fortran_order":False}\n',
        "  { 'shape' : ( 2 , 2 ) , 'fortran_order' : False , 'descr' : '<i4' , }   \n",
    ],
)
def test_spacing_quotes_and_order_of_a_header_are_free(text, tmp_path):
    path = tmp_path / "ids.npy"
    path.write_bytes(header("", "", text=text) + IDS.tobytes())
    assert plan_of(path, tmp_path)["indices"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "u2", "i4", "i8"])
def test_every_id_type_is_read_in_both_byte_orders(kind, order, tmp_path):
    ids = np.array([[0, 3], [200 if kind == "u1" else 100, 1]]).astype(order + kind)
    plan = read_plan(make_plan(tmp_path, ids, 256, 2))
    assert plan["indices"].tolist() == [0, 3, 1, 2]
    assert plan["bin_ids"].tolist() == sorted(ids.ravel().tolist())


def test_an_unsigned_255_is_an_expert_and_not_a_mask(tmp_path):
    plan = read_plan(make_plan(tmp_path, np.array([[255]], np.uint8), 256, 1))
    assert plan["bin_ids"].tolist() == [255]


@pytest.mark.parametrize("kind", ["f4", "f8", "f2"])
@pytest.mark.parametrize("weighted", [False, True])
def test_big_endian_rows_and_weights_are_read(kind, weighted, plan, tmp_path):
    y = np.arange(3 * 2 * 5).reshape(3, 2, 5).astype(kind) / 3
    w = np.arange(8).reshape(4, 2).astype(kind if kind != "f8" else "f4") / 7
    results = []
    for order in "<>":
        more = ["--weights", save(tmp_path / "w.npy", w.astype(w.dtype.newbyteorder(order)))] if weighted else []
        out = tmp_path / f"out{order}.npy"
        rows = save(tmp_path / "y.npy", y.astype(order + kind))
        run("scatter", "--plan", plan, "--y", rows, *more, "--out", out)
        assert descr_of(out) == "<" + kind
        results.append(np.load(out))
    assert results[0].any()
    assert results[0].tobytes() == results[1].tobytes()


def test_a_plan_in_big_endian_order_is_read(plan):
    for path in plan.glob("*.npy"):
        save(path, np.load(path).astype(">i4"))
    assert run("check", "--plan", plan).stdout.startswith("valid")


def test_headers_are_written_as_numpy_writes_them(plan):
    for path in plan.glob("*.npy"):
        buffer = io.BytesIO()
        np.save(buffer, np.load(path))
        assert path.read_bytes()[: len(buffer.getvalue())][128:] == buffer.getvalue()[128:]
        assert path.read_bytes()[:8] == b"\x93NUMPY\x01\x00"
        assert descr_of(path) == "<i4"
        assert (path.read_bytes().index(b"\n") + 1) % 64 == 0


def test_fortran_order_is_taken_where_it_is_c_order(tmp_path):
    path = tmp_path / "ids.npy"
    path.write_bytes(header("'<i4'", "(4, 1)", fortran=True) + IDS.tobytes())
    assert plan_of(path, tmp_path)["indices"].tolist() == [0, 1, 2]


LIES = {
    "empty": (b"", "it is empty"),
    "text": (b"0 1 2\n", "it is not a .npy file"),
    "magic only": (b"\x93NUMPY", "it is truncated: it ends inside the header"),
    "half a magic": (b"\x93NU", "it is truncated: it ends inside the header"),
    "no length": (GOOD[:9], "it is truncated: it ends inside the header"),
    "half a header": (GOOD[:30], "it is truncated: the header claims"),
    "version 4": (b"\x93NUMPY\x04\x00" + GOOD[8:], "its format version 4.0 is unknown"),
    "version 1.1": (b"\x93NUMPY\x01\x01" + GOOD[8:], "its format version 1.1 is unknown"),
    "npz": (b"PK\x03\x04" + bytes(60), "it is a .npz or .zip archive"),
    "data missing": (GOOD[:-1], "it is truncated: the header claims 16 bytes of data, but 15 follow"),
    "trailing byte": (GOOD + b"\0", "it has trailing bytes: the header claims 16 bytes of data, but 17 follow"),
    "header of 4 GB": (
        header("'<i4'", "(2, 2)", version=2, length=2**32 - 1) + bytes(16),
        "it is truncated: the header claims 4294967295 bytes, but the file has",
    ),
    "header of 70000": (
        header("", "", version=2, text="{'descr': '<i4', 'fortran_order': False, 'shape': (2, 2)}" + " " * 70000),
        "its header claims 70057 bytes; at most 65535 are read",
    ),
    "8 EB of data": (header("'<i4'", f"({2**60}, 1)"), "it is truncated: the header claims 4611686018427387904 bytes"),
    "beyond 2^63 items": (header("'<i4'", f"({2**62}, 4)"), "the header claims items beyond 2^63"),
    "beyond 2^63 bytes": (header("'<i8'", f"({2**62}, 1)"), "the header claims bytes beyond 2^63"),
    "a huge extent": (header("'<i4'", "(99999999999999999999, 0)"), "the header claims a number beyond 2^63"),
    "65 dimensions": (header("'<i4'", "(" + "1, " * 65 + ")"), "the header claims more than 64 dimensions"),
    "negative extent": (header("'<i4'", "(-2, 2)"), "its header is malformed: a number that is not negative"),
    "shape in a list": (header("'<i4'", "[2, 2]"), "its header is malformed: '('"),
    "no tuple": (header("'<i4'", "(2)"), "its header is malformed: ','"),
    "fortran of 1": (header("'<i4'", "(2, 2)", fortran=1), "its header is malformed: True or False"),
    "no shape": (header("", "", text="{'descr': '<i4', 'fortran_order': False}"), "its header lacks the key 'shape'"),
    "two shapes": (
        header("", "", text="{'descr': '<i4', 'shape': (2, 2), 'shape': (2, 2), 'fortran_order': False}"),
        "its header has the key 'shape' twice",
    ),
    "a fourth key": (header("", "", text="{'more': 1}"), "its header has an unknown key 'more'"),
    "no end": (header("", "", text="{'descr': '<i4"), "its header is malformed: the end of a string"),
    "two dictionaries": (
        header("", "", text="{'descr': '<i4', 'fortran_order': False, 'shape': (2, 2)} {}") + IDS.tobytes(),
        "its header goes on after the dictionary",
    ),
    "fortran order": (
        header("'<i4'", "(2, 2)", fortran=True) + IDS.tobytes(),
        "it is in Fortran order; save numpy.ascontiguousarray(a) instead",
    ),
    "objects": (header("'|O'", "(2, 2)") + bytes(32), "it holds Python objects ('|O'), which have no fixed size"),
    "objects in a field": (
        header("[('a', '|O')]", "(2, 2)") + bytes(32),
        "it holds Python objects ('|O'), which have no fixed size",
    ),
    "unknown dtype": (header("'<q4'", "(2, 2)") + IDS.tobytes(), "its dtype '<q4' is unknown"),
    "three-byte int": (header("'<i3'", "(2, 2)") + bytes(12), "its dtype '<i3' is unknown"),
    "no byte order": (header("'|i4'", "(2, 2)") + IDS.tobytes(), "its dtype '|i4' has no byte order"),
    "no bytes": (header("'|V0'", f"({2**40}, 1)"), "its dtype '|V0' has items of no bytes"),
    "huge item": (header("'|V99999999999999999999'", "(2, 2)"), "its dtype '|V99999999999999999999' is unknown"),
    "fields without end": (header("[" * 40, "(2, 2)"), "its header is malformed"),
    "deep fields": (header("[('a', " * 40 + "'<i4'" + ")]" * 40, "(2, 2)"), "its dtype has fields more than 16 deep"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_header_that_lies_is_refused(name, tmp_path):
    data, reason = LIES[name]
    assert reason in refused_ids(data, tmp_path)


def test_every_cut_of_a_file_is_refused(tmp_path):
    for length in range(0, len(GOOD), 7):
        refused_ids(GOOD[:length], tmp_path)


def test_a_file_that_is_no_file_is_refused(tmp_path):
    common = ["--num-experts", 2, "--expert-capacity", 2, "--out", tmp_path / "plan"]
    for path, reason in (
        (tmp_path / "none.npy", "cannot be read: No such file or directory"),
        (tmp_path, "cannot be read: it is a folder"),
        ("/dev/null", "cannot be read: it is not a regular file"),
    ):
        assert f"binmoe: {path}: {reason}" in refused("plan", "--expert-ids", path, *common)
    assert not (tmp_path / "plan").exists()


def test_bf16_is_written_as_ml_dtypes_writes_it(plan, tmp_path):
    x = np.arange(12).reshape(4, 3).astype(BF16)
    w = save(tmp_path / "w.npy", np.ones((4, 2), np.float32))
    out = tmp_path / "y.npy"
    run("gather", "--plan", plan, "--x", save(tmp_path / "x.npy", x), "--weights", w, "--out", out)
    assert b"'descr': '<V2'" in out.read_bytes()[:64]
    assert load(out)[0, 0].tolist() == [0, 1, 2]
