"""How long a new container takes to import a library: stackforge's image beside those of pip and uv.

Usage: start.py PATH_OF_STACKFORGE [ROUNDS] [LIBRARY==VERSION] [OTHER...]. The library is torch==2.13.0 unless one is
named, and the others are all of those below unless some are (`pip`, `uv`, `uv --compile-bytecode`). All
images are made of the same wheels over the same base. In each round `docker run IMAGE python -c "import LIBRARY"` of
stackforge's image, of its pruned one and of another one come one after the other, in turns first; seconds are medians,
ratios medians over the rounds of this one's time divided by the other one's: below 1 it starts sooner.

- pruned: stackforge's image of a stack with `prune: true`, for an H100
- without byte code: stackforge's image of a stack with `bytecode: false`
- pip: `pip install`, which compiles what it installs
- uv --compile-bytecode; uv: `uv pip install` with that option and without

warm: what the container reads is in memory. cold: the page cache is dropped before each run, if this user may.
Sizes are Docker's, unpacked. Needs Docker, curl and pip. At most three of the images are there at once; wheels are
kept in target/bench.
"""

import glob
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

import assemble

DIR = os.path.abspath("target/bench/start")
STACK = """stack: {stack}
base: debian-bookworm
target: {{ platform: linux/amd64, gpu: [h100] }}
python: "3.11"
libraries: {{ {library}: "{version}" }}
jit: false
"""
PIP = assemble.PIP.replace("--no-compile ", "")
OTHERS = {
    "without byte code": None,
    "pip": PIP,
    "uv --compile-bytecode": assemble.UV.replace("pip install", "pip install --compile-bytecode"),
    "uv": assemble.UV,
}
OURS, PRUNED, OTHER = "bench-start", "bench-start-pruned", "bench-start-other"


def native(stackforge, path, tag, *more):
    command = [stackforge, "--quiet", "build", path, "--engine", "native", "--json", "-t", tag]
    command += ["--store", f"{DIR}/store", "-o", "docker", *more]
    return json.loads(assemble.run(command)[1])


def size(image):
    found = assemble.run(["docker", "image", "inspect", "-f", "{{.Size}}", image])[1]
    return int(found) / 1e6


def drop():
    """Whether the page cache could be dropped."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3")
    except OSError:
        return False
    return True


def start(image, code):
    command = ["docker", "run", "--rm", "--network", "none", image, "/opt/venv/bin/python", "-c", code]
    begun = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - begun


def beside(code, rounds):
    """The seconds of each image in each round, by what was in memory."""
    measured = {"warm": [], "cold": []}
    for kind in measured:
        for number in range(rounds):
            taken = {}
            for image in (OURS, PRUNED, OTHER)[:: -1 if number % 2 else 1]:
                if kind == "cold" and not drop():
                    continue
                if kind == "warm":
                    start(image, code)
                taken[image] = start(image, code)
            if taken:
                measured[kind].append(taken)
    return measured


def tell(name, measured):
    for kind, rounds in measured.items():
        if not rounds:
            print(f"{name}, {kind}: left out, the page cache cannot be dropped", flush=True)
            continue
        shown = [f"{statistics.median(taken[OTHER] for taken in rounds):.2f} s"]
        for whose, image in (("this", OURS), ("pruned", PRUNED)):
            seconds = statistics.median(taken[image] for taken in rounds)
            ratio = statistics.median(taken[image] / taken[OTHER] for taken in rounds)
            shown.append(f"{whose} {seconds:.2f} s, ratio {ratio:.2f}")
        print(f"{name}, {kind}: {'; '.join(shown)}", flush=True)


def main():
    stackforge = os.path.abspath(sys.argv[1])
    rounds = int((sys.argv[2:] or ["5"])[0])
    library, version = (sys.argv[3:] or ["torch==2.13.0"])[0].split("==")
    wheels = f"{DIR}/{library}/context/wheels"
    os.makedirs(wheels, exist_ok=True)
    path = f"{DIR}/{library}/stack.yaml"
    for name, more in (("stack", ""), ("pruned", "prune: true\n"), ("less", "bytecode: false\n")):
        with open(f"{DIR}/{library}/{name}.yaml", "w") as file:
            file.write(STACK.format(stack=f"bench-{library}", library=library, version=version) + more)
        if not os.path.exists(f"{DIR}/{library}/{name}.lock"):
            file = f"{DIR}/{library}/{name}.yaml"
            assemble.run([stackforge, "--quiet", "lock", file, "--store", f"{DIR}/store"])
    layout = f"{DIR}/{library}/layout"
    shutil.rmtree(layout, ignore_errors=True)
    built = native(stackforge, path, OURS, "-o", f"oci:{layout}")
    locked = json.loads(assemble.run([stackforge, "sbom", path, "--store", f"{DIR}/store"])[1])
    names = {package.get("packageFileName") for package in locked["packages"]}
    for wheel in glob.glob(f"{DIR}/store/names/*/*.whl"):
        to = f"{wheels}/{os.path.basename(wheel)}"
        if os.path.basename(wheel) in names and not os.path.exists(to):
            os.link(wheel, to)
    if not os.path.exists(f"{wheels}/uv"):
        assemble.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", f"{DIR}/uv", "uv"])
        shutil.copy(f"{DIR}/uv/bin/uv", f"{wheels}/uv")
    code = f"import {library.replace('-', '_')}"
    layers = built["image"]["layers"]
    byte_code = sum(layer["size"] for layer in layers if layer["about"].startswith("byte code"))
    all_layers = sum(layer["size"] for layer in layers)
    print(f"layers: {all_layers / 1e6:.1f} MB, of which byte code {byte_code / 1e6:.1f} MB")
    try:
        assemble.load_base(layout)
        shutil.rmtree(layout)
        assemble.fresh(f"{DIR}/store")
        native(stackforge, f"{DIR}/{library}/pruned.yaml", PRUNED)
        assemble.fresh(f"{DIR}/store")
        print(f"image: {size(OURS):.0f} MB, pruned {size(PRUNED):.0f} MB", flush=True)
        for name in sys.argv[4:] or OTHERS:
            install = OTHERS[name]
            if install is None:
                native(stackforge, f"{DIR}/{library}/less.yaml", OTHER)
                assemble.fresh(f"{DIR}/store")
            else:
                assemble.docker(install, f"{DIR}/{library}/context", OTHER)
            print(f"{name}: {size(OTHER):.0f} MB", flush=True)
            tell(name, beside(code, rounds))
            subprocess.run(["docker", "rmi", "-f", OTHER], capture_output=True)
    finally:
        subprocess.run(["docker", "rmi", "-f", OURS, PRUNED, OTHER, "bench-base"], capture_output=True)


if __name__ == "__main__":
    main()
