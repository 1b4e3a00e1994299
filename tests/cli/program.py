"""The program under test, and .npy files as it should and should not read them."""

import json
import os
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("BINMOE_PROGRAM", str(ROOT / "build/tests/bin/binmoe"))
TRACES = ROOT / "data/traces"
BF16 = np.dtype(ml_dtypes.bfloat16)
PLAN_ARRAYS = ["indices", "bin_ids", "bins", "tokens_per_expert", "kept_per_expert", "row_of_assignment"]


def run(*arguments, code=0, **environment):
    """Run a command and expect its exit code."""
    env = {k: v for k, v in os.environ.items() if k != "BINMOE_BACKEND"} | environment
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def run_json(*arguments, code=0):
    return json.loads(run(*arguments, "--json", code=code).stdout)


def refused(*arguments, code=1):
    """stderr of a command that must fail, one line of a known form, with nothing on stdout."""
    done = run(*arguments, code=code)
    assert done.stdout == ""
    assert done.stderr.count("\n") <= 2, done.stderr
    return done.stderr


def backends():
    """Names of the backends that run here."""
    return [backend["name"] for backend in run_json("info")["backends"] if backend["supported"]]


def save(path, array):
    np.save(path, array)
    return path


def load(path):
    """A whole array; two raw bytes are a bf16."""
    array = np.load(path)
    return array.view(BF16) if array.dtype == np.dtype("V2") else array


def header(descr, shape, fortran=False, version=1, text=None, length=None):
    """The bytes before the data. `text` and `length` replace what they would truly be."""
    if text is None:
        text = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n"
    raw = text.encode("latin1" if version < 3 else "utf8")
    size = (len(raw) if length is None else length).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + raw


def descr_of(path):
    """The descr as numpy's own reader gives it."""
    with open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        return np.lib.format.dtype_to_descr(read(file)[2])


def make_plan(folder, ids, num_experts, capacity, *more):
    """Plan `ids` into folder/plan."""
    ids = save(folder / "ids.npy", np.asarray(ids))
    run(
        "plan",
        "--expert-ids",
        ids,
        "--num-experts",
        num_experts,
        "--expert-capacity",
        capacity,
        *more,
        "--out",
        folder / "plan",
    )
    return folder / "plan"


def read_plan(folder):
    return {name: np.load(folder / f"{name}.npy") for name in PLAN_ARRAYS}


def tree(folder):
    """Every file below a folder with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
