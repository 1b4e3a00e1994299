"""An output appears whole or not at all; two of a command both or none."""

import os
import resource
import subprocess

import numpy as np
import pytest
from program import PROGRAM, make_plan, refused, run, save, tree


@pytest.fixture
def rows(plan, tmp_path):
    save(tmp_path / "x.npy", np.ones((4, 5), np.float32))
    save(tmp_path / "y.npy", np.ones((3, 2, 5), np.float32))
    return tmp_path


def gather(folder, out, code=0):
    return run("gather", "--plan", folder / "plan", "--x", folder / "x.npy", "--out", out, code=code)


def backward(folder, out_y, out_weights):
    return ["scatter-backward", "--plan", folder / "plan", "--y", folder / "y.npy", "--grad", folder / "x.npy",
            "--out-y", out_y, "--out-weights", out_weights]  # fmt: skip


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_old_file_is_replaced_and_nothing_else_is_left(rows):
    before = names(rows)
    (rows / "out.npy").write_bytes(b"old")
    gather(rows, rows / "out.npy")
    assert np.load(rows / "out.npy").shape == (3, 2, 5)
    assert names(rows) == sorted([*before, "out.npy"])


def test_an_output_may_take_the_place_of_its_input(rows):
    run("scatter", "--plan", rows / "plan", "--y", rows / "y.npy", "--out", rows / "y.npy")
    assert np.load(rows / "y.npy")[:, 0].tolist() == [2, 2, 1, 1]


def test_a_plan_is_replaced_whole_but_never_with_files_that_are_not_its_own(rows):
    make_plan(rows, np.int32([[0], [1]]), 2, 1)
    assert np.load(rows / "plan/bins.npy").tolist() == [1, 2]
    (rows / "plan/y.npy").write_bytes(b"mine")
    before = tree(rows)
    sizes = ["--num-experts", 3, "--expert-capacity", 1]
    message = refused("plan", "--expert-ids", rows / "ids.npy", *sizes, "--out", rows / "plan")
    assert "the folder holds y.npy; only an earlier plan or an empty folder is replaced" in message
    assert tree(rows) == before


def test_a_plan_takes_an_empty_folder_and_a_slash_at_the_end(rows):
    (rows / "empty").mkdir()
    run("plan", "--expert-ids", rows / "ids.npy", "--num-experts", 3, "--expert-capacity", 1, "--out",
        f"{rows}/empty/")  # fmt: skip
    assert run("check", "--plan", rows / "empty").stdout.startswith("valid")


def test_a_folder_of_other_things_is_never_replaced(rows):
    before = tree(rows)
    sizes = ["--num-experts", 3, "--expert-capacity", 1]
    message = refused("plan", "--expert-ids", rows / "ids.npy", *sizes, "--out", rows)
    assert f"binmoe: {rows}: cannot be written: the folder holds " in message
    assert tree(rows) == before


def test_a_symbolic_link_stays_a_link(rows):
    (rows / "real.npy").write_bytes(b"old")
    (rows / "link.npy").symlink_to("real.npy")
    gather(rows, rows / "link.npy")
    assert (rows / "link.npy").is_symlink()
    assert np.load(rows / "real.npy").shape == (3, 2, 5)


def test_names_relative_to_the_working_directory_work(rows):
    subprocess.run([PROGRAM, "gather", "--plan", "plan", "--x", "x.npy", "--out", "out.npy"], cwd=rows, check=True,
                   capture_output=True)  # fmt: skip
    assert np.load(rows / "out.npy").shape == (3, 2, 5)


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ("plan", "it is a folder"),
        ("/dev/null", "it is not a regular file"),
        ("none/out.npy", "there is no folder"),
        ("x.npy/out.npy", "there is no folder"),
        ("", "the name is empty"),
    ],
)
def test_a_place_where_no_file_can_stand_is_refused(out, reason, rows):
    before = tree(rows)
    assert reason in gather(rows, rows / out if out else "", code=1).stderr
    assert tree(rows) == before
    assert os.path.exists("/dev/null")
    assert not os.path.isfile("/dev/null")


def test_a_plan_cannot_take_the_place_of_a_file(rows):
    before = tree(rows)
    message = refused("plan", "--expert-ids", rows / "ids.npy", "--num-experts", 3, "--expert-capacity", 1, "--out",
                      rows / "x.npy")  # fmt: skip
    assert "it is a file, but a folder was asked for" in message
    assert tree(rows) == before


def test_two_outputs_appear_together(rows):
    before = names(rows)
    run(*backward(rows, rows / "dy.npy", rows / "dw.npy"))
    assert names(rows) == sorted([*before, "dy.npy", "dw.npy"])
    before = tree(rows)
    assert "it is a folder" in refused(*backward(rows, rows / "other.npy", rows / "plan"))
    assert "there is no folder" in refused(*backward(rows, rows / "dy.npy", rows / "none/dw.npy"))
    assert tree(rows) == before


def test_a_write_that_fails_leaves_nothing(tmp_path):
    """The second of two outputs is larger than a file may be: neither appears."""
    plan = make_plan(tmp_path, np.zeros((5000, 1), np.int32), 1, 1)
    x = save(tmp_path / "x.npy", np.ones((5000, 1), np.float64))
    y = save(tmp_path / "y.npy", np.ones((1, 1, 1), np.float64))
    (tmp_path / "dw.npy").write_bytes(b"old")
    before = tree(tmp_path)
    command = ["scatter-backward", "--plan", plan, "--y", y, "--grad", x, "--out-y", tmp_path / "dy.npy",
               "--out-weights", tmp_path / "dw.npy"]  # fmt: skip
    done = subprocess.run(
        ["sh", "-c", 'trap "" XFSZ; exec "$@"', "sh", PROGRAM, *map(str, command)], capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == f"binmoe: {tmp_path / 'dw.npy'}: cannot be written: File too large\n"
    assert tree(tmp_path) == before


def test_a_full_stdout_is_an_error(rows):
    with open("/dev/full", "w") as full:
        done = subprocess.run([PROGRAM, "info"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "binmoe: stdout cannot be written\n"
