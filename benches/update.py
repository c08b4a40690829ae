"""From vLLM 0.32.0 to 0.33.0 on a device: what `stackforge pull` fetches beside `docker pull`.

Usage: update.py PATH_OF_STACKFORGE [ROUNDS]. Fetches some 6 GB of wheels, kept in target/bench/update, and
needs 45 GB of disk, docker-registry and Docker. One registry on loopback serves both stacks twice:

- as `stackforge build --engine native --push` makes them, with `prune: true`: for the GPU of the stack
- the ordinary way: one `pip install` of the same wheels in a container of the same base, committed and
  pushed by Docker

The device has 0.32.0 and asks for 0.33.0. PRUNE=false in the environment leaves pruning out. The two pin different releases of torch, and those different
cuDNN, NCCL and Triton. Bytes are those that went over loopback. The wheels that changed are listed: they
are what limits the ratio.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib

import pull as cold

DIR = os.path.abspath("target/bench/update")
OLD, NEW = "0.32.0", "0.33.0"
VERSIONS = [OLD, NEW]
PRUNE = os.environ.get("PRUNE", "true")
# vLLM 0.33.0 asks for a certifi that the index does not have.
STACK = """\
stack: update
base: debian-bookworm
target: {{ platform: linux/amd64, gpu: [h100] }}
python: "3.11"
libraries: {{ vllm: "{version}", torch: auto }}
overrides: [certifi>=2026.1, cuda-python>=13]
prune: {prune}
"""
INSTALL = (
    "python3 -m venv /opt/venv && /opt/venv/bin/pip install --quiet --no-cache-dir --no-index"
    " --no-deps --no-compile -r /wheels/all.txt"
)


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    if done.returncode:
        said = done.stderr[-2000:].decode(errors="replace")
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {said}")
    return done.stdout


def quiet(*command):
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def manifest(host, name, version):
    kind = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
    address = f"http://{host}/v2/{name}/manifests/{version}"
    return json.loads(run("curl", "-sSf", "-H", f"Accept: {kind}", address))


def ours(program, host):
    """Builds and pushes both; the layer of their base."""
    for version in VERSIONS:
        stack = f"{DIR}/v{version}.yaml"
        with open(stack, "w") as file:
            file.write(STACK.format(version=version, prune=PRUNE))
        base = [program, "--quiet", "--store", f"{DIR}/store"]
        run(*base, "lock", stack)
        run(*base, "build", stack, "--engine", "native", "--push", f"{host}/ours:{version}")
        # Of the validation: it is not needed any more, and large.
        shutil.rmtree(f"{DIR}/store/unpacked", ignore_errors=True)
    return manifest(host, "ours", OLD)["layers"][0]["digest"].split(":")[1]


def wheels(version):
    """The wheels of a lock under their names, for pip in a container."""
    folder = f"{DIR}/wheels-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    all = locked(version).values()
    for wheel in all:
        os.link(f"{DIR}/store/blobs/sha256/{wheel['sha256']}", f"{folder}/{wheel['file']}")
    with open(f"{folder}/all.txt", "w") as file:
        file.writelines(f"/wheels/{wheel['file']}\n" for wheel in all)
    return folder


def ordinary(host, base):
    run("docker", "import", f"{DIR}/store/blobs/sha256/{base}", "bench-update-base")
    try:
        commit(host)
    finally:
        quiet("docker", "rmi", "-f", "bench-update-base")


def commit(host):
    """Images of both versions, pushed."""
    for version in VERSIONS:
        image, folder = f"{host}/ordinary:{version}", wheels(version)
        quiet("docker", "rm", "-f", "bench-update")
        mounted = ["--volume", f"{folder}:/wheels:ro"]
        try:
            run("docker", "run", "--name", "bench-update", *mounted, "bench-update-base", "sh", "-c", INSTALL)
            run("docker", "commit", "bench-update", image)
            run("docker", "push", "--quiet", image)
        finally:
            quiet("docker", "rm", "-f", "bench-update")
            quiet("docker", "rmi", "-f", image)
            shutil.rmtree(folder)


def loopback():
    with open("/proc/net/dev") as file:
        line = next(line for line in file if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


def measured(*command):
    """Seconds and bytes over loopback."""
    start, before = time.monotonic(), loopback()
    out = run(*command)
    return time.monotonic() - start, loopback() - before, out


def docker(host):
    images = [f"{host}/ordinary:{version}" for version in VERSIONS]
    try:
        run("docker", "pull", "--quiet", images[0])
        os.sync()
        return measured("docker", "pull", "--quiet", images[1])
    finally:
        quiet("docker", "rmi", "-f", *images)


def stackforge(program, host, *output):
    with tempfile.TemporaryDirectory(dir=DIR) as work:
        base = [program, "--store", f"{work}/store", "--json", "pull", "--platform", "linux/amd64", "--gpu", "h100"]
        output = [part.format(work=work) for part in output]
        run(*base, f"{host}/ours:{OLD}", *output)
        os.sync()
        return measured(*base, f"{host}/ours:{NEW}", *output)


def locked(version):
    with open(f"{DIR}/v{version}.lock", "rb") as file:
        wheels = tomllib.load(file)["platform"][0]["wheel"]
    return {wheel["name"]: wheel for wheel in wheels}


def limits():
    """Wheels of the new lock that the old one does not have: of these most has to come."""
    old, new = locked(OLD), locked(NEW)
    size = sum(wheel["size"] for wheel in new.values())
    changed = [w for n, w in new.items() if old.get(n, {}).get("sha256") != w["sha256"]]
    total = sum(wheel["size"] for wheel in changed)
    print(f"\n{len(changed)} of {len(new)} wheels changed, {total / 1e6:.0f} of {size / 1e6:.0f} MB:")
    for wheel in sorted(changed, key=lambda wheel: -wheel["size"])[:6]:
        before = old.get(wheel["name"], {}).get("version", "-")
        print(f"  {wheel['size'] / 1e6:8.1f} MB  {wheel['name']} {before} -> {wheel['version']}")


def main():
    program = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    os.makedirs(DIR, exist_ok=True)
    cold.DIR = DIR
    server, host = cold.serve()
    try:
        ordinary(host, ours(program, host))
        ways = {
            "docker pull": lambda: docker(host),
            "stackforge, oci": lambda: stackforge(program, host, "-o", "oci:{work}/out"),
            "stackforge, rootfs": lambda: stackforge(program, host, "-o", "rootfs:{work}/out"),
        }
        seen = {label: [] for label in ways}
        for _ in range(rounds):
            for label, way in ways.items():
                seen[label].append(way()[:2])
                os.sync()
        print(f"{'':20} {'seconds':>8} {'MB':>9}   times fewer bytes   times as fast")
        peer = seen["docker pull"]
        median = statistics.median
        for label, all in seen.items():
            fewer = median(b[1] / a[1] for a, b in zip(all, peer))
            faster = median(b[0] / a[0] for a, b in zip(all, peer))
            seconds, size = (median(way[n] for way in all) for n in (0, 1))
            print(f"{label:20} {seconds:8.1f} {size / 1e6:9.1f}   {fewer:17.2f}   {faster:13.2f}")
        limits()
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(f"{DIR}/registry", ignore_errors=True)


if __name__ == "__main__":
    main()
