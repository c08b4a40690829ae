"""`stackforge diagnose` of a 100 MB and of a 1 MB log: wall time and peak memory.

Usage: diagnose.py PATH_OF_STACKFORGE. The log is that of a compile: nvcc's command lines,
warnings, colours and progress bars, with the failure in its middle. Prints the minimum and the
median of 10 runs after a warm-up, beside `grep -c -E` with eight of the patterns on the same
file, and `cat` of it as the floor.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

RUNS = 10
MEGABYTE = 1000 * 1000
PATTERNS = "|".join([
    "Killed signal terminated program", "cannot open shared object file", "undefined symbol: ",
    "no kernel image is available", "No space left on device", "undefined reference to ",
    "Unsupported gpu architecture", "ModuleNotFoundError: No module named",
])
FAILURE = "c++: fatal error: Killed signal terminated program cc1plus\n"


def filler(n):
    return (
        "[{0}/402] /usr/local/cuda/bin/nvcc -DTORCH_EXTENSION_NAME=_C -I/opt/venv/lib/python3.12"
        "/site-packages/torch/include -gencode arch=compute_90,code=sm_90 -c csrc/k{0}.cu\n"
        "\x1b[01mcsrc/k{0}.cu:{0}:7:\x1b[m \x1b[35mwarning: \x1b[munused variable 'x' [-Wunused]\n"
        "Downloading {0} kB\rDownloading {0} kB done\r\n"
        "ptxas info    : Used {0} registers, 352 bytes cmem[0]\n"
    ).format(n)


def write(path, size):
    with open(path, "w", newline="") as log:
        for half in (0, 1):
            written = 0
            while written < size // 2:
                written += log.write(filler(written % 997))
            if half == 0:
                log.write(FAILURE)


def measure(command, status):
    """(seconds of each run, peak MiB over all runs)."""
    seconds, peak = [], 0
    for n in range(RUNS + 1):
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, ended, usage = os.wait4(process.pid, 0)
        took = time.perf_counter() - start
        if ended != status:
            sys.exit("{} ended with {}".format(" ".join(command), ended))
        if n:
            seconds.append(took)
            peak = max(peak, usage.ru_maxrss / 1024)
    return seconds, peak


def main():
    stackforge = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        small, large = os.path.join(folder, "1.log"), os.path.join(folder, "100.log")
        write(small, MEGABYTE)
        write(large, 100 * MEGABYTE)
        rows = [
            ("cat, 100 MB", ["cat", large]),
            ("grep -c -E with 8 of the patterns, 100 MB", ["grep", "-c", "-E", PATTERNS, large]),
            ("stackforge diagnose, 1 MB", [stackforge, "diagnose", small]),
            ("stackforge diagnose, 100 MB", [stackforge, "diagnose", large]),
        ]
        print("{:44} {:>8} {:>8} {:>9}".format("", "min ms", "median", "peak MiB"))
        for name, command in rows:
            seconds, peak = measure(command, 0)
            ms = [1000 * s for s in seconds]
            print("{:44} {:8.1f} {:8.1f} {:9.1f}".format(
                name, min(ms), statistics.median(ms), peak))


if __name__ == "__main__":
    main()
