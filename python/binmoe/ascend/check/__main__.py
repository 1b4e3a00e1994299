"""python -m binmoe.ascend.check: all four levels over our kernels, and the faults that they must find."""

import argparse
import json
import sys

from . import environment

SKIPPED = 77


def parse():
    parser = argparse.ArgumentParser(
        prog="python -m binmoe.ascend.check",
        description=__doc__,
        epilog="Status: 0 all holds, 1 something does not, 77 skipped because something is missing here (1 when "
        "BINMOE_REQUIRE_ASCEND=1). The C++ library is found as binmoe.ascend.library says (BINMOE_LIBRARY).",
    )
    parser.add_argument("--json", action="store_true", help="print {checks: [...], mutants: [...]}")
    parser.add_argument("--level", action="append", help="only this level; may be repeated")
    parser.add_argument("--kernel", default="", help="only kernels whose name holds this text")
    parser.add_argument("--no-mutants", action="store_true", help="leave the mutants out")
    return parser.parse_args()


def skip(reason, as_json):
    if as_json:
        print(json.dumps({"checks": [], "mutants": [], "skipped": reason}))
    print(f"NOTHING WAS CHECKED: {reason}", file=sys.stderr)
    return 1 if environment.is_required() else SKIPPED


def main():
    options = parse()
    reason = environment.missing()
    if reason:
        return skip(reason, options.json)
    from binmoe.ascend import library

    from .suite import report

    try:
        library.load()
    except (OSError, library.LibraryError) as error:
        return skip(f"the C++ library: {error}", options.json)
    unknown = set(options.level or ()) - set(report.LEVELS)
    if unknown:
        print(
            f"no level is called {', '.join(sorted(unknown))}; there are: {', '.join(report.LEVELS)}", file=sys.stderr
        )
        return 2
    checks, mutants, seconds = report.timed_collect(
        levels=options.level or report.LEVELS,
        kernel_part=options.kernel,
        with_mutants=not (options.no_mutants or options.level or options.kernel),
        progress=lambda text: print(text, file=sys.stderr, flush=True),
    )
    if not checks:
        print(f"no kernel's name holds '{options.kernel}'", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(report.as_json(checks, mutants), indent=1))
    else:
        print(report.as_text(checks, mutants, seconds))
    return 0 if report.is_green(checks, mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
