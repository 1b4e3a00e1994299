"""One small plan for the tests of the commands that use one."""

import program
import pytest


@pytest.fixture
def plan(tmp_path):
    """T=4, K=2, E=3, C=2: expert 0 overflows, one assignment is masked.

    indices 0 3 5 | 1 4 | 2 7; a = 5 is dropped, a = 6 is masked.
    """
    return program.make_plan(tmp_path, [[0, 1], [2, 0], [1, 0], [-1, 2]], 3, 2)
