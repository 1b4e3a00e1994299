"""Print the table of docs/ascend.md, section 6: ascend_estimates.py [PROGRAM]. Estimates of the model, not measured."""

import json
import math
import subprocess
import sys

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else "build/release/bin/binmoe"
MODELS = {  # docs/design.md, section 6: H, E, K, T
    "mixtral-8x7b": (4096, 8, 2, 16384),
    "gpt-oss-120b": (2880, 128, 4, 16384),
    "qwen3-30b": (2048, 128, 8, 16384),
    "deepseek-v3": (7168, 256, 8, 8192),
    "llama4-maverick": (5120, 128, 1, 16384),
}
MEMORY_BYTES_PER_US = 1.8e6
OPS = {
    "gather": ["--op", "gather"],
    "gather, expert order": ["--op", "gather", "--order", "expert"],
    "gather, weighted": ["--op", "gather", "--weights"],
    "scatter": ["--op", "scatter", "--weights"],
    "wgrad": ["--op", "wgrad"],
    "scatter backward": ["--op", "scatter-backward", "--weights"],
}


def cell(model, routing, op):
    hidden, experts, top_k, tokens = MODELS[model]
    capacity = math.ceil(1.25 * tokens * top_k / experts)
    sizes = {"tokens": tokens, "hidden-size": hidden, "num-experts": experts, "top-k": top_k}
    command = [PROGRAM, "simulate", "--json", "--routing", routing, "--expert-capacity", str(capacity), *OPS[op]]
    for name, value in sizes.items():
        command += [f"--{name}", str(value)]
    out = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    slow = out["bound_us"] / out["estimate_slow_scalar_us"]
    text = f"{out['share_of_bound']:.3f} ({slow:.3f})"
    if "expert" not in op:
        return text
    moved = sum(launch["gm_read_bytes"] + launch["gm_written_bytes"] for launch in out["launches"])
    return f"{text}, of its own bytes {moved / MEMORY_BYTES_PER_US / out['estimate_us']:.3f}"


print("| model, routing | " + " | ".join(OPS) + " |")
print("|---" * (len(OPS) + 1) + "|")
for model in MODELS:
    for routing in ("uniform", "zipf"):
        print(f"| {model}, {routing} | " + " | ".join(cell(model, routing, op) for op in OPS) + " |", flush=True)
