"""An update of a root file system between two images that differ in one library, beside writing that library.

Usage: rootfs.py PATH_OF_STACKFORGE [ROUNDS] [DIRECTORY]. Fetches some 250 MB of wheels with pip, kept in
target/bench/rootfs. A docker-registry on loopback serves images of seven layers, one for each wheel, which differ
in pyarrow's. DIRECTORY is where root file systems are written, to measure another file system. In each round:

- anew: `pull -o rootfs:` of the image with no earlier tree, its blobs in the store but for pyarrow's
- first: the same over one earlier image, whose tree stays
- later: the same over two, of which the older one goes
- writing: the changed files, copied from memory to new ones, with the same modes and times, and synced
- alone: `pull -o rootfs:` of an image that has pyarrow's layer and no other one: fetched, inflated, verified, written

All are whole processes, with the fetch of pyarrow's layer and `syncfs`; the ratios are medians of the rounds.
"""

import io
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

import pull as cold

DIR = os.path.abspath("target/bench/rootfs")
VERSIONS = ["21.0.0", "22.0.0", "23.0.0"]
OTHERS = ["numpy", "scipy", "pandas", "scikit-learn", "matplotlib", "opencv-python-headless"]
SITE = "opt/venv/lib/python3.11/site-packages"
PIP = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
PIP += ["--python-version", "3.11", "--platform", "manylinux_2_28_x86_64"]
PIP += ["--platform", "manylinux_2_17_x86_64", "--platform", "manylinux2014_x86_64"]


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        said = done.stderr[-2000:].decode(errors="replace")
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {said}")
    return done.stdout


def wheel(name, version=None):
    folder = f"{DIR}/wheels"
    os.makedirs(folder, exist_ok=True)
    start = name.replace("-", "_") + "-" + (version or "")
    found = [file for file in os.listdir(folder) if file.lower().startswith(start)]
    if not found:
        run(*PIP, "-d", folder, f"{name}=={version}" if version else name)
        return wheel(name, version)
    return f"{folder}/{found[0]}"


def files(path):
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                mode = 0o755 if info.filename.endswith(".so") else 0o644
                yield f"{SITE}/{info.filename}", mode, archive.read(info)


def layer(path):
    """The tar of a wheel, each directory before what is in it."""
    plain = io.BytesIO()
    made = set()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, mode, data in files(path):
            parts = name.split("/")
            for depth in range(1, len(parts)):
                folder = "/".join(parts[:depth])
                if folder not in made:
                    made.add(folder)
                    member = tarfile.TarInfo(folder)
                    member.type, member.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(member)
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(data), mode, 1
            tar.addfile(member, io.BytesIO(data))
    return plain.getvalue()


def image(version, known, others=OTHERS, name=None):
    root = f"{DIR}/images/{name or version}"
    if os.path.exists(f"{root}/index.json"):
        return
    paths = [*map(wheel, others), wheel("pyarrow", version)]
    for path in paths:
        if path not in known:
            known[path] = cold.packed(layer(path))
    cold.layout(root, [known[path] for path in paths])


def measured(work):
    os.sync()
    start = time.monotonic()
    work()
    return time.monotonic() - start


def written(where, all):
    """Seconds to write the files of the library that changed."""
    root = tempfile.mkdtemp(dir=where)
    try:
        def work():
            for name, mode, data in all:
                path = f"{root}/{name}"
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(data)
                    os.fchmod(file.fileno(), mode)
                os.utime(path, (1, 1))
            run("sync", "--file-system", root)

        return measured(work)
    finally:
        shutil.rmtree(root)


def updated(program, host, where, versions):
    """Seconds to pull the last of the images over those before it."""
    work = tempfile.mkdtemp(dir=where)
    try:
        def pull(version, *output):
            run(program, "--quiet", "--store", f"{work}/store", "pull", "--platform", "linux/amd64", f"{host}/app:{version}", *output)

        root = ["-o", f"rootfs:{work}/root"]
        if versions == VERSIONS[2:]:
            # The device has the blobs of the image before, and no tree.
            pull(VERSIONS[1])
        for version in versions[:-1]:
            pull(version, *root)
        return measured(lambda: pull(versions[-1], *root))
    finally:
        shutil.rmtree(work)


def main():
    program = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    where = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else DIR
    cold.DIR = DIR
    known = {}
    for version in VERSIONS:
        image(version, known)
    image(VERSIONS[-1], known, [], "alone")
    known.clear()
    changed = list(files(wheel("pyarrow", VERSIONS[-1])))
    server, host = cold.serve()
    try:
        for version in [*VERSIONS, "alone"]:
            run(program, "--quiet", "push", f"oci:{DIR}/images/{version}:v1", f"{host}/app:{version}")
        ways = {
            "writing": lambda: written(where, changed),
            "alone": lambda: updated(program, host, where, ["alone"]),
            "anew": lambda: updated(program, host, where, VERSIONS[2:]),
            "first": lambda: updated(program, host, where, VERSIONS[1:]),
            "later": lambda: updated(program, host, where, VERSIONS),
        }
        seen = {label: [] for label in ways}
        for _ in range(rounds):
            for label, way in ways.items():
                seen[label].append(way())
        size = sum(len(data) for _, _, data in changed)
        print(f"{len(changed)} files of {size / 1e6:.0f} MB changed; {rounds} rounds, medians")
        print(f"{'':10} {'seconds':>8} {'of writing':>11} {'of alone':>9} {'of anew':>8}")
        for label, all in seen.items():
            ratios = [statistics.median(a / b for a, b in zip(all, seen[peer])) for peer in ("writing", "alone", "anew")]
            print(f"{label:10} {statistics.median(all):8.2f} {ratios[0]:11.2f} {ratios[1]:9.2f} {ratios[2]:8.2f}")
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(f"{DIR}/registry", ignore_errors=True)


if __name__ == "__main__":
    main()
