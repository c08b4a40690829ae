"""An image from packages that are there already: `stackforge build --engine native` beside Docker.

Usage: assemble.py PATH_OF_STACKFORGE PATH_OF_INFLATE [RUNS]. Runs are paired, one of each after the other; figures are
medians, ratios medians over the pairs. Needs Docker, skopeo, curl and pip; what it fetches is kept in
target/bench.

The stack is torch 2.13.0 on stackforge's own Debian base, 29 wheels, nothing compiled and no OS packages.

- native: an OCI layout, cold: no layer is in the store, only packages. Without the time that the base took,
  which Docker has loaded, and validation and audit, which nothing beside it does; with all in parentheses.
  Its memory is stackforge's own, without the Python that validates
- docker build: pip, or uv, installs the same wheels from a local directory
- docker save, and skopeo copy to a compressed layout, for who wants files as well
- the limit: what is in the wheels inflated once, hashed as files for RECORD, as a tar for the diff ID and
  as a compressed layer for the digest, over how fast all cores together inflate with zlib-rs (benches/inflate.rs) and hash with OpenSSL
"""

import glob
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse
import zipfile

DIR = "target/bench/assemble"
SOCKET = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
STACK = """stack: bench-torch
base: debian-bookworm
target: { platform: linux/amd64, gpu: [h100] }
python: "3.11"
libraries: { torch: "2.13.0" }
jit: false
"""
DOCKERFILE = """FROM bench-base
RUN --mount=type=bind,from=wheels,target=/wheels {install}
"""
PIP = "python3.11 -m venv /opt/venv && /opt/venv/bin/pip install -q --no-cache-dir --no-compile --no-index --no-deps /wheels/*.whl"
UV = "python3.11 -m venv --without-pip /opt/venv && UV_LINK_MODE=copy /wheels/uv pip install -q --no-cache --no-index --no-deps --python /opt/venv/bin/python /wheels/*.whl"


def run(command, **more):
    start = time.monotonic()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    return time.monotonic() - start, done.stdout


def high(pid):
    """MiB that the process had at most until now."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("VmHWM")), 0) / 1024
    except OSError:
        return 0


def peak(command):
    """Wall seconds, MiB of the process without its children, and what it printed."""
    start = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    most, printed = 0, []
    reader = threading.Thread(target=lambda: printed.append(child.stdout.read()))
    reader.start()
    while child.poll() is None:
        most = max(most, high(child.pid))
        time.sleep(0.002)
    seconds = time.monotonic() - start
    reader.join()
    if child.returncode:
        sys.exit(f"{command} failed")
    return seconds, most, printed[0]


def fresh(store):
    """Leaves packages and what names them, nothing that was made of them."""
    for folder in ("actions", "unpacked", "last"):
        shutil.rmtree(os.path.join(store, folder), ignore_errors=True)
    named = {os.path.basename(os.path.dirname(p)) for p in glob.glob(f"{store}/names/*/*")}
    for blob in glob.glob(f"{store}/blobs/sha256/*"):
        if os.path.basename(blob) not in named:
            os.unlink(blob)


def native(stackforge, store):
    fresh(store)
    shutil.rmtree(f"{DIR}/layout", ignore_errors=True)
    command = [stackforge, "build", f"{DIR}/stack.yaml", "--engine", "native", "--json", "--store", store]
    seconds, memory, out = peak([*command, "-o", f"oci:{DIR}/layout"])
    built = json.loads(out)
    beside = ("base", "validate", "audit")
    extra = sum(s["seconds"] for s in built["steps"] if s["id"] in beside)
    return seconds - extra, seconds, memory, built


def engine(method, ask):
    command = ["curl", "-sS", "--unix-socket", SOCKET, "-X", method]
    return json.loads(run([*command, "http://docker/v1.41/" + ask])[1])


def kept():
    """What BuildKit keeps of builds, by id."""
    return {entry["ID"] for entry in engine("GET", "system/df").get("BuildCache") or []}


def forget(before):
    """Makes room again: each build leaves some 10 GB."""
    for entry in kept() - before:
        filters = urllib.parse.quote(json.dumps({"id": [entry]}))
        engine("POST", f"build/prune?all=1&filters={filters}")


def docker(install, context, tag="bench-torch"):
    """Builds an image of the wheels in the context's folder `wheels`; returns the seconds."""
    os.makedirs(context, exist_ok=True)
    with open(f"{context}/Dockerfile", "w") as file:
        file.write(DOCKERFILE.format(install=install))
    subprocess.run(["docker", "rmi", "-f", tag], capture_output=True)
    wheels = "FROM scratch AS wheels\nCOPY wheels /\n"
    with open(f"{context}/Dockerfile", "r+") as file:
        text = file.read()
        file.seek(0)
        file.write(wheels + text)
    before = kept()
    # What `docker build` asks of the engine, which needs no buildx.
    ask = f"http://docker/v1.41/build?version=2&t={tag}&nocache=1"
    seconds, said = run(["sh", "-c", f"tar -C {context} -cf - . | curl -sS -T - -X POST "
                         f"-H 'Content-Type: application/x-tar' --unix-socket {SOCKET} '{ask}'"])
    if b"Successfully tagged" not in said:
        sys.exit(f"the engine's build failed: {said[-2000:].decode()}")
    forget(before)
    return seconds


def load_base(layout):
    """Loads the lowest layer of a layout's image into Docker, as bench-base."""
    with open(f"{layout}/index.json") as file:
        manifest = json.load(file)["manifests"][0]["digest"].split(":")[1]
    with open(f"{layout}/blobs/sha256/{manifest}") as file:
        base = json.load(file)["layers"][0]["digest"].split(":")[1]
    with open(f"{layout}/blobs/sha256/{base}", "rb") as file:
        run(["docker", "import", "-", "bench-base"], stdin=file)


def prepare(stackforge):
    """The store of packages, its wheels as a context of Docker's, and the base in Docker. Returns the store."""
    os.makedirs(f"{DIR}/context/wheels", exist_ok=True)
    with open(f"{DIR}/stack.yaml", "w") as file:
        file.write(STACK)
    store = os.path.abspath(f"{DIR}/store")
    if not os.path.exists(f"{DIR}/stack.lock"):
        run([stackforge, "lock", f"{DIR}/stack.yaml", "--store", store])
    native(stackforge, store)
    for wheel in glob.glob(f"{store}/names/*/*.whl"):
        to = f"{DIR}/context/wheels/{os.path.basename(wheel)}"
        if not os.path.exists(to):
            os.link(wheel, to)
    load_base(f"{DIR}/layout")
    return store


def together(command, size):
    """Bytes each second, of one such process for each core at once."""
    start = time.monotonic()
    children = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(os.cpu_count())]
    if any(child.wait() for child in children):
        sys.exit(f"{command} failed")
    return size * len(children) / (time.monotonic() - start)


def limit(inflate, wheels, built):
    """Seconds, were inflating and hashing all there is to do."""
    inflated = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            deflated = (m for m in archive.infolist() if m.compress_type == zipfile.ZIP_DEFLATED)
            inflated[wheel] = sum(m.file_size for m in deflated)
    largest = max(inflated, key=inflated.get)
    layers = built["image"]["layers"]
    hashed = sum(layer["size"] + 2 * layer["plain_size"] for layer in layers[1:])
    inflating = together([inflate, largest], inflated[largest])
    hashing = together(["openssl", "dgst", "-sha256", largest], os.path.getsize(largest))
    return sum(inflated.values()) / inflating + hashed / hashing


def main():
    stackforge, inflate, runs = *sys.argv[1:3], int((sys.argv[3:] or ["3"])[0])
    store = prepare(stackforge)
    if not os.path.exists(f"{DIR}/context/wheels/uv"):
        run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", f"{DIR}/uv", "uv"])
        shutil.copy(f"{DIR}/uv/bin/uv", f"{DIR}/context/wheels/uv")
    rows = []
    try:
        for _ in range(runs):
            row = {}
            row["native"], row["whole"], row["memory"], built = native(stackforge, store)
            row["noop"] = peak([stackforge, "build", f"{DIR}/stack.yaml", "--engine", "native", "--json",
                                "--store", store, "-o", f"oci:{DIR}/layout"])
            row["limit"] = limit(inflate, glob.glob(f"{DIR}/context/wheels/*.whl"), built)
            row["pip"] = docker(PIP, f"{DIR}/context")
            row["save"] = run(["docker", "save", "-o", f"{DIR}/saved.tar", "bench-torch"])[0]
            shutil.rmtree(f"{DIR}/copied", ignore_errors=True)
            source = f"docker-archive:{DIR}/saved.tar"
            row["copy"] = run(["skopeo", "copy", "-q", source, f"oci:{DIR}/copied:x"])[0]
            row["uv"] = docker(UV, f"{DIR}/context")
            rows.append(row)
            print(json.dumps({k: v if isinstance(v, float) else None for k, v in row.items()}), flush=True)
    finally:
        subprocess.run(["docker", "rmi", "-f", "bench-torch", "bench-base"], capture_output=True)
    median = lambda f: statistics.median(map(f, rows))
    size = sum(layer["size"] for layer in built["image"]["layers"]) / 1e6
    print(f"native: {median(lambda r: r['native']):.1f} s "
          f"({median(lambda r: r['whole']):.1f} s with base, validation and audit), "
          f"{median(lambda r: r['memory']):.0f} MiB, {size:.0f} MB of layers")
    print(f"nothing to do: {median(lambda r: r['noop'][0]) * 1e3:.0f} ms, {median(lambda r: r['noop'][1]):.0f} MiB")
    share = median(lambda r: r["limit"] / r["native"])
    print(f"the limit: {median(lambda r: r['limit']):.1f} s, of which this is {share:.0%}")
    for name, parts in (("docker build with pip, docker save", ("pip", "save")),
                        ("the same, skopeo copy", ("pip", "save", "copy")),
                        ("docker build with uv", ("uv",))):
        seconds = median(lambda r: sum(r[p] for p in parts))
        ratio = median(lambda r: sum(r[p] for p in parts) / r["native"])
        print(f"{name}: {seconds:.1f} s, {ratio:.1f}×")


if __name__ == "__main__":
    main()
