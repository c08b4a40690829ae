"""`stackforge audit` beside what reads the same bytes: wall time and peak memory of whole processes.

Usage: audit.py PATH_OF_STACKFORGE PATH_OF_INFLATE. Runs are paired, one of each after the other,
and the ratio is the median over the pairs, so that a machine that others use too does not decide.

- `libtorch_cuda.so` of torch 2.15.0, beside `cuobjdump --list-elf` of CUDA 13.5
- the environment of stacks/hopper-cuda13.lock, beside sha256 of the same files, warm: by OpenSSL,
  which uses the processor's own instructions, and by `sha256sum`, which may not
- the wheel of torch 2.15.0, beside inflating all of its members once: by zlib-rs on one core
  (benches/inflate.rs), by zlib (Python's), and by `unzip -tq` where there is one

What is read is fetched with pip into target/bench, some 12 GB, and kept.
"""

import glob
import os
import shutil
import statistics
import subprocess
import sys
import time
import tomllib
import zipfile

DIR = "target/bench"
TORCH = "2.15.0"
CUOBJDUMP = "13.5.37"
LOCK = "stacks/hopper-cuda13.lock"

ZLIB = """
import sys, zipfile, zlib
with open(sys.argv[1], "rb") as file:
    for member in zipfile.ZipFile(file).infolist():
        if member.compress_type != zipfile.ZIP_DEFLATED:
            continue
        file.seek(member.header_offset + 26)
        lens = file.read(4)
        file.seek(int.from_bytes(lens[:2], "little") + int.from_bytes(lens[2:], "little"), 1)
        decoder, left = zlib.decompressobj(-15), member.compress_size
        while left:
            piece = file.read(min(left, 1 << 20))
            left -= len(piece)
            while piece:
                decoder.decompress(piece, 1 << 18)
                piece = decoder.unconsumed_tail
"""


def pip(*arguments):
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--no-deps", "--no-cache-dir"]
    subprocess.run(command, check=True)


def platform():
    """Every wheel for Python 3.12 and a glibc up to 2.39, on any machine."""
    tags = ["manylinux{}_x86_64".format(n) for n in (1, 2010, 2014)]
    tags += ["manylinux_2_{}_x86_64".format(n) for n in range(5, 40)]
    flags = [flag for tag in tags for flag in ("--platform", tag)]
    return ["--only-binary=:all:", "--python-version", "3.12", "--ignore-requires-python", *flags]


def once(path, make):
    """What `make` writes to the path that it is given, kept under another name once it is whole."""
    if not os.path.exists(path):
        shutil.rmtree(path + ".part", ignore_errors=True)
        make(path + ".part")
        os.rename(path + ".part", path)
    return path


def library(wheel):
    def write(to):
        with zipfile.ZipFile(wheel) as archive, open(to, "wb") as out:
            with archive.open("torch/lib/libtorch_cuda.so") as member:
                shutil.copyfileobj(member, out, 1 << 20)
    return write


def environment(to):
    with open(LOCK, "rb") as file:
        wheels = tomllib.load(file)["platform"][0]["wheel"]
    pins = ["{name}=={version}".format(**wheel) for wheel in wheels]
    pip("install", "--no-compile", "--target", to, *platform(), *pins)


def measure(command):
    """Seconds and peak MiB of one run. An audit that finds errors ends with 1."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        sys.exit("{} failed with status {}".format(" ".join(command), status))
    return took, usage.ru_maxrss / 1024


def compare(title, runs, ours, others):
    """`others` are names and commands; prints a row for each."""
    commands = [("stackforge audit", ours), *others]
    took = {name: [] for name, _ in commands}
    peak = dict.fromkeys(took, 0)
    for n in range(runs + 1):
        for name, command in commands:
            seconds, mib = measure(command)
            peak[name] = max(peak[name], mib)
            if n:
                took[name].append(seconds)
    print("\n{}, {} runs".format(title, runs))
    print("{:34} {:>9} {:>9} {:>9} {:>9} {:>8}".format(
        "", "min ms", "median", "max", "peak MiB", "ratio"))
    for name, seconds in took.items():
        ms = [1000 * s for s in seconds]
        pairs = [other / own for other, own in zip(seconds, took["stackforge audit"])]
        print("{:34} {:9.1f} {:9.1f} {:9.1f} {:9.1f} {:8.2f}".format(
            name, min(ms), statistics.median(ms), max(ms), peak[name], statistics.median(pairs)))


def main():
    stackforge, inflate = sys.argv[1:]
    os.makedirs(DIR, exist_ok=True)
    folder = once(DIR + "/torch-" + TORCH, lambda to: pip(
        "download", "--dest", to, *platform(), "torch==" + TORCH))
    wheel = glob.glob(folder + "/*.whl")[0]
    torch = once(DIR + "/libtorch_cuda.so", library(wheel))
    tools = once(DIR + "/cuobjdump-" + CUOBJDUMP, lambda to: pip(
        "install", "--target", to, "nvidia-cuda-cuobjdump==" + CUOBJDUMP))
    cuobjdump = glob.glob(tools + "/**/bin/cuobjdump", recursive=True)[0]
    env = once(DIR + "/hopper-cuda13", environment)

    size = os.path.getsize(torch)
    compare("libtorch_cuda.so of torch {}, {:.2f} GB".format(TORCH, size / 1e9), 9,
            [stackforge, "audit", torch], [("cuobjdump --list-elf", [cuobjdump, "--list-elf", torch])])

    files = [os.path.join(at, name) for at, _, names in os.walk(env) for name in names]
    files = [path for path in files if not os.path.islink(path)]
    size = sum(os.path.getsize(path) for path in files)
    hashed = "find {} -type f -print0 | xargs -0 {{}}".format(env).format
    compare("an environment, {} files, {:.2f} GB".format(len(files), size / 1e9), 5,
            [stackforge, "audit", env],
            [(name, ["sh", "-c", hashed(name)]) for name in ("openssl dgst -sha256", "sha256sum")])

    with zipfile.ZipFile(wheel) as archive:
        size = sum(member.file_size for member in archive.infolist())
    others = [("inflated by zlib-rs, 1 core", [inflate, wheel])]
    others.append(("inflated by zlib, 1 core", [sys.executable, "-c", ZLIB, wheel]))
    if shutil.which("unzip"):
        others.append(("unzip -tq", ["unzip", "-tq", wheel]))
    compare("the wheel of torch {}, inflated {:.2f} GB".format(TORCH, size / 1e9), 5,
            [stackforge, "audit", wheel], others)


if __name__ == "__main__":
    main()
