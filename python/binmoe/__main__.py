"""`python -m binmoe info`: what is installed, and which backends run here."""

import argparse
import platform
from importlib import metadata

from binmoe import __version__, _native


def _version_of(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def info():
    """The lines that `python -m binmoe info` prints. Cost: where a GPU is, its copy is timed (0.1 s)."""
    yield f"binmoe {__version__}, library {_native.version()}, Python {platform.python_version()}"
    yield ", ".join(f"{package} {_version_of(package)}" for package in ("numpy", "ml_dtypes", "torch"))
    yield f"threads: {_native.threads()} (OpenMP)"
    yield "backends, the best first:"
    for name, description, unsupported, options, properties in _native.backends():
        yield f"  {name}: {description}" + (f"; cannot run here: {unsupported}" if unsupported is not None else "")
        if options and unsupported is None:
            yield f"    options: {', '.join(options)}"
        for key, value in properties:
            yield f"    {key}: {value}"


def main():
    parser = argparse.ArgumentParser(prog="python -m binmoe", description=__doc__)
    parser.add_argument("command", choices=["info"])
    parser.parse_args()
    for line in info():
        print(line)


if __name__ == "__main__":
    main()
