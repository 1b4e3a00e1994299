"""For the first person with an Ascend NPU: run every Triton kernel, compare, time, and write a report to send back.

    python3 scripts/npu_first_run.py --out npu_report.json

Needs torch_npu, triton-ascend and libbinmoe.so (cmake --preset release && cmake --build --preset release --target
binmoe_shared). Every result is held against the library on the CPU: gather and scatter bit for bit, gradients of
weights within hidden_size * 2^-24 * sum |y * grad|, +0 where a choice was dropped. The report is written after each
result: what ends this program leaves what was found. Exit status: 0 all right, 1 something differs or failed, 2 no
device.
With --interpret the kernels run in Triton's interpreter on the CPU: that shows this program's logic, nothing of a
device, and times nothing.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
import traceback
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

DTYPES = ("bf16", "f16", "f32")
ROW_COPIES = ("element_insert", "indexed_load", "index_select")
FORMS = (("token", "element_insert"), *(("expert", form) for form in ROW_COPIES))


@dataclass(frozen=True)
class Case:
    """A problem. expert_capacity below the even share drops; above it leaves rows empty."""

    name: str
    tokens: int
    hidden_size: int
    num_experts: int
    top_k: int
    expert_capacity: int


SMALL = (
    Case("one token", 1, 64, 2, 1, 1),
    Case("capacity above tokens", 5, 96, 3, 2, 9),
    Case("drops, a tail of columns", 97, 200, 7, 3, 31),
    Case("columns that are no line", 40, 77, 4, 2, 16),
    Case("many experts, eight choices", 64, 256, 32, 8, 12),
)
LARGE = (  # capacity factor 1.25
    Case("mixtral-8x7b", 16384, 4096, 8, 2, 5120),
    Case("gpt-oss-120b", 16384, 2880, 128, 4, 640),
    Case("qwen3-30b", 16384, 2048, 128, 8, 1280),
    Case("deepseek-v3", 8192, 7168, 256, 8, 320),
    Case("llama4-maverick", 16384, 5120, 128, 1, 160),
)


@dataclass
class Result:
    """What one call did. us, gb_s: of the minimum bytes (docs/design.md, section 6); None when not timed."""

    kernel: str
    case: str
    dtype: str
    weights: bool
    form: str
    passed: bool
    detail: str = ""
    us: float | None = None
    gb_s: float | None = None
    share_of_copy: float | None = None


class Runner:
    """Runs calls on a device, times them and compares."""

    def __init__(self, device, times, grid=None):
        import torch
        from binmoe.ascend import launch, library

        self.torch, self.launch, self.library = torch, launch, library
        self.device, self.times, self.copy_gb_s = device, times, None
        self.options = launch.Options(check=False, num_programs=grid)
        self.dtypes = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}

    def synchronize(self):
        if self.device != "cpu":
            self.torch.npu.synchronize()

    def median_us(self, call):
        """Median of single calls, each waited for; None when nothing is timed."""
        if self.times == 0:
            return None
        for _ in range(3):
            call()
        samples = []
        for _ in range(self.times):
            self.synchronize()
            start = time.perf_counter()
            call()
            self.synchronize()
            samples.append((time.perf_counter() - start) * 1e6)
        return statistics.median(samples)

    def measure_copy(self, num_bytes=1 << 30):
        """GB/s, read and written, of a copy inside the device's memory."""
        source = self.torch.zeros(num_bytes, dtype=self.torch.uint8, device=self.device)
        target = self.torch.empty_like(source)
        us = self.median_us(lambda: target.copy_(source))
        self.copy_gb_s = None if us is None else 2 * num_bytes / us / 1e3
        return self.copy_gb_s

    def problem(self, case, dtype, weighted):
        """(plan, x, y, grad, weights) on the CPU; NaN wherever nothing may be read."""
        torch = self.torch
        seed = torch.Generator().manual_seed(case.tokens * 31 + case.hidden_size)
        ids = torch.randint(-1, case.num_experts, (case.tokens, case.top_k), generator=seed, dtype=torch.int32)
        plan = self.library.make_plan(ids, case.num_experts, case.expert_capacity)
        rows = plan.row_of_assignment
        is_used = torch.zeros(plan.expert_rows, dtype=torch.bool)
        is_used[rows[rows >= 0].long()] = True
        keeps = (rows >= 0).any(dim=1)

        def matrix(is_read):
            values = torch.randn((len(is_read), case.hidden_size), generator=seed).to(self.dtypes[dtype])
            values[~is_read] = float("nan")
            return values

        weights = torch.randn(rows.shape, generator=seed).masked_fill(rows < 0, float("nan"))
        return plan, matrix(keeps), matrix(is_used), matrix(keeps), weights if weighted else None

    def moved(self, plan):
        maps = {name: getattr(plan, name).to(self.device) for name in self.library.PLAN_MAPS[:-1]}
        return replace(plan, **maps)

    def jobs(self, case, dtype, weighted):
        """(kernel, form, call on the device, expected results, minimum bytes), one for each kernel and form."""
        plan, *data = self.problem(case, dtype, weighted)
        x, y, grad, weights = (None if t is None else t.to(self.device) for t in data)
        cpu_x, cpu_y, cpu_grad, cpu_weights = data
        there, library, launch = self.moved(plan), self.library, self.launch
        row, kept = x.element_size() * case.hidden_size, int((plan.row_of_assignment >= 0).sum())
        used = int((plan.row_of_assignment >= 0).any(dim=1).sum())
        want = library.gather(plan, cpu_x, cpu_weights)
        for order, form in FORMS:
            options = replace(self.options, order=order, row_copy=form)
            name = "binned_gather" if order == "expert" else "binned_gather_by_token"
            call = lambda options=options: (launch.gather(there, x, weights, options=options),)  # noqa: E731
            yield name, form if order == "expert" else "", call, (want,), (used + plan.expert_rows) * row
        call = lambda: (launch.scatter(there, y, weights, options=self.options),)  # noqa: E731
        want = library.scatter(plan, cpu_y, cpu_weights)
        yield "binned_scatter", "", call, (want,), (kept + plan.tokens) * row
        bounds = self.bound_of(plan, cpu_y, cpu_grad)
        call = lambda: (launch.wgrad(there, y, grad, options=self.options),)  # noqa: E731
        yield "binned_scatter_wgrad", "", call, (bounds,), (used + kept) * row
        call = lambda: launch.scatter_backward(  # noqa: E731
            there, y, grad, weights, dw_dtype=self.torch.float32, options=self.options
        )
        want = library.gather(plan, cpu_grad, cpu_weights)
        yield "binned_scatter_backward", "", call, (want, bounds), (used + kept + plan.expert_rows) * row

    def bound_of(self, plan, y, grad):
        """(dw in f64, the error allowed, where it must be +0). One choice at a time: f64 rows are large."""
        wide, sums, allowed = grad.double(), [], []
        for rows in plan.row_of_assignment.unbind(1):
            products = (y[rows.clamp(min=0).long()].double() * wide).masked_fill((rows < 0)[:, None], 0.0)
            sums.append(products.sum(-1))
            allowed.append(products.abs_().sum(-1) * y.shape[1] * 2.0**-24)
        return self.torch.stack(sums, 1), self.torch.stack(allowed, 1), plan.row_of_assignment < 0

    def fault(self, got, want, dtype):
        """Empty when it is right, else the first place that differs."""
        got = got.cpu()
        if isinstance(want, tuple):
            value, allowed, is_dropped = want
            wrong = (got.double() - value).abs() > allowed
            wrong |= got.isnan() | (is_dropped & got.signbit())
        else:
            got, value = got.reshape(want.shape), want
            wrong = self.distance(got, want) > self.allowed_steps(dtype)
        if not wrong.any():
            return ""
        place = tuple(int(i) for i in wrong.nonzero()[0])
        return (
            f"at {place}: {got[place].item()}, not {value[place].item()}; {int(wrong.sum())} of {wrong.numel()} differ"
        )

    def allowed_steps(self, dtype):
        return 1 if self.device == "cpu" and dtype == "bf16" else 0  # the interpreter cuts f32 to bf16, it rounds not

    def distance(self, got, want):
        """Steps between two numbers of a dtype; 0 between NaNs."""
        width = {2: self.torch.int16, 4: self.torch.int32}[want.element_size()]
        a, b = got.view(width).long(), want.view(width).long()
        lowest = -(1 << (8 * want.element_size() - 1))
        steps = (self.ordered(a, lowest) - self.ordered(b, lowest)).abs()
        signed_zero = (got == 0) & (want == 0) & (a != b)
        return steps.masked_fill(got.isnan() & want.isnan(), 0).masked_fill(signed_zero, 2)

    def ordered(self, bits, lowest):
        return self.torch.where(bits < 0, lowest - bits, bits)

    def run(self, case, dtype, weighted):
        """Results, one a job; a problem that cannot be made ends with one that failed."""
        jobs = self.jobs(case, dtype, weighted)
        while True:
            try:
                job = next(jobs, None)
            except Exception:
                yield Result("the problem", case.name, dtype, weighted, "", False, traceback.format_exc(limit=-4))
                return
            if job is None:
                return
            kernel, form, call, expected, minimum = job
            result = Result(kernel, case.name, dtype, weighted, form, passed=False)
            try:
                got = call()
                faults = [self.fault(g, w, dtype) for g, w in zip(got, expected, strict=True)]
                result.detail = "; ".join(f for f in faults if f)
                result.passed = not result.detail
                result.us = self.median_us(call)
            except Exception:  # of any kind: the report is what we are here for
                result.detail = traceback.format_exc(limit=-4)
            if result.us:
                result.gb_s = minimum / result.us / 1e3
                result.share_of_copy = result.gb_s / self.copy_gb_s if self.copy_gb_s else None
            yield result


def environment():
    """Versions, as far as they are there."""
    found = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.platform()}
    for package in ("torch", "torch_npu", "triton-ascend", "triton", "numpy"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    for variable in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_RT_VISIBLE_DEVICES"):
        found[variable] = os.environ.get(variable)
    return found


def describe(result):
    line = f"{'ok' if result.passed else 'FAIL':4} {result.kernel:28} {result.form:15} {result.dtype:5} "
    line += f"{'weights' if result.weights else '':8} {result.case}"
    if result.us:
        line += f"  {result.us:.1f} us, {result.gb_s:.0f} GB/s"
    if result.share_of_copy:
        line += f", {result.share_of_copy:.2f} of the copy"
    return line if result.passed else f"{line}\n{result.detail}"


def find_device(interpret):
    """("npu" or "cpu", None), or (None, why not)."""
    if interpret:
        os.environ["TRITON_INTERPRET"] = "1"
        return "cpu", None
    try:
        import torch
        import torch_npu  # noqa: F401  gives torch.npu
    except ImportError as error:
        return None, f"torch_npu cannot be imported: {error}"
    return ("npu", None) if torch.npu.is_available() else (None, "torch_npu finds no NPU")


def copied(runner, report):
    """Measure the copy; a failure is a result like any other."""
    try:
        report["device"] = runner.torch.npu.get_device_name()
        report["copy_gb_s"] = runner.measure_copy()
    except Exception:
        yield Result("copy of the device's memory", "", "", False, "", False, traceback.format_exc(limit=-4))


def results(runner, report, cases, small, dtypes):
    """Every result, in order of size."""
    if runner.device == "npu":
        yield from copied(runner, report)
    for case in cases:
        for dtype in dtypes if case in small else ("bf16",):
            for weighted in (False, True):
                yield from runner.run(case, dtype, weighted)


def write(report, path):
    """In one step: what is there before is whole, or the new one is."""
    unfinished = Path(f"{path}.part")
    unfinished.write_text(json.dumps(report, indent=1) + "\n")
    unfinished.replace(path)


def main(arguments=None, small=SMALL, large=LARGE, dtypes=DTYPES):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="npu_report.json", help="where the report goes")
    parser.add_argument("--times", type=int, default=20, help="timed calls of each kernel")
    parser.add_argument("--small-only", action="store_true", help="leave out the models' sizes (they want 4 GiB)")
    parser.add_argument("--interpret", action="store_true", help="no NPU: run this program's logic on the CPU")
    chosen = parser.parse_args(arguments)
    device, reason = find_device(chosen.interpret)
    if device is None:
        print(f"no device: {reason}", file=sys.stderr)
        return 2
    is_real = device == "npu"
    runner = Runner(device, chosen.times if is_real else 0, grid=None if is_real else 7)
    report = {"environment": environment(), "interpreted": not is_real, "device": "cpu"}
    report |= {"complete": False, "results": []}
    cases = small if chosen.small_only or not is_real else small + large
    try:
        for result in results(runner, report, cases, small, dtypes):
            print(describe(result), flush=True)
            report["results"].append(asdict(result))
            write(report, chosen.out)
        report["complete"] = True
    finally:
        write(report, chosen.out)
    failed = sum(not result["passed"] for result in report["results"])
    print(f"{len(report['results'])} calls, {failed} failed; the report is in {chosen.out}: please send it back")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
