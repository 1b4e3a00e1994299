"""What the checker needs: Python, packages, gcc. Nothing heavy is imported here."""

import functools
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

# The versions of requirements-ascend.txt, with which everything here was executed.
PACKAGES = {"triton-ascend": "3.2.0", "ascendnpu-ir": "1.2.0", "numpy": "2.3.5", "torch": "2.13.0", "pybind11": None}


class MissingError(RuntimeError):
    """The checker cannot run here; the text says why and what to do."""


def missing():
    """Why the checker cannot run here, or None."""
    if not (3, 10) <= sys.version_info[:2] <= (3, 11):
        return f"Python {sys.version_info[0]}.{sys.version_info[1]} runs, but triton-ascend 3.2.0 wants 3.11 (or 3.10)"
    for name, version in PACKAGES.items():
        try:
            found = importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            return f"the package {name} is missing: `make setup-ascend`, then use .venv-ascend/bin/python"
        if version and found != version:
            return f"{name} {found} is installed, but {version} is needed: `make setup-ascend`"
    if importlib.util.find_spec("triton.backends.ascend") is None:
        return "the package triton is upstream's and hides triton-ascend's: use an environment of its own"
    if shutil.which("gcc") is None:
        return "gcc is missing: apt-get install gcc"
    if os.environ.get("TRITON_INTERPRET", "0") == "1":
        return "TRITON_INTERPRET=1 is set: kernels are interpreted then and cannot be lowered; unset it"
    return None


@functools.cache
def require():
    """Looks once a process. Errors: MissingError."""
    reason = missing()
    if reason:
        raise MissingError(f"[check] {reason}")


@functools.cache
def _scratch():
    return tempfile.TemporaryDirectory(prefix="binmoe_check_")


def scratch_folder():
    """Of what is compiled; lives as long as the process."""
    return Path(_scratch().name)


def is_required():
    """BINMOE_REQUIRE_ASCEND=1: what is missing is a failure, not a skip."""
    return os.environ.get("BINMOE_REQUIRE_ASCEND", "0") == "1"
