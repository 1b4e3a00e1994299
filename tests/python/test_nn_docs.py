"""The Python in docs/megablocks.md and docs/nn.md runs as it stands."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCKS = [
    pytest.param(code, id=f"{name}-{number}")
    for name in ("megablocks.md", "nn.md")
    for number, code in enumerate(
        re.findall(r"^```python\n(.*?)^```", (DOCS / name).read_text(), re.DOTALL | re.MULTILINE)
    )
]


@pytest.mark.parametrize("code", BLOCKS)
def test_the_code_of_the_page_runs(code):
    exec(compile(code, "page", "exec"), {})


def test_there_is_code_to_run():
    assert len(BLOCKS) == 3
