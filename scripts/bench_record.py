"""Add machine, commit and commands to measurements: bench_record.py FOLDER NAME

FOLDER holds N.json, what `binmoe bench --json` printed, and N.command for each run.
Writes bench/results/NAME.json (no NAME: the CPU's model) and prints its tables, ready for README.
"""

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def cpu_model():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def machine():
    return {
        "cpu": cpu_model(),
        "threads": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "compiler": output_of("g++", "--version").splitlines()[0],
    }


def commit():
    """The commit, and "+changes" when the tree (results aside) differs from it."""
    changed = output_of("git", "status", "--porcelain", "--", ".", ":!bench/results")
    return output_of("git", "rev-parse", "HEAD") + ("+changes" if changed else "")


def cell(result):
    """us (share of the copy)"""
    share = result["share_of_copy"]
    return f"{result['us']:.0f}" if share is None else f"{result['us']:.0f} ({share:.2f})"


def tables(results):
    """Markdown: a table for each backend, routing and dtype; a row for each model, a column for each operation."""
    groups = {}
    for r in results:
        model = r["model"] + (f", T={r['tokens']}" if "tokens" in r else "")
        group = groups.setdefault((r["backend"], r["routing"], r["dtype"]), {})
        group.setdefault(model, {})[r["op"]] = cell(r)
    for names, rows in groups.items():
        operations = list(dict.fromkeys(op for cells in rows.values() for op in cells))
        yield ", ".join(names) + ": us (share of copy)"
        yield ""
        yield "| model | " + " | ".join(operations) + " |"
        yield "|---" * (len(operations) + 1) + "|"
        for model, cells in rows.items():
            yield f"| {model} | " + " | ".join(cells.get(op, "-") for op in operations) + " |"
        yield ""


def main(folder, name):
    runs = []
    for path in sorted(Path(folder).glob("*.json")):
        runs.append({"command": path.with_suffix(".command").read_text().strip()} | json.loads(path.read_text()))
    record = {"commit": commit(), "machine": machine(), "runs": runs}
    slug = name or re.sub(r"[^a-z0-9]+", "-", cpu_model().lower()).strip("-")
    path = Path("bench/results") / f"{slug}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    for run in runs:
        print(f"{run['command']}: copy {run['copy_gb_per_s']:.1f} GB/s, {run['threads']} threads\n")
        print("\n".join(tables(run["results"])))
    print(f"{record['machine']['cpu']}; commit {record['commit']}")
    print(f"written to {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
