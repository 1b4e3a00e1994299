"""Each check of the format can fail, and README's code is the code that is compiled."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATH_WITH_RUFF = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
GOOD = {
    "src/a.cc": "int main() {\n  return 0;\n}\n",
    "src/a.cu": "__global__ void f() {}\n",
    "tool.py": "import sys\n\nprint(sys.argv)\n",
    "Makefile": "all:\n\ttrue\n",
    "docs/a.md": "# a\n",
    "cmake/a.cmake": "set(a 1)\n",
    "data/a.bin": "\t\xff \n\n",
    "LICENSE": "text \n",
}


def check_tree(tmp_path, changes):
    """scripts/check_format.sh's (exit status, stderr) in a small repository of its own."""
    for name in ("scripts/check_format.sh", "scripts/check_text.py", ".clang-format", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name, text in {**GOOD, **changes}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode("latin-1"))
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    done = subprocess.run(
        [tmp_path / "scripts/check_format.sh"], capture_output=True, text=True, env={"PATH": PATH_WITH_RUFF}
    )
    return done.returncode, done.stdout + done.stderr


def test_a_sound_tree_passes(tmp_path):
    code, text = check_tree(tmp_path, {})
    assert code == 0, text
    assert f"{len(GOOD) + 4} files are in order" in text


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("src/a.cc", "int main() { return   0; }\n", "src/a.cc:1:.*clang-format-violations"),
        ("src/a.cu", "__global__ void   f() {}\n", "src/a.cu:1:.*clang-format-violations"),
        ("include/a.h", "int  f();\n", "include/a.h:1:.*clang-format-violations"),
        ("tool.py", "print( 1 )\n", r"would be reformatted\n +--> tool.py:1"),
        ("tool.py", "import os\n", "F401"),
        ("tool.py", "# caf\xc3\xa9\n", "tool.py:1: not ASCII"),
        ("src/a.cc", "// caf\xc3\xa9\n", "src/a.cc:1: not ASCII"),
        ("docs/a.md", "caf\xe9\n", "docs/a.md:0: not ASCII"),
        ("docs/a.md", "a \n", "docs/a.md:1: blanks at the end"),
        ("docs/a.md", "a", "docs/a.md:0: no newline at the end"),
        ("docs/a.md", "a\n\n", "docs/a.md:0: empty lines at the end"),
        ("docs/a.md", "a\r\n", "docs/a.md:1: a carriage return"),
        ("cmake/a.cmake", "\tset(a 1)\n", "cmake/a.cmake:1: a tab"),
        ("cmake/a.cmake", "#" * 121 + "\n", "cmake/a.cmake:1: 121 columns, but at most 120"),
        ("src/a.cc", "\n".join(f"int a{i};" for i in range(421)) + "\n", "src/a.cc:0: 421 lines, but at most 420"),
        ("tool.py", "a = 1\n" * 421, "tool.py:0: 421 lines, but at most 420"),
        ("notes.odd", "a\n", "notes.odd:0: no rule covers this name"),
    ],
)
def test_a_fault_is_named(tmp_path, name, text, complaint):
    code, output = check_tree(tmp_path, {name: text})
    assert code != 0
    assert re.search(complaint, output), output


def blocks_of_readme(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)


def test_readme_shows_the_example_that_is_compiled():
    (shown,) = blocks_of_readme("cpp")
    assert shown == (ROOT / "examples/route.cc").read_text()


def test_readme_shows_what_the_command_line_prints(tmp_path):
    """Every `$ binmoe ...` of README is run, one after the other; what it prints must be what README shows."""
    program = Path(os.environ.get("BINMOE_PROGRAM", ROOT / "build/tests/bin/binmoe"))
    (tmp_path / "data").symlink_to(ROOT / "data")
    (shown,) = blocks_of_readme("console")
    commands = re.split(r"^\$ ", shown, flags=re.M)[1:]
    assert len(commands) > 1
    for entry in commands:
        command, expected = re.match(r"((?:[^\n]*\\\n)*[^\n]*\n)(.*)", entry, re.S).groups()
        environment = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, env=environment)
        assert (done.returncode, done.stdout) == (0, expected), (command, done.stdout, done.stderr)


def test_errors_page_lists_every_check_of_the_sources():
    """docs/errors.md against the names that stand in the sources as Fault{"name" or check_value("name"."""
    used = set()
    for path in (ROOT / "src").rglob("*.cc"):
        used |= set(re.findall(r'(?:Fault\{|check_value\()\s*"(\w+)"', path.read_text()))
    faults = (ROOT / "docs/errors.md").read_text().split("## Faults")[1]
    assert used
    assert used == set(re.findall(r"^\| `(\w+)` \|", faults, re.M))
