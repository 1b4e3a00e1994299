"""The package as installed: laziness, versions, stubs, `python -m binmoe info`, threads."""

import ast
import hashlib
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata, resources
from pathlib import Path

import binmoe
import numpy as np
import pytest
from binmoe import _native

ROOT = Path(__file__).resolve().parents[2]


def run(code, **environment):
    found = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_import_alone_loads_nothing_heavy():
    loaded = run("import sys, binmoe; print(*sys.modules)").split()
    assert not {"numpy", "torch", "binmoe._native", "binmoe.arrays"} & set(loaded)


def test_the_operations_on_arrays_need_no_torch():
    code = "import sys, numpy as np, binmoe; binmoe.plan(np.zeros((4, 2), int), 3, 2); print('torch' in sys.modules)"
    assert run(code).strip() == "False"


def test_versions_agree():
    assert binmoe.__version__ == _native.version() == metadata.version("binmoe")


def test_every_public_name_is_there_and_documented():
    for name in binmoe.__all__:
        assert getattr(binmoe, name).__doc__, name
    import binmoe.torch as bt

    for name in bt.__all__:
        assert getattr(bt, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'scater'"):
        _ = binmoe.scater


def test_the_package_is_typed_and_the_native_stub_names_everything():
    package = resources.files("binmoe")
    assert (package / "py.typed").is_file()
    stub = ast.parse((package / "_native.pyi").read_text())
    named = {node.name for node in stub.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert named == {name for name in dir(_native) if not name.startswith("_")}


def test_info_lists_every_backend_with_its_reason():
    text = subprocess.run([sys.executable, "-m", "binmoe", "info"], capture_output=True, text=True, check=True).stdout
    for name, _, unsupported, *_ in _native.backends():
        assert f"  {name}: " in text
        if unsupported is not None:
            assert f"cannot run here: {unsupported}" in text
    usage = subprocess.run([sys.executable, "-m", "binmoe", "nothing"], capture_output=True, text=True, check=False)
    assert usage.returncode == 2


def work(seed, tokens=600):
    """A digest of a plan and both movers, large enough for several threads."""
    rng = np.random.default_rng(seed)
    ids, x = rng.integers(-1, 16, (tokens, 4)), rng.standard_normal((tokens, 512)).astype(np.float32)
    plan = binmoe.plan(ids, 16, 130)
    y = binmoe.gather(x, plan)
    return hashlib.sha256(y.tobytes() + binmoe.scatter(y, plan).tobytes()).hexdigest()


def test_the_same_call_gives_the_same_bits_a_hundred_times_and_from_two_threads_at_once():
    want = [work(seed) for seed in range(2)]
    assert all(work(0) == want[0] for _ in range(100))
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, [0, 1] * 20)) == want * 20


def test_a_call_releases_the_interpreter_lock():
    ticks, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            ticks[0] += 1

    ids = np.random.default_rng(0).integers(0, 64, (200_000, 4))
    binmoe.plan(ids, 64, 10)
    counter = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.2)  # the calls alone are shorter: nobody is made to give the lock away
    try:
        counter.start()
        before = ticks[0]
        for _ in range(5):
            binmoe.plan(ids, 64, 10)
        moved = ticks[0] - before
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        counter.join()
    assert moved > 0


FORKED = """
import os, sys
sys.path.insert(0, {folder!r})
from test_package import work
want = work(3, 5000)
child = os.fork()
if child == 0:
    os._exit(0 if work(3, 5000) == want else 1)
print(os.waitpid(child, 0)[1])
"""


def test_a_child_after_fork_still_works():
    assert run(FORKED.format(folder=str(Path(__file__).parent)), OMP_NUM_THREADS="2").strip() == "0"


def test_threads_are_those_of_openmp():
    code = "from binmoe import _native; print(_native.threads())"
    assert run(code, OMP_NUM_THREADS="3").strip() == "3"
    assert run("import torch; torch.set_num_threads(1); " + code).strip() == "1"
    one = "import sys; sys.path.insert(0, {!r}); from test_package import work; print(work(3, 5000))"
    one = one.format(str(Path(__file__).parent))
    assert run(one, OMP_NUM_THREADS="1") == run(one, OMP_NUM_THREADS="2")


@pytest.mark.parametrize("first", ["torch", "binmoe._native"])
def test_torch_and_the_native_module_share_one_libgomp(first):
    """Two pools would wait for each other's cores (docs/cpu.md)."""
    code = f"import {first}, torch, binmoe._native; print(open('/proc/self/maps').read())"
    found = {line.split()[-1] for line in run(code).splitlines() if "libgomp" in line}
    assert len(found) == 1, found
