"""Validate an image, and measure how long its programs take to start.

    python3 start.py --spec spec.json --out report.json     (--out -: to stdout)

Runs validate.py, which lies beside it, and adds a key to its report:

    "start": {"cold": {"how", "files", "bytes", "resident", "reason"?}, "kernel": {"reason"?},
              "libraries": [{"name", "modules": [...], "reason"?,
                             "warm"?: {"python", "import", "kernel"?, "runs"}, "cold"?: {...}}]}

Times are seconds on the kernel's monotonic clock from just before a new Python process is made: until the interpreter
runs its first line (`python`), until the library's modules are imported (`import`), and until the first kernel on the
GPU has given its result (`kernel`; torch alone). `warm` is the median of `runs` runs after one that is not counted.
`cold` is one run after the page cache has let go of the files that such a run reads (posix_fadvise): directory entries
and inodes stay known to the kernel, and so does what another process has mapped. `resident` is the share of the files'
bytes that stayed, as mincore tells it; where too much stayed, there is no cold run, and `reason` says so. Without a
passed import there is nothing to measure.

Needs Python 3.9 or newer and nothing beyond the standard library.
"""

import argparse
import ctypes
import json
import mmap
import os
import signal
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TIME_LIMIT = 600
RUNS = 3
# Seconds that the counted runs of one library may take together; one run always counts.
ENOUGH = 30
# Share of the files' bytes in memory above which a run is not cold.
MOST_RESIDENT = 0.5
# The measured process: no import but those that it is about, and what every interpreter has loaded anyway.
CHILD = """
import os, sys, time
def tell(what):
    os.write(out, ("%s %d\\n" % (what, time.monotonic_ns())).encode())
out = int(sys.argv[1])
tell("python")
for name in sys.argv[3].split(","):
    __import__(name)
tell("import")
if sys.argv[2] == "kernel":
    import torch
    (torch.ones(1024, device="cuda") + 1).sum().item()
    tell("kernel")
with open("/proc/self/maps") as maps:
    for path in sorted({line.split(None, 5)[5].rstrip("\\n") for line in maps if "/" in line}):
        os.write(out, ("file %s\\n" % path).encode("utf-8", "surrogateescape"))
os._exit(0)
"""


class Failed(Exception):
    """A measured process did not do what it was to do."""


def main():
    parser = argparse.ArgumentParser(prog="start.py", description="validate an image and measure its start")
    parser.add_argument("--spec", required=True, help="JSON file with what the stack promises")
    parser.add_argument("--out", required=True, help="where the JSON report goes; - is stdout")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="start-") as folder:
        written = os.path.join(folder, "report.json")
        code = subprocess.call([sys.executable, "-B", os.path.join(HERE, "validate.py"),
                                "--spec", arguments.spec, "--out", written])
        with open(written, encoding="utf-8") as file:
            report = json.load(file)
        if report["ok"]:
            report["start"] = measure(report, folder)
    text = json.dumps(report, indent=2, allow_nan=False) + "\n"
    if arguments.out == "-":
        sys.stdout.write(text)
    else:
        with open(arguments.out, "w", encoding="utf-8") as file:
            file.write(text)
    return code


def measure(report, folder):
    """The report's key `start`."""
    no_gpu = None if report["device"].get("gpu") else report["device"].get("no_gpu") or "no GPU"
    libraries, used = [], set()
    for name, modules, reason in imported(report):
        library = {"name": name, "modules": modules}
        libraries.append(library)
        if reason is not None:
            library["reason"] = reason
            continue
        print("start: measuring {}".format(name), file=sys.stderr, flush=True)
        kernel = name == "torch" and no_gpu is None
        try:
            used |= set(run(modules, kernel, folder)[1])
            library["warm"] = warm(modules, kernel, folder)
        except Failed as error:
            library["reason"] = str(error)
    measured = [library for library in libraries if "warm" in library]
    cold = let_go(used) if measured else {"reason": "nothing was imported"}
    for library in measured if "reason" not in cold else ():
        evict(used)
        try:
            library["cold"] = dict(run(library["modules"], "kernel" in library["warm"], folder)[0], runs=1)
        except Failed as error:
            library["reason"] = str(error)
    return {"cold": cold, "kernel": {} if no_gpu is None else {"reason": no_gpu}, "libraries": libraries}


def imported(report):
    """(library, modules that were imported, why there are none) of the check of imports."""
    for check in report["checks"]:
        for result in check["results"] if check["name"] == "imports" else ():
            if "modules" not in result or "distribution" not in result:
                continue  # the process that imported all together
            passed = [module["module"] for module in result["modules"] if module["status"] == "passed"]
            yield result["name"], passed, None if passed else result.get("reason", "it has no module to import")


def warm(modules, kernel, folder):
    """The median of some runs."""
    runs = []
    while len(runs) < RUNS and (not runs or sum(times["import"] for times in runs) < ENOUGH):
        runs.append(run(modules, kernel, folder)[0])
    medians = {key: round(statistics.median(times[key] for times in runs), 4) for key in runs[0]}
    return dict(medians, runs=len(runs))


def run(modules, kernel, folder):
    """(seconds by what was reached, files that the process had mapped) of one new process."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch, tempfile.TemporaryFile() as errors:
        read, write = os.pipe()
        command = [sys.executable, "-B", "-c", CHILD, str(write), "kernel" if kernel else "import", ",".join(modules)]
        environment = dict(os.environ, XDG_CACHE_HOME=scratch, TRITON_CACHE_DIR=scratch, TMPDIR=scratch)
        begun = time.monotonic_ns()
        process = subprocess.Popen(command, pass_fds=[write], cwd=scratch, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)
        os.close(write)
        try:
            told = read_all(read, begun)
            code = process.wait(10)
        except subprocess.TimeoutExpired:
            raise Failed("importing {} does not end".format(", ".join(modules))) from None
        finally:
            os.close(read)
            end(process)
        if code != 0:
            errors.seek(0)
            lines = errors.read().decode("utf-8", "replace").split("\n")
            last = [line for line in lines if line.strip()][-1:]
            raise Failed("importing {} again ends with exit code {}: {}".format(
                ", ".join(modules), code, "".join(last)[:300]))
    times, files = {}, []
    for line in told.decode("utf-8", "surrogateescape").splitlines():
        what, _, value = line.partition(" ")
        if what == "file":
            files.append(value)
        else:
            times[what] = round((int(value) - begun) / 1e9, 4)
    return times, files


def read_all(pipe, begun):
    """What the process writes until its end, or until the limit."""
    import select

    told = b""
    while True:
        left = TIME_LIMIT - (time.monotonic_ns() - begun) / 1e9
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            raise subprocess.TimeoutExpired("python", TIME_LIMIT)
        part = os.read(pipe, 1 << 16)
        if not part:
            return told
        told += part


def end(process):
    """End the process and everything it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all have ended
    process.wait()


def let_go(used):
    """How the files leave the page cache, or the reason why they do not."""
    used.update(installed())
    os.sync()  # what has just been written cannot be dropped before
    evict(used)
    size, resident = cached(used)
    told = {"how": "posix_fadvise", "files": len(used), "bytes": size}
    if resident is None:
        return dict(told, reason="this user cannot see whether the files left the page cache")
    share = resident / max(size, 1)
    told["resident"] = round(share, 4)
    if share > MOST_RESIDENT:
        return dict(told, reason="{:.0%} of the files' bytes stayed in the page cache".format(share))
    return told


def installed():
    """Every file of Python's library and of the installed packages."""
    roots = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    for root in sorted(path for path in roots if path):
        for folder, _, names in os.walk(root):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    yield path


def evict(paths):
    """Let the page cache forget the files that can be read."""
    for path in paths:
        try:
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            continue  # removed, or not this user's to read
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError:
            pass  # not a regular file
        finally:
            os.close(file)


def cached(paths):
    """(bytes of the files, bytes of them in the page cache); None for the latter if the kernel does not say."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    total, resident = 0, 0
    for path in paths:
        try:
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            status = os.fstat(file)
            if status.st_size == 0:
                continue
            # To others than a file's owner and writers the kernel says that all is there.
            if status.st_uid != os.geteuid() and not os.access(path, os.W_OK):
                return total, None
            found = pages(libc, file, status.st_size)
            if found is not None:
                total += status.st_size
                resident += min(found * mmap.PAGESIZE, status.st_size)
        finally:
            os.close(file)
    return total, resident


def pages(libc, file, size):
    """The number of a file's pages that are in memory; None if it cannot be mapped."""
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    try:
        vector = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
        if libc.mincore(address, size, vector) != 0:
            return None
        return sum(byte & 1 for byte in vector.raw[: -(-size // mmap.PAGESIZE)])
    finally:
        libc.munmap(address, size)


if __name__ == "__main__":
    sys.exit(main())
