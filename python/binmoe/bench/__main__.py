"""The program: `python -m binmoe.bench --device cpu|cuda`."""

import argparse
import itertools
import json
import sys
from pathlib import Path

import torch

from binmoe.bench import layer as layers
from binmoe.bench import report
from binmoe.bench.problem import MODELS, ROUTINGS, Shape, find_model, make_problem
from binmoe.bench.timing import CpuClock, CudaClock, copy_speed
from binmoe.bench.verify import Expected
from binmoe.bench.ways import OPERATIONS, OURS, ways_of

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
# Names of the modes in tables, by the option's values.
MODES = {"given": "into given outputs", "allocating": "allocating"}
GRAPH = "into given outputs, CUDA graph"


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m binmoe.bench",
        description="Time binmoe.torch beside torch eager and torch.compile of the plain expression. "
        "Every result is verified before it is timed.",
    )
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--models", nargs="*", default=list(MODELS), metavar="M", help="names, or HIDDENxEXPERTSxTOP_K")
    add("--routings", nargs="+", choices=ROUTINGS, default=["uniform"])
    add("--operations", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
    add("--tokens", type=int, help="of the large shapes; 4096 on the CPU, 16384 on CUDA, deepseek-v3 half of it")
    add("--decode-models", nargs="*", metavar="M", help="of the small shapes; --models, on CUDA deepseek-v3 alone")
    add("--decode-tokens", type=int, help="of the small shapes; 64 on the CPU, 128 on CUDA")
    add(
        "--modes", nargs="+", choices=MODES, default=list(MODES), help="outputs given (on CUDA in a graph) or allocated"
    )
    add("--dtype", choices=DTYPES, default="bf16", help="of the rows; weights are f32")
    add("--capacity-factor", type=float, default=1.25, help="of the large shapes; the small ones have 2")
    add("--rounds", type=int, default=11)
    add("--no-compile", action="store_true", help="leave torch.compile out")
    add("--no-layer", action="store_true", help="leave the training step of the MoE layer out")
    add("--layer-sizes", nargs=6, type=int, metavar=("T", "H", "E", "K", "F", "GATED"), help="one layer of these sizes")
    add("--json", type=Path, metavar="PATH", help="write everything that was measured, after each measurement")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no CUDA device")
    if options.decode_models is None:
        options.decode_models = ["deepseek-v3"] if options.device == "cuda" else options.models
    try:
        options.models = [find_model(name) for name in options.models]
        options.decode_models = [find_model(name) for name in options.decode_models]
    except ValueError as error:
        parser.error(str(error))
    large, small = (16384, 128) if options.device == "cuda" else (4096, 64)
    options.tokens = large if options.tokens is None else options.tokens
    options.decode_tokens = small if options.decode_tokens is None else options.decode_tokens
    return options


def shapes_of(options):
    for routing in options.routings:
        for model in options.models:
            tokens = options.tokens // 2 if model.name == "deepseek-v3" else options.tokens
            yield Shape(model, tokens, options.capacity_factor, routing)
    for model in options.decode_models:
        yield Shape(model, options.decode_tokens, 2.0, "uniform")


def clocks_of(options):
    """(name of the mode, clock, whether outputs are given) of each mode."""
    for mode in options.modes:
        given = mode == "given"
        if options.device == "cpu":
            yield MODES[mode], CpuClock(options.rounds), given
        else:
            yield GRAPH if given else MODES[mode], CudaClock(options.rounds, graph=given), given


def times_of(operation, problem, clock, into, compiled):
    """({way: Time}, {way of torch that failed: why}); each result is verified on one set of buffers first."""
    first = problem.new_buffers(0)
    buffers = [first, *(problem.new_buffers(seed) for seed in range(1, clock.sets_for(first.bytes())))]
    expected = Expected(operation, problem, first)
    prepared, failed = {}, {}
    for name, (way, takes_out) in ways_of(operation, compiled).items():
        writes = into and takes_out
        try:
            expected.check(name, way(problem, first, writes), ours=name == OURS)
            prepared[name] = clock.prepare(lambda index, way=way, writes=writes: way(problem, buffers[index], writes))
        except Exception as error:  # torch.compile may fail in many ways; the other ways are still worth their time
            if name == OURS:
                raise
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    del expected
    return clock.measure(prepared), failed


def entries(times):
    return {name: {"us": time.us, "low_us": time.low, "high_us": time.high} for name, time in times.items()}


def measure_operations(options, copy_gb_per_s):
    for shape in shapes_of(options):
        problem = make_problem(shape, DTYPES[options.dtype], options.device)
        label = f"{shape.model.name}, T={shape.tokens}, {shape.routing}"
        for operation in options.operations:
            least = problem.least_bytes(operation)
            for mode, clock, into in clocks_of(options):
                print(f"{operation}: {label}, {mode}", file=sys.stderr)
                times, failed = times_of(operation, problem, clock, into, not options.no_compile)
                yield {
                    "operation": operation,
                    "mode": mode,
                    "label": label,
                    "model": shape.model._asdict(),
                    "tokens": shape.tokens,
                    "routing": shape.routing,
                    "capacity_factor": shape.capacity_factor,
                    "dtype": options.dtype,
                    "least_bytes": least,
                    "share_of_copy": least / times[OURS].us * 1e-3 / copy_gb_per_s,
                    "times": entries(times),
                    "failed": failed,
                }


def measure_layers(options):
    chosen = layers.CUDA_LAYERS if options.device == "cuda" else layers.CPU_LAYERS
    if options.layer_sizes:
        chosen = [layers.Layer("given", *options.layer_sizes[:5], bool(options.layer_sizes[5]))]
    clock = CpuClock(options.rounds) if options.device == "cpu" else CudaClock(options.rounds, False, calls_a_sample=4)
    for layer in chosen:
        print(f"layer: {layer.name}", file=sys.stderr)
        times, failed = layers.measure(layer, DTYPES[options.dtype], options.device, clock, not options.no_compile)
        label = f"{layer.name}, T={layer.tokens}"
        yield {
            "operation": "layer, forward and backward",
            "mode": MODES["allocating"],
            "label": label,
            "layer": layer._asdict(),
            "dtype": options.dtype,
            "times": entries(times),
            "failed": failed,
        }


def main(arguments=None):
    options = parse(arguments)
    # Not in a graph: there a copy of 4 GiB is a third slower.
    copy_clock = CpuClock(options.rounds) if options.device == "cpu" else CudaClock(options.rounds, False, 4)
    copy_gb_per_s = copy_speed(copy_clock, options.device)
    results = []
    record = {
        "command": report.command(),
        "machine": report.machine(options.device),
        "copy_gb_per_s": copy_gb_per_s,
        "results": results,
    }
    layer_results = () if options.no_layer else measure_layers(options)
    for result in itertools.chain(measure_operations(options, copy_gb_per_s), layer_results):
        results.append(result)
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(record, indent=1) + "\n")
    where = record["machine"].get("gpu", record["machine"]["cpu"])
    print(f"{where}, torch {torch.__version__}; copy_ {copy_gb_per_s:.1f} GB/s; rows {options.dtype}, weights f32\n")
    print("\n".join(report.tables(results)))


if __name__ == "__main__":
    main()
