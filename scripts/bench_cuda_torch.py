"""Time torch on what bench_cuda times: bench_cuda_torch.py [--model NAME,...] [--json FILE] [--beside FILE]

gather by index_select into zeros, scatter by index_add, and the same expressions through torch.compile: gather as
where(used, x[src], 0), scatter with the k-sum written out, its backward, and plan by a stable sort. Each result is
checked first. Times by CUDA graphs over rotating buffer sets, as bench_cuda does; routing and sizes are bench_cuda's.
--beside: bench_cuda's JSON; the table then shows both and their ratio.
"""

import argparse
import json
import math
import statistics
import sys
from dataclasses import dataclass

import numpy as np
import torch

MODELS = {  # name: hidden_size, num_experts, top_k, tokens, capacity factor in quarters
    "deepseek-v3 decode": (7168, 256, 8, 128, 8),
    "mixtral-8x7b": (4096, 8, 2, 16384, 5),
    "gpt-oss-120b": (2880, 128, 4, 16384, 5),
    "qwen3-30b": (2048, 128, 8, 16384, 5),
    "deepseek-v3": (7168, 256, 8, 8192, 5),
    "llama4-maverick": (5120, 128, 1, 16384, 5),
}
RING_BYTES = 180_000_000  # three L2 caches of an H200
MOST_SETS = 512  # plans of few ids: more make graphs of 100,000 nodes
COPY_BYTES = 4 << 30


def mix(z):
    """The finalizer of SplitMix64, on uint64 arrays."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def make_routing(routing, tokens, top_k, num_experts):
    """expert_ids [tokens, top_k] as bench/routing.cc makes them."""
    index = np.arange(tokens * num_experts, dtype=np.uint64)
    start = mix(np.array([2024], dtype=np.uint64))
    bits = mix(start + index * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(11)
    u = bits.astype(np.float64) * 2.0**-53 + 2.0**-54
    score = (-np.log(-np.log(u))).reshape(tokens, num_experts)
    if routing == "zipf":
        score -= np.log(np.arange(1, num_experts + 1))
    return np.argsort(-score, axis=1, kind="stable")[:, :top_k].astype(np.int32)


def plan_of(ids, num_experts, capacity):
    """[num_experts * capacity] assignment or -1, and [tokens * top_k] row or -1. token_order."""
    flat = ids.reshape(-1)
    order = np.argsort(flat, kind="stable")
    experts = flat[order]
    begins = np.searchsorted(experts, np.arange(num_experts))
    offsets = np.arange(flat.size) - begins[experts]
    kept = offsets < capacity
    rows = experts[kept].astype(np.int64) * capacity + offsets[kept]
    assignment_of_row = np.full(num_experts * capacity, -1, np.int64)
    assignment_of_row[rows] = order[kept]
    row_of_assignment = np.full(flat.size, -1, np.int64)
    row_of_assignment[order[kept]] = rows
    return assignment_of_row, row_of_assignment


# The expressions. Maps are int64, as torch indexes; k is the same for a whole compilation.


def gather_eager(x, token_of_kept, kept_rows, y):
    y.zero_()
    y.index_copy_(0, kept_rows, x.index_select(0, token_of_kept))


def gather_compiled(x, used, token_of_row):
    return torch.where(used[:, None], x[token_of_row], 0)


def scatter_eager(y, weights, token_of_kept, kept_rows, assignment_of_kept, out):
    out.zero_()
    weighted = y.index_select(0, kept_rows).float() * weights[assignment_of_kept][:, None]
    out.index_add_(0, token_of_kept, weighted.to(out.dtype))


def scatter_compiled(y, weights, has_row, row):
    total = torch.zeros((row.shape[0], y.shape[1]), dtype=torch.float32, device=y.device)
    for k in range(row.shape[1]):
        total = total + torch.where(has_row[:, k, None], weights[:, k, None] * y[row[:, k]].float(), 0.0)
    return total.to(y.dtype)


def backward_compiled(y, grad, weights, used, token_of_row, assignment_of_row, has_row, row):
    scaled = grad[token_of_row].float() * weights.reshape(-1)[assignment_of_row][:, None]
    dy = torch.where(used[:, None], scaled.to(y.dtype), 0)
    columns = [(y[row[:, k]].float() * grad.float()).sum(-1) for k in range(row.shape[1])]
    dw = torch.where(has_row, torch.stack(columns, 1), 0.0)
    return dy, dw


def plan_by_sort(ids, num_experts, capacity):
    """indices, bin_ids, bins, row_of_assignment: no masked ids here."""
    bin_ids, indices = torch.sort(ids.reshape(-1), stable=True)
    experts = torch.arange(num_experts, device=ids.device, dtype=ids.dtype)
    bins = torch.searchsorted(bin_ids, experts, right=True)
    begins = torch.searchsorted(bin_ids, experts)
    offsets = torch.arange(bin_ids.numel(), device=ids.device) - begins[bin_ids]
    rows = torch.where(offsets < capacity, bin_ids * capacity + offsets, -1)
    return indices, bin_ids, bins, torch.empty_like(rows).scatter_(0, indices, rows)


@dataclass
class Sizes:
    model: str
    hidden_size: int
    num_experts: int
    top_k: int
    tokens: int
    capacity: int
    routing: str

    @property
    def rows(self):
        return self.num_experts * self.capacity


class Problem:
    """Maps and inputs on the device, and what results must be."""

    def __init__(self, sizes):
        self.sizes = s = sizes
        ids = make_routing(s.routing, s.tokens, s.top_k, s.num_experts)
        source, row = plan_of(ids, s.num_experts, s.capacity)
        self.kept = int((row >= 0).sum())
        self.tokens_with_a_row = int((row.reshape(s.tokens, s.top_k) >= 0).any(1).sum())
        there = {"device": "cuda"}
        self.ids = torch.from_numpy(ids).to(**there)
        self.used = torch.from_numpy(source >= 0).to(**there)
        self.assignment_of_row = torch.from_numpy(np.maximum(source, 0)).to(**there)
        self.token_of_row = self.assignment_of_row // s.top_k
        self.has_row = torch.from_numpy((row >= 0).reshape(s.tokens, s.top_k)).to(**there)
        self.row = torch.from_numpy(np.maximum(row, 0).reshape(s.tokens, s.top_k)).to(**there)
        self.kept_rows = self.used.nonzero().reshape(-1)
        self.assignment_of_kept = self.assignment_of_row[self.kept_rows]
        self.token_of_kept = self.token_of_row[self.kept_rows]
        generator = torch.Generator(device="cuda").manual_seed(1)

        def rows_of(count, dtype=torch.bfloat16, cols=s.hidden_size):
            return (torch.rand((count, cols), generator=generator, **there) + 0.5).to(dtype)

        self.x, self.y = rows_of(s.tokens), rows_of(s.rows)
        self.weights = rows_of(s.tokens, torch.float32, s.top_k)

    def minimum_bytes(self, call):
        """docs/design.md, section 6."""
        s, row = self.sizes, 2 * self.sizes.hidden_size
        maps = 4 * s.tokens * s.top_k
        return {
            "plan token_order": 2 * maps + 8 * s.tokens * s.top_k + 12 * s.num_experts,
            "gather": (self.tokens_with_a_row + s.rows) * row + 4 * self.kept,
            "scatter": (self.kept + s.tokens) * row + 2 * maps,
            "scatter backward": (self.tokens_with_a_row + self.kept + s.rows) * row + 3 * maps,
        }[call]

    def expected_gather(self, rows, weighted):
        s = self.sizes
        out = torch.zeros((s.rows, s.hidden_size), dtype=torch.bfloat16, device="cuda")
        values = rows[self.token_of_kept].float()
        if weighted:
            values *= self.weights.reshape(-1)[self.assignment_of_kept][:, None]
        out[self.kept_rows] = values.to(torch.bfloat16)
        return out

    def expected_scatter(self):
        total = torch.zeros((self.sizes.tokens, self.sizes.hidden_size), dtype=torch.float32, device="cuda")
        for k in range(self.sizes.top_k):
            has = self.has_row[:, k]
            total[has] += self.weights[has, k, None] * self.y[self.row[has, k]].float()
        return total


def close(actual, expected, tolerance):
    error = (actual.float() - expected.float()).abs() - tolerance * expected.float().abs()
    return bool((error <= 0).all())


class Variant:
    """One expression, checked, and its buffer sets: copies of the inputs and of the outputs written in place."""

    def __init__(self, inputs, outputs, check, function):
        self.function = function
        result = function(inputs, outputs)
        check(result)
        written = outputs or (result if isinstance(result, tuple) else [result])
        one = sum(t.numel() * t.element_size() for t in [*inputs, *written])
        self.count = min(max(4, RING_BYTES // one + 1), MOST_SETS)
        self.sets = [(inputs, outputs)]
        for _ in range(self.count - 1):
            self.sets.append(([t.clone() for t in inputs], [t.clone() for t in outputs]))


def variants_of(p, compiled):
    """Each as: what it is, bench_cuda's name of the call, inputs, outputs written in place, check, function."""
    s = p.sizes

    def must(condition, what):
        if not condition:
            raise RuntimeError(f"torch's {what} gives a wrong result")

    gathered, scattered = p.expected_gather(p.x, False), p.expected_scatter()
    empty_rows = torch.full_like(p.y, float("nan"))
    empty_out = torch.full_like(p.x, float("nan"))

    def check_gather(y):
        must(torch.equal(y, gathered), "gather")

    def check_scatter(out):
        must(close(out, scattered, 2.0**-8), "scatter")  # one rounding to bf16

    def check_scatter_loose(out):
        must(close(out, scattered, s.top_k * 2.0**-8), "index_add")  # rounds at each addition

    def check_backward(result):
        dy, dw = result
        must(torch.equal(dy, p.expected_gather(p.x, True)), "backward (dy)")
        exact = torch.stack([(p.y[p.row[:, k]].double() * p.x.double()).sum(-1) for k in range(s.top_k)], 1)
        must(close(dw, torch.where(p.has_row, exact, 0.0), s.hidden_size * 2.0**-24), "backward (dw)")

    def check_plan(result):
        must(torch.equal(result[3].reshape(s.tokens, s.top_k), torch.where(p.has_row, p.row, -1)), "plan")

    def eager_gather(i, o):
        gather_eager(i[0], i[1], i[2], o[0])
        return o[0]

    def eager_scatter(i, o):
        scatter_eager(i[0], i[1].reshape(-1), p.token_of_kept, i[2], p.assignment_of_kept, o[0])
        return o[0]

    maps = [p.used, p.token_of_row, p.assignment_of_row, p.has_row, p.row]
    eager_in = [p.x, p.token_of_kept, p.kept_rows]
    yield "index_select into zeros", "gather", eager_in, [empty_rows], check_gather, eager_gather
    yield "index_add", "scatter", [p.y, p.weights, p.kept_rows], [empty_out], check_scatter_loose, eager_scatter

    def compile_of(key, *more):
        return lambda inputs, _: compiled[key](*inputs, *more)

    name = "torch.compile"
    yield name, "gather", [p.x, p.used, p.token_of_row], [], check_gather, compile_of("gather")
    yield name, "scatter", [p.y, p.weights, p.has_row, p.row], [], check_scatter, compile_of("scatter")
    yield name, "scatter backward", [p.y, p.x, p.weights, *maps], [], check_backward, compile_of("backward")
    plan = compile_of("plan", s.num_experts, s.capacity)
    yield "torch.compile of sort", "plan token_order", [p.ids.long()], [], check_plan, plan


def time_calls(variant):
    """Microseconds of a call and the quartiles: replays of a graph of at least 24 calls and about 2 ms."""
    stream = torch.cuda.Stream()

    def graph_of(calls):
        graph, kept = torch.cuda.CUDAGraph(), []
        with torch.cuda.graph(graph, stream=stream):
            for i in range(calls):
                kept.append(variant.function(*variant.sets[i % variant.count]))
                if len(kept) > variant.count:  # the pool hands memory on, a ring of results behind
                    kept.pop(0)
        return graph

    def replay_us(graph):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(stream):
            begin.record()
            graph.replay()
            end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3

    with torch.cuda.stream(stream):
        for inputs, outputs in variant.sets[:2]:
            variant.function(inputs, outputs)
    torch.cuda.synchronize()
    calls = math.ceil(24 / variant.count) * variant.count
    graph = graph_of(calls)
    replay_us(graph)
    once = replay_us(graph)
    if once < 2000:
        calls = math.ceil(calls * 2000 / once / variant.count) * variant.count
        del graph
        graph = graph_of(calls)
        replay_us(graph)
        once = replay_us(graph)
    times = sorted(replay_us(graph) / calls for _ in range(max(8, min(30, int(200000 / once)))))
    return statistics.median(times), times[len(times) // 4], times[3 * len(times) // 4]


def copy_rate():
    """Bytes per us, read and written, of a copy of 4 GiB."""
    source, target = (torch.ones(COPY_BYTES, dtype=torch.uint8, device="cuda") for _ in range(2))
    times = []
    for _ in range(12):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return 2 * COPY_BYTES / statistics.median(times[1:])


def measure(name, routing, compiled, copy):
    hidden_size, num_experts, top_k, tokens, quarters = MODELS[name]
    capacity = -(-tokens * top_k * quarters // (4 * num_experts))
    problem = Problem(Sizes(name, hidden_size, num_experts, top_k, tokens, capacity, routing))
    for what, call, inputs, outputs, check, function in variants_of(problem, compiled):
        row = {"model": name, "routing": routing, "dtype": "bf16", "variant": "", "call": call, "what": what}
        row["kept"] = problem.kept
        try:
            variant = Variant(inputs, outputs, check, function)
            us, low, high = time_calls(variant)
            nbytes = problem.minimum_bytes(call)
            row |= {"us": us, "us_quartiles": [low, us, high], "bytes": nbytes, "share": nbytes / us / copy}
            del variant
        except (RuntimeError, torch.cuda.OutOfMemoryError) as error:
            row["wrong"] = str(error).split("\n")[0]
        torch.cuda.empty_cache()
        yield row


def table(rows, beside):
    """Markdown; with bench_cuda's rows beside, its time and torch's time over it."""
    ours = {(r["model"], r["routing"], r["call"]): r for r in beside if not r["variant"] and r["dtype"] == "bf16"}
    yield "| model | routing | call | torch | us | share | binmoe us | torch / binmoe |"
    yield "|---" * 8 + "|"
    for r in rows:
        head = f"| {r['model']} | {r['routing']} | {r['call']} | {r['what']} | "
        if "wrong" in r:
            yield head + f"WRONG: {r['wrong']} | - | - | - |"
            continue
        own = ours.get((r["model"], r["routing"], r["call"]), {}).get("us")
        pair = f"{own:.2f} | {r['us'] / own:.2f}" if own else "- | -"
        yield head + f"{r['us']:.2f} | {r['share']:.3f} | {pair} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=",".join(MODELS))
    parser.add_argument("--routing", default="uniform,zipf")
    parser.add_argument("--json")
    parser.add_argument("--beside")
    options = parser.parse_args()
    rows, beside = [], []
    if options.beside:
        with open(options.beside) as file:  # plans: the cold ones are compared
            beside = [r for r in json.load(file)["rows"] if "us" in r and not r["warm"]]
    copy = copy_rate()
    torch.cuda.empty_cache()
    for name in options.model.split(","):
        torch._dynamo.reset()
        functions = {"gather": gather_compiled, "scatter": scatter_compiled, "backward": backward_compiled}
        compiled = {key: torch.compile(function, dynamic=False) for key, function in functions.items()}
        compiled["plan"] = torch.compile(plan_by_sort, dynamic=False)
        for routing in options.routing.split(","):
            for row in measure(name, routing, compiled, copy):
                figure = row.get("us", row.get("wrong"))
                print(f"{name}, {routing}, {row['call']}, {row['what']}: {figure}", file=sys.stderr)
                rows.append(row)
            if options.json:
                with open(options.json, "w") as file:
                    record = {"torch": torch.__version__, "device": torch.cuda.get_device_name(), "copy": copy}
                    json.dump(record | {"rows": rows}, file, indent=1)
    print("\n".join(table(rows, beside)))
    print(f"\ntorch {torch.__version__} on {torch.cuda.get_device_name()}; copy {copy * 1e-3:.0f} GB/s")
    return 1 if any("wrong" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
