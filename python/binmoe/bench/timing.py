"""Clocks. Every way of a table is timed in turn, round by round, so that a disturbance meets all of them."""

import statistics
import time
from typing import NamedTuple

import torch


class Time(NamedTuple):
    """Microseconds a call: the median of the rounds, and their quartiles."""

    us: float
    low: float
    high: float


def summary(samples_us):
    if len(samples_us) < 2:
        return Time(samples_us[0], samples_us[0], samples_us[0])
    low, middle, high = statistics.quantiles(samples_us, n=4, method="inclusive")
    return Time(middle, low, high)


class Clock:
    """prepare(call) once for each way, then measure all of them. `call` takes the number of a buffer set."""

    def __init__(self, rounds):
        self.rounds = rounds

    def measure(self, prepared):
        """{name: what prepare returned} -> {name: Time}.

        Each round begins with another way: on a GPU at its power limit the one that follows the most expensive way
        would else pay for it in every round.
        """
        samples = {name: [] for name in prepared}
        names = list(prepared)
        for number in range(self.rounds):
            first = number % max(len(names), 1)
            for name in names[first:] + names[:first]:
                run, count = prepared[name]
                samples[name].append(self.seconds(run) / count * 1e6)
        return {name: summary(values) for name, values in samples.items()}


class CpuClock(Clock):
    """Wall time of a loop of calls. Decode sizes stay in the cache on every side; large ones do not fit."""

    def __init__(self, rounds, seconds_a_sample=0.02):
        super().__init__(rounds)
        self.seconds_a_sample = seconds_a_sample

    def sets_for(self, bytes_a_set):
        return 1

    def prepare(self, call):
        """(a function that makes `count` calls, count), warmed up."""
        call(0)
        call(0)
        once = self.seconds(lambda: call(0))
        count = max(1, int(self.seconds_a_sample / max(once, 1e-7)))

        def run():
            for _ in range(count):
                call(0)

        return run, count

    def seconds(self, run):
        start = time.perf_counter()
        run()
        return time.perf_counter() - start


class CudaClock(Clock):
    """Time on the device, between two events, over buffer sets that together are larger than the second-level cache.

    graph = True: the calls of all sets are captured in a CUDA graph, so the host has no part in the time. False: they
    are issued one after the other, as a program does; small ones then cost what the host needs to issue them.
    """

    def __init__(self, rounds, graph, calls_a_sample=24):
        super().__init__(rounds)
        self.graph = graph
        self.calls_a_sample = calls_a_sample
        self.sets = 1

    def sets_for(self, bytes_a_set):
        """Enough sets that none is found in the cache when its turn comes again; 64 at most."""
        cache = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self.sets = min(64, max(2, -(-4 * cache // max(bytes_a_set, 1)) + 1))
        return self.sets

    def prepare(self, call):
        """(a function that makes `count` calls, count), warmed up."""
        count = max(self.calls_a_sample, self.sets)

        def issue():
            for index in range(count):
                call(index % self.sets)

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # capture wants a warm-up on a stream of its own
            for index in range(self.sets):
                call(index)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        if not self.graph:
            return issue, count
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            issue()
        captured.replay()
        torch.cuda.synchronize()
        return captured.replay, count

    def seconds(self, run):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3


def copy_speed(clock, device):
    """GB/s, read and written, of torch's copy_: 4 GiB on CUDA (or a quarter of the free memory), 256 MiB on the CPU.

    On the CPU it does not go around the cache: the program `binmoe bench` measures one that does.
    """
    size = 2**28
    if device == "cuda":
        size = min(2**32, torch.cuda.mem_get_info()[0] // 4)
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    clock.sets_for(2 * size)
    elapsed = clock.measure({"copy": clock.prepare(lambda index: target.copy_(source))})["copy"]
    return 2 * size / elapsed.us * 1e-3
