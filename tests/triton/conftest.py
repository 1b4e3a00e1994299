"""What the compiler makes of Triton-Ascend kernels, on x86: for .venv-ascend, without TRITON_INTERPRET."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("BINMOE_LIBRARY", str(ROOT / "build/tests/lib/libbinmoe.so"))
sys.path[:0] = [str(ROOT / "python"), str(Path(__file__).parent)]
pytest_plugins = ["binmoe.ascend.check.plugin"]
