"""A fixture for pytest: `pytest -p binmoe.ascend.check.plugin`.

    def test_my_kernel(ascend_check):
        mlir = ascend_check.lower(my_kernel, signature, constexprs)
        assert ascend_check.ub_usage(mlir).fits

Where the checker cannot run, tests that ask for it are skipped with the reason, or fail with it when
BINMOE_REQUIRE_ASCEND=1.
"""

import pytest

from binmoe.ascend import check


@pytest.fixture(scope="session")
def ascend_check():
    """The module binmoe.ascend.check, ready to use."""
    reason = check.missing()
    if reason and check.is_required():
        pytest.fail(f"BINMOE_REQUIRE_ASCEND=1, but nothing can be checked: {reason}")
    if reason:
        pytest.skip(f"NOTHING WAS CHECKED: {reason}")
    return check
