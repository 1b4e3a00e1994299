"""What is printed: markdown tables; and the record that is written as JSON."""

import os
import platform
import sys
from pathlib import Path

import torch

import binmoe
from binmoe.bench.ways import OURS


def machine(device):
    """Where it ran. The device's copy speed is measured apart."""
    facts = {
        "binmoe": binmoe.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": _cpu_model(),
        "threads": torch.get_num_threads(),
        "cores": len(os.sched_getaffinity(0)),
    }
    if device == "cuda":
        facts["gpu"] = torch.cuda.get_device_name()
        facts["cuda"] = torch.version.cuda
    return facts


def _cpu_model():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def command():
    """The line that made the record; paths that only name outputs are part of it."""
    return " ".join(["python -m binmoe.bench", *sys.argv[1:]])


def _time(entry):
    spread = (entry["high_us"] - entry["low_us"]) / entry["us"]
    return f"{entry['us']:.4g} +-{50 * spread:.0f}%"


def _best_torch(times):
    others = {name: entry for name, entry in times.items() if not name.startswith(OURS)}
    return min(others, key=lambda name: others[name]["us"]) if others else None


def ratio(result):
    """Time of the fastest torch way over that of binmoe's fastest; None without torch ways."""
    best = _best_torch(result["times"])
    if best is None:
        return None
    ours = min(entry["us"] for name, entry in result["times"].items() if name.startswith(OURS))
    return result["times"][best]["us"] / ours


def _row(result, names):
    cells = [result["label"]]
    cells += [_time(result["times"][name]) if name in result["times"] else "-" for name in names]
    if result.get("share_of_copy") is not None:
        cells.insert(2, f"{result['share_of_copy']:.2f}")
    value = ratio(result)
    cells.append("-" if value is None else f"{value:.2f}")
    return "| " + " | ".join(cells) + " |"


def tables(results):
    """Markdown lines: a table for each operation and mode. Times are medians in us, +- half the quartile distance."""
    groups = {}
    for result in results:
        groups.setdefault((result["operation"], result["mode"]), []).append(result)
    for (operation, mode), rows in groups.items():
        names = list(dict.fromkeys(name for row in rows for name in row["times"]))
        heads = ["shape", *names, "fastest torch / binmoe"]
        if rows[0].get("share_of_copy") is not None:
            heads.insert(2, "share of copy")
        yield f"{operation}, {mode}: us"
        yield ""
        yield "| " + " | ".join(heads) + " |"
        yield "|---" * len(heads) + "|"
        yield from (_row(row, names) for row in rows)
        yield ""
        for row in rows:
            for name, why in row.get("failed", {}).items():
                yield f"not measured: {name}, {row['label']}: {why}"
                yield ""
