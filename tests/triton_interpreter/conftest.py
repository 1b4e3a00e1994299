"""The kernels in Triton's interpreter: run this folder in a process of its own, in .venv-ascend."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
    raise RuntimeError("triton was imported to compile; tests/triton_interpreter wants a process of its own")
os.environ["TRITON_INTERPRET"] = "1"
os.environ.setdefault("BINMOE_LIBRARY", str(ROOT / "build/tests/lib/libbinmoe.so"))
sys.path[:0] = [str(ROOT / "python"), str(Path(__file__).parent)]


@pytest.fixture(autouse=True)
def outputs_start_as_nan(monkeypatch):
    """Whatever a launch allocates holds NaN before the kernel runs."""
    import torch

    new_empty = torch.Tensor.new_empty

    def poisoned(self, *arguments, **settings):
        tensor = new_empty(self, *arguments, **settings)
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned)
