"""Check what no formatter checks: check_text.py FILE...

ASCII, line ends, trailing blanks, tabs, the last newline, the length of lines and of files. A file that no rule names
is an error, so that every suffix in the tree is covered.
"""

import re
import sys
from fnmatch import fnmatch
from pathlib import Path

MAX_COLUMNS = 120
MAX_LINES = 420  # of code; style.md says about 400

# Data and texts of others: not ours to reformat.
EXEMPT = ["LICENSE", "*LICENSE-*.txt", "data/*", "bench/results/*.json", "tests/data/*"]
EXEMPT += ["fuzz/corpus/*", "fuzz/*corpus*/*", "*.npy"]
CODE = ["*.c", "*.cc", "*.h", "*.cu", "*.cuh", "*.py"]
TEXT = ["*.md", "*.txt", "*.cmake", "*.json", "*.yml", "*.yaml", "*.toml", "*.sh", "*.svg", "*.in", "*.map", ".ci/*"]
TEXT += ["Makefile", "*/Makefile", ".gitignore", ".clang-format", ".gitattributes", "*/py.typed"]
TABS = ["Makefile", "*/Makefile"]
LONG_LINES = ["*.md", "*.svg"]  # tables and paragraphs may be one line


def matches(path, patterns):
    return any(fnmatch(path, pattern) for pattern in patterns)


def faults_of_text(path, text):
    """(line, complaint) of every fault; line 0 is the whole file."""
    if text and not text.endswith("\n"):
        yield 0, "no newline at the end"
    if text.endswith("\n\n"):
        yield 0, "empty lines at the end"
    lines = text.split("\n")
    if matches(path, CODE) and len(lines) - 1 > MAX_LINES:
        yield 0, f"{len(lines) - 1} lines, but at most {MAX_LINES}: make it two files"
    for number, line in enumerate(lines, 1):
        if not line.isascii():
            yield number, "not ASCII"
        if "\r" in line:
            yield number, "a carriage return"
        if "\t" in line and not matches(path, TABS):
            yield number, "a tab"
        if re.search(r"[ \t]$", line):
            yield number, "blanks at the end"
        if len(line) > MAX_COLUMNS and not matches(path, LONG_LINES):
            yield number, f"{len(line)} columns, but at most {MAX_COLUMNS}"


def faults_of_file(path):
    if matches(path, EXEMPT):
        return
    if not matches(path, CODE + TEXT):
        yield 0, "no rule covers this name; add one to scripts/check_text.py"
        return
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        yield 0, "not ASCII"
        return
    yield from faults_of_text(path, text)


def main(paths):
    count = 0
    for path in paths:
        for line, complaint in faults_of_file(path):
            print(f"{path}:{line}: {complaint}", file=sys.stderr)
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
