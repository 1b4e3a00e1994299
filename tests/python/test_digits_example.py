"""examples/train_digits.py: it learns, it saves its plot, and the same seed gives the same losses to the last bit."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

for package in ("sklearn", "matplotlib", "tqdm"):
    pytest.importorskip(package, reason=f"the example needs {package}")
SCRIPT = Path(__file__).parents[2] / "examples" / "train_digits.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("train_digits", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as its main() does
    yield module
    torch.set_num_threads(threads)


def test_the_same_seed_gives_the_same_losses_to_the_last_bit(example):
    first, again, other = (example.train(seed, epochs=3, progress=False) for seed in (0, 0, 1))
    assert first == again
    assert first[-1].loss != other[-1].loss


def test_the_script_prints_accuracy_and_dropped_share_and_saves_a_plot(tmp_path):
    picture = tmp_path / "digits.png"
    command = [sys.executable, str(SCRIPT), "--epochs", "10", "--plot", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^ +(\d+)  (\d\.\d{4}) +(\d\.\d{3}) +(\d+\.\d)%$", done.stdout, re.MULTILINE)
    assert [int(row[0]) for row in rows] == list(range(1, 11))
    losses, accuracies = [float(row[1]) for row in rows], [float(row[2]) for row in rows]
    assert losses[-1] < 0.3 * losses[0]
    assert accuracies[-1] > 0.9
    assert any(float(row[3]) > 0 for row in rows)
    assert "train: 100%" in done.stderr  # the progress bar
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 10_000
