"""How many compiler runs the variants of a matrix take with a shared cache of objects: simulated on a library of its
own, of three CUDA and two C++ sources, in 80 variants: two CUDAs, eight SMs, five instruction sets.

Usage: matrix.py PATH_OF_STACKFORGE [VARIANTS]. Variants, their flags and their order are those of `stackforge matrix
--json`; compiled is with nvcc and sccache as the nvcc filter calls them, outside of images, on one machine. Fetches
some 400 MB, kept in target/bench/matrix. Printed are the runs of compilers and of the steps of device code beside what
the theory says: host code once for each instruction set, device code once for each CUDA and SM.
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import time

DIR = os.path.abspath("target/bench/matrix")
SCCACHE = "0.16.0"
# Packages of each CUDA's compiler and headers.
CUDA = {
    "13.0": ["nvidia-cuda-nvcc==13.0.88", "nvidia-cuda-crt==13.0.88", "nvidia-nvvm==13.0.88",
             "nvidia-cuda-runtime==13.0.96", "nvidia-cuda-cccl==13.0.85"],
    "13.2": ["nvidia-cuda-nvcc==13.2.86", "nvidia-cuda-crt==13.2.86", "nvidia-nvvm==13.2.86",
             "nvidia-cuda-runtime==13.2.86", "nvidia-cuda-cccl==13.2.86"],
}
SMS = ["7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0"]
ISAS = ["avx", "avx2", "avx512", "avx512bf16", "avx512vnni"]
STACK = """stack: kernels
base: cuda-{{{{cuda}}}}-ubuntu24.04
python: "3.12"
target: {{ platform: linux/amd64 }}
libraries: {{ kernels: {{ version: "1.0", from: source }} }}
matrix: {{ cuda: ["13.0", "13.2"], sm: [{sms}], isa: [{isas}] }}
"""
RECIPE = """schema: 1
library: kernels
distribution: kernels
about: three kernels
imports: [kernels]
wheels: none
build:
  source: sdist
  toolkit: [nvcc, cudart]
  arch: [{ variable: KERNELS_ARCHS, format: digits }]
  jobs: { variable: MAX_JOBS, memory_gb: 1, source: bench }
  metadata: { "*": { requires_python: ">=3.9", requires_dist: [] } }
sources: [bench]
"""
KERNEL = """#include <cuda_runtime.h>
template <typename T, int N> __global__ void kernel{n}(T *a, const T *b) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < N; k++) a[i] = a[i] * b[i] + T({n});
}}
template __global__ void kernel{n}<float, 4>(float *, const float *);
template __global__ void kernel{n}<double, 8>(double *, const double *);
"""
HOST = """#include <vector>
float host{n}(const std::vector<float> &a) {{ float sum = {n}; for (float x : a) sum += x * x; return sum; }}
"""


def written(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def installed(name, *packages):
    to = os.path.join(DIR, name)
    if not os.path.exists(to):
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run(pip + ["--target", to, *packages], check=True)
    return to


def variants(program):
    written(DIR + "/s.yaml", STACK.format(sms=", ".join('"%s"' % sm for sm in SMS), isas=", ".join(ISAS)))
    written(DIR + "/.stackforge/libraries/kernels.yaml", RECIPE)
    done = subprocess.run([program, "matrix", DIR + "/s.yaml", "--json"], stdout=subprocess.PIPE, text=True)
    document = json.loads(done.stdout)
    if done.returncode:
        sys.exit(done.stdout)
    named = {variant["name"]: variant for variant in document["variants"]}
    return [named[name] for name in document["order"]], document["filling"]


class Compiler:
    def __init__(self, cache):
        self.sccache = cache and os.path.join(installed("sccache", "sccache==" + SCCACHE), "bin/sccache")
        self.environment = dict(os.environ, SCCACHE_DIR=DIR + "/objects", SCCACHE_SERVER_UDS=DIR + "/sccache.sock",
                                SCCACHE_DIRECT="false")
        self.nvcc = {}
        for cuda, packages in CUDA.items():
            root = installed("cuda-" + cuda, *packages) + "/nvidia/"
            [nvcc] = glob.glob(root + "*/bin/nvcc")
            for program in glob.glob(root + "*/bin/*") + glob.glob(root + "*/nvvm/bin/*"):
                os.chmod(program, 0o755)
            self.nvcc[cuda] = nvcc, os.path.dirname(glob.glob(root + "*/include/cuda_runtime.h")[0])

    def start(self):
        shutil.rmtree(DIR + "/objects", ignore_errors=True)
        self.call("--start-server")

    def call(self, *arguments):
        return subprocess.run([self.sccache, *arguments], env=self.environment, check=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL).stdout

    def compile(self, variant):
        before = [self.sccache] if self.sccache else []
        nvcc, headers = self.nvcc[variant["cuda"]]
        [sm] = variant["sm"]
        code = "arch=compute_%s,code=sm_%s" % (sm, sm)
        runs = [before + [nvcc, "-O2", "-gencode", code, "-I", headers, "-c", "k%d.cu" % n, "-o", "k%d.o" % n]
                for n in (1, 2, 3)]
        runs += [before + ["g++", "-O2", *variant["isa_flags"], "-c", "h%d.cc" % n, "-o", "h%d.o" % n] for n in (1, 2)]
        start = time.monotonic()
        for run in runs:
            subprocess.run(run, cwd=DIR + "/src", env=self.environment, check=True)
        return time.monotonic() - start

    def misses(self):
        """Objects and device steps that were compiled, so far."""
        stats = json.loads(self.call("--show-stats", "--stats-format", "json"))["stats"]
        counts = stats["cache_misses"]["counts"]
        device = sum(count for name, count in counts.items() if name in ("PTX", "CUBIN", "CUDA (Device code)"))
        return sum(counts.values()) - device, device


def main():
    program = os.path.abspath(sys.argv[1])
    for n in (1, 2, 3):
        written(DIR + "/src/k%d.cu" % n, KERNEL.format(n=n))
    for n in (1, 2):
        written(DIR + "/src/h%d.cc" % n, HOST.format(n=n))
    order, filling = variants(program)
    order = order[:int(sys.argv[2])] if len(sys.argv) > 2 else order
    alone = Compiler(cache=False)
    without = [alone.compile(variant) for variant in order[:3]]
    compiler = Compiler(cache=True)
    compiler.start()
    try:
        took, filled = [], (0, 0)
        for number, variant in enumerate(order):
            took.append(compiler.compile(variant))
            if number + 1 == filling:
                filled = compiler.misses()
        objects, device = compiler.misses()
    finally:
        compiler.call("--stop-server")
    families = {(v["cuda"], v["sm"][0]) for v in order}
    isas = {v["isa"] for v in order}
    print("%d variants on %d processors, %d of them first" % (len(order), os.cpu_count(), filling))
    print("objects compiled without a cache  %5d" % (5 * len(order)))
    print("with it                           %5d, of them %d by the first; device steps %d, %d" % (objects, filled[0], device, filled[1]))
    print("theory                            %5d: 2 sources for %d instruction sets, 3 for %d pairs of CUDA and SM" % (
        2 * len(isas) + 3 * len(families), len(isas), len(families)))
    print("seconds of a variant: %.1f without a cache, %.1f of the first, %.1f of the others" % (
        sum(without) / len(without), sum(took[:filling]) / max(1, len(took[:filling])),
        sum(took[filling:]) / max(1, len(took[filling:]))))


main()
