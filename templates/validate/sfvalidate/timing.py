"""Median times of a function, after warm-up: CUDA events on a GPU, a monotonic clock elsewhere.

On a processor one thread computes: an image is often validated while other stages compile, and a
team of threads waits for the one that got no core (measured on two busy cores: 0.7 ms became 110).
"""

import statistics
import time

WARM_UP = 3
FEWEST, MOST = 10, 200
# A GPU's clocks take tens of milliseconds of work to settle.
WARM_UP_MS, BUDGET_MS = 100.0, 400.0


def one_thread(torch, gpu):
    """Call before anything that will be timed."""
    if not gpu:
        torch.set_num_threads(1)


def median_ms(torch, function, gpu):
    """{"median_ms", "repeats"}: as many repeats as fit the budget, within bounds."""
    once = on_gpu if gpu else on_processor
    for _ in range(WARM_UP):
        function()
    estimate = max(once(torch, function, 1)[0], 1e-3)
    for _ in range(int(min(MOST, WARM_UP_MS / estimate))):
        function()
    repeats = int(min(MOST, max(FEWEST, BUDGET_MS / estimate)))
    return {"median_ms": round(statistics.median(once(torch, function, repeats)), 4), "repeats": repeats}


def on_gpu(torch, function, repeats):
    """Every repeat between its own two events; the clock of the host is not involved."""
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    torch.cuda.synchronize()
    for start, stop in pairs:
        start.record()
        function()
        stop.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(stop) for start, stop in pairs]


def on_processor(torch, function, repeats):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append((time.perf_counter() - start) * 1000)
    return times
