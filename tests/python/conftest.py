"""Every test that takes `device` runs on the host, and on a GPU where torch finds one.

`cuda` is for tests of a GPU alone: their names hold the word too, since scripts/cuda.sh chooses with `-k cuda`.
"""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import configuration, settings

ROOT = Path(__file__).resolve().parents[2]
configuration.set_hypothesis_home_dir(ROOT / "build/hypothesis")
settings.register_profile("binmoe", deadline=None, print_blob=True)
settings.load_profile("binmoe")


def _require_cuda():
    """BINMOE_REQUIRE_CUDA=1 makes a missing GPU a failure."""
    if not torch.cuda.is_available():
        if os.environ.get("BINMOE_REQUIRE_CUDA") == "1":
            pytest.fail("BINMOE_REQUIRE_CUDA is set, but torch finds no GPU")
        pytest.skip("torch finds no GPU here")


@pytest.fixture(scope="session")
def cuda():
    _require_cuda()
    return "cuda"


@pytest.fixture(params=["cpu", "cuda"], scope="session")
def device(request):
    if request.param == "cuda":
        _require_cuda()
    return request.param
