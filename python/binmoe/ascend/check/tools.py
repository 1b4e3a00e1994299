"""The compiler's programs. Once in some thousand runs one dies of an assertion in MLIR, and not the next time."""

import subprocess
from pathlib import Path

ATTEMPTS = 3


def path_of(name):
    """A program of the package ascendnpu-ir."""
    import ascendnpuir

    return str(Path(ascendnpuir.__file__).parent / "bin" / name)


def again_after_a_crash(work):
    """work(), which raises CalledProcessError; tried again when a signal ended the program, and only then."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return work()
        except subprocess.CalledProcessError as error:
            if error.returncode >= 0 or attempt == ATTEMPTS:
                raise


def run(name, *arguments, stdin=""):
    """(exit status, stdout, stderr). A status below 0: a signal, every time."""
    command = [path_of(name), *arguments]
    try:
        done = again_after_a_crash(
            lambda: subprocess.run(command, input=stdin, capture_output=True, text=True, check=True)
        )
    except subprocess.CalledProcessError as error:
        done = error
    return done.returncode, done.stdout, done.stderr
