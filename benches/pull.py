"""`stackforge pull` beside what fetches the same blobs: wall time and peak memory of whole processes.

Usage: pull.py PATH_OF_STACKFORGE [ROUNDS]. One docker-registry on loopback serves one image of some
700 MB in six layers, half noise, half text. In each round each program fetches it once, with nothing
kept from before, one after the other; the ratio is the median over the rounds, so that a machine that
others use too does not decide.

- into an OCI layout: beside curl of the same blobs, and `skopeo copy`
- into the stores of `podman pull` and `docker pull`
- into a root file system: beside `docker pull`, which unpacks too
- killed with SIGKILL when 90 % had arrived, and run again: bytes that are fetched again

What is not installed is left out and said to be. The image is made in target/bench, and kept.
"""

import contextlib
import functools
import gzip
import hashlib
import io
import json
import os
import random
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

DIR = os.path.abspath("target/bench/pull")
LAYERS = 6
LAYER = 180 << 20
CONFIG = """version: 0.1
log: {{ level: error }}
storage:
  filesystem: {{ rootdirectory: {store} }}
http:
  addr: {host}
  secret: bench
"""


def content(seed, size):
    """Files of a layer: noise as machine code has it, and text as Python has it."""
    source = random.Random(seed)
    words = [source.randbytes(4).hex() for _ in range(2000)]
    made = 0
    number = 0
    while made < size:
        length = source.choice([4 << 10, 40 << 10, 400 << 10, 8 << 20])
        if number % 2:
            text = " ".join(source.choices(words, k=length // 9)).encode()
        else:
            text = source.randbytes(length)
        yield f"opt/{seed}/{number // 100}/{number}", text
        made += len(text)
        number += 1


def layout(root, layers):
    """An OCI layout of one image, tagged v1, of layers as (diff ID, gzip), the lowest first."""
    blobs = f"{root}/blobs/sha256"
    os.makedirs(blobs, exist_ok=True)

    def put(kind, data):
        digest = hashlib.sha256(data).hexdigest()
        with open(f"{blobs}/{digest}", "wb") as file:
            file.write(data)
        kind = f"application/vnd.oci.image.{kind}"
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    descriptors, ids = [], []
    for diff_id, packed in layers:
        ids.append(diff_id)
        descriptors.append(put("layer.v1.tar+gzip", packed))
    config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": ids}}
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": put("config.v1+json", json.dumps(config).encode()),
        "layers": descriptors,
    }
    entry = put("manifest.v1+json", json.dumps(manifest).encode())
    entry["annotations"] = {"org.opencontainers.image.ref.name": "v1"}
    with open(f"{root}/oci-layout", "w") as file:
        file.write('{"imageLayoutVersion":"1.0.0"}')
    with open(f"{root}/index.json", "w") as file:
        json.dump({"schemaVersion": 2, "manifests": [entry]}, file)


def packed(plain):
    """The diff ID of a layer's tar, and its gzip."""
    return "sha256:" + hashlib.sha256(plain).hexdigest(), gzip.compress(plain, 1, mtime=0)


def noise(seed):
    """The tar of a layer of made-up files."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, data in content(seed, LAYER):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return plain.getvalue()


def image(root):
    if not os.path.exists(f"{root}/index.json"):
        layout(root, (packed(noise(seed)) for seed in range(LAYERS)))


def serve():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = "127.0.0.1:%d" % probe.getsockname()[1]
    config = f"{DIR}/registry.yml"
    with open(config, "w") as file:
        file.write(CONFIG.format(store=f"{DIR}/registry", host=host))
    server = subprocess.Popen(
        ["docker-registry", "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    for _ in range(200):
        try:
            socket.create_connection(host.split(":")).close()
            return server, host
        except OSError:
            time.sleep(0.05)
    sys.exit("docker-registry does not start")


def timed(command, **options):
    """Seconds, and MiB of peak memory of the process and what it started."""
    start = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)
    error = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - start
    if status:
        sys.exit(f"{' '.join(command)}: {error.decode()}")
    return seconds, usage.ru_maxrss / 1024


@contextlib.contextmanager
def storage(work):
    """Podman's storage in `work`. It takes no runroot of more than 50 characters, so that one lies elsewhere."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as runroot:
        yield ["--root", f"{work}/root", "--runroot", runroot]


@functools.cache
def driver():
    """Podman's storage driver: overlay where it runs, else copies of whole layers."""
    with tempfile.TemporaryDirectory(dir=DIR) as work, storage(work) as places:
        info = ["podman", *places, "--storage-driver", "overlay", "info"]
        overlay = subprocess.run(info, capture_output=True).returncode == 0
    return "overlay" if overlay else "vfs"


def main():
    program = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    os.makedirs(DIR, exist_ok=True)
    source = f"{DIR}/image"
    # In a process of its own: what this one holds would count as its children's peak.
    if os.fork() == 0:
        image(source)
        os._exit(0)
    if os.wait()[1]:
        sys.exit("the image could not be made")
    server, host = serve()
    try:
        bench(program, rounds, source, host)
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(f"{DIR}/registry", ignore_errors=True)


def bench(program, rounds, source, host):
    name = f"{host}/bench:v1"
    subprocess.run(
        [program, "--quiet", "--store", f"{DIR}/store", "push", f"oci:{source}:v1", name],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    shutil.rmtree(f"{DIR}/store", ignore_errors=True)
    with open(f"{source}/index.json") as file:
        digest = json.load(file)["manifests"][0]["digest"].split(":")[1]
    with open(f"{source}/blobs/sha256/{digest}") as file:
        manifest = json.load(file)
    blobs = [manifest["config"], *manifest["layers"]]
    size = sum(blob["size"] for blob in blobs)
    print(f"{size / 1e6:.0f} MB in {len(blobs) - 1} layers, {rounds} rounds")

    def stackforge(work, *output):
        pull = [program, "--quiet", "--store", f"{work}/store", "pull", name]
        return timed([*pull, "--platform", "linux/amd64", *output])

    def curl(work):
        arguments = ["--parallel", "--silent", "--fail"]
        for blob in blobs:
            address = f"http://{host}/v2/bench/blobs/{blob['digest']}"
            arguments += ["-o", f"{work}/{blob['digest'][7:]}", address]
        return timed(["curl", *arguments])

    def skopeo(work):
        target = f"oci:{work}/out:v1"
        flags = ["--insecure-policy", "--override-arch", "amd64"]
        return timed(
            ["skopeo", *flags, "copy", "--src-tls-verify=false", f"docker://{name}", target]
        )

    def podman(work):
        with storage(work) as root:
            root += ["--storage-driver", driver()]
            try:
                return timed(["podman", *root, "pull", "--quiet", "--tls-verify=false", name])
            finally:
                subprocess.run(["podman", *root, "rmi", "-f", name], capture_output=True)

    def docker(_):
        try:
            # Its memory is the daemon's.
            return timed(["docker", "pull", "--quiet", name])[0], None
        finally:
            subprocess.run(["docker", "rmi", "-f", name], capture_output=True)

    programs = {
        "curl": (curl, shutil.which("curl")),
        "stackforge, oci": (lambda work: stackforge(work, "-o", f"oci:{work}/out"), True),
        "skopeo, oci": (skopeo, shutil.which("skopeo")),
        "podman": (podman, shutil.which("podman")),
        "docker": (
            docker,
            shutil.which("docker")
            and subprocess.run(["docker", "info"], capture_output=True).returncode == 0,
        ),
        "stackforge, rootfs": (lambda work: stackforge(work, "-o", f"rootfs:{work}/out"), True),
    }
    for missing in [label for label, (_, there) in programs.items() if not there]:
        print(f"{missing}: not here")
        programs.pop(missing)
    seen = {label: [] for label in programs}
    for _ in range(rounds):
        for label, (run, _) in programs.items():
            with tempfile.TemporaryDirectory(dir=DIR) as work:
                seen[label].append(run(work))
            os.sync()
    median = statistics.median
    print(f"\n{'':20} {'seconds':>8} {'peak MiB':>9}   times curl   times docker")
    for label, runs in seen.items():
        memory = "-" if runs[0][1] is None else f"{max(m for _, m in runs):.0f}"
        row = f"{label:20} {median(s for s, _ in runs):8.2f} {memory:>9}"
        for other in ("curl", "docker"):
            if other in seen:
                ratio = median(a / b for (a, _), (b, _) in zip(runs, seen[other]))
                row += f"   {ratio:10.2f}"
        print(row)
    killed(program, name, size)


def killed(program, name, size):
    with tempfile.TemporaryDirectory(dir=DIR) as work:
        store = f"{work}/store"
        pull = [program, "--store", store, "pull", name, "--platform", "linux/amd64"]

        def arrived():
            total = 0
            for folder in ("parts", "blobs/sha256"):
                try:
                    total += sum(entry.stat().st_size for entry in os.scandir(f"{store}/{folder}"))
                except FileNotFoundError:
                    # Not made yet, or renamed under our eyes.
                    return 0
            return total

        # Slowed down, so that it is not over before it is seen to be near its end.
        slow = [*pull, "--quiet", "--limit-rate", "200MB"]
        child = subprocess.Popen(slow, stdout=subprocess.DEVNULL)
        while arrived() < size * 9 // 10:
            if child.poll() is not None:
                sys.exit("it ended before it was killed")
            time.sleep(0.002)
        child.send_signal(signal.SIGKILL)
        child.wait()
        kept = arrived()
        rest = subprocess.run([*pull, "--json"], capture_output=True, check=True)
        fetched = json.loads(rest.stdout)["bytes"]["fetched"]
        print(
            f"\nkilled at {100 * kept / size:.1f} %, then {fetched / 1e6:.1f} MB fetched:"
            f" {100 * max(0, kept + fetched - size) / size:.2f} % again"
        )


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
