"""`stackforge check`, `matrix` and `plan` of stock stacks: wall time and peak memory of whole processes.

Usage: plan.py PATH_OF_STACKFORGE. Prints minimum, median and maximum of 20 runs after a
warm-up, beside `python3 -c pass` measured in the same run, and for `plan` of thor-cuda13 beside
762-871 ms, which jetson-containers took to plan vLLM for Thor on a 2-core machine
(November 2026).
"""

import os
import statistics
import subprocess
import sys
import time

RUNS = 20


def measure(command):
    """(seconds of each run, peak MiB over all runs)."""
    seconds, peak = [], 0
    for n in range(RUNS + 1):
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        took = time.perf_counter() - start
        if status != 0:
            sys.exit("{} failed with status {}".format(" ".join(command), status))
        if n:
            seconds.append(took)
            peak = max(peak, usage.ru_maxrss / 1024)
    return seconds, peak


def main():
    stackforge = sys.argv[1]
    rows = [("python3 -c pass (a yardstick)", [sys.executable, "-c", "pass"])]
    rows.append(("stackforge --version", [stackforge, "--version"]))
    for stack in sorted(os.listdir("stacks")):
        if stack.endswith(".yaml"):
            for command in ("check", "matrix", "plan"):
                name = "stackforge {} {}".format(command, stack)
                rows.append((name, [stackforge, command, "stacks/" + stack, "--offline"]))
    print("{:48} {:>8} {:>8} {:>8} {:>9}".format("", "min ms", "median", "max", "peak MiB"))
    for name, command in rows:
        seconds, peak = measure(command)
        ms = [1000 * s for s in seconds]
        print("{:48} {:8.1f} {:8.1f} {:8.1f} {:9.1f}".format(
            name, min(ms), statistics.median(ms), max(ms), peak))
        if "plan thor-cuda13" in name:
            median = statistics.median(ms)
            print("{:48} {:8} {:8} {:8}   {:.0f}-{:.0f} times this".format(
                "  jetson-containers, vLLM for Thor", 762, "", 871, 762 / median, 871 / median))


if __name__ == "__main__":
    main()
