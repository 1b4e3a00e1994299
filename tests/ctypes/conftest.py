"""Every test that takes `backend` runs once for each variant that runs here."""

from pathlib import Path

import binmoe_c
import numpy as np
import pytest
from hypothesis import configuration, settings
from variants import VARIANTS

ROOT = Path(__file__).resolve().parents[2]
configuration.set_hypothesis_home_dir(ROOT / "build/hypothesis")
settings.register_profile("binmoe", deadline=None, print_blob=True)
settings.load_profile("binmoe")


@pytest.fixture(params=VARIANTS, scope="session")
def backend(request):
    """A backend by name, and options of it, as binmoe_c.context takes them."""
    try:
        binmoe_c.make_plan(np.zeros((1, 1), np.int32), 1, 1, ctx=binmoe_c.context(request.param))
    except binmoe_c.BinmoeError as error:
        if error.code != binmoe_c.UNSUPPORTED:
            raise
        pytest.skip(str(error))
    return request.param
