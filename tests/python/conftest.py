"""Every test that takes `device` runs on the host, and on a GPU where torch finds one."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import configuration, settings

ROOT = Path(__file__).resolve().parents[2]
configuration.set_hypothesis_home_dir(ROOT / "build/hypothesis")
settings.register_profile("binmoe", deadline=None, print_blob=True)
settings.load_profile("binmoe")


@pytest.fixture(params=["cpu", "cuda"], scope="session")
def device(request):
    """BINMOE_REQUIRE_CUDA=1 makes a missing GPU a failure."""
    if request.param == "cuda" and not torch.cuda.is_available():
        if os.environ.get("BINMOE_REQUIRE_CUDA") == "1":
            pytest.fail("BINMOE_REQUIRE_CUDA is set, but torch finds no GPU")
        pytest.skip("torch finds no GPU here")
    return request.param
