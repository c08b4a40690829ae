"""stacks/thor-debian.yaml, some 200 wheels for arm64, assembled on any machine and judged by others.

Usage: thor.py PATH_OF_STACKFORGE. Fetches some 4 GB, kept in target/bench/thor, and needs skopeo,
umoci and Docker; podman is asked where it is there. Ends with 1 where a judge objects.

- two builds, the second of packages alone in a store of its own, have one digest
- `audit --gpu thor` finds no error
- skopeo reads and copies it, umoci unpacks it, docker and podman load it
- of each layer, files are read as a lazy snapshotter does, by ranges that the table of contents
  gives, and are those that umoci unpacked
"""

import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import time
import zlib

DIR = os.path.abspath("target/bench/thor")
NAME = "thor-debian"
# That a layout names the image by.
TAG = "latest"
FOOTER = 51
TOC = "containerd.io/snapshot/stargz/toc.digest"
# Files of each layer that are read through its contents.
FILES = 40


def run(*command, **more):
    start = time.monotonic()
    # Without the progress of builds.
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    if done.returncode:
        said = done.stderr[-2000:].decode(errors="replace")
        sys.exit("{} ended with {}: {}".format(" ".join(command), done.returncode, said))
    return done.stdout, time.monotonic() - start


def fresh(path):
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def inflate(blob, offset):
    """One gzip member."""
    blob.seek(offset)
    decoder, out = zlib.decompressobj(31), []
    while not decoder.eof:
        out.append(decoder.decompress(blob.read(1 << 20)))
    return b"".join(out)


def contents(blob, size):
    blob.seek(size - FOOTER)
    footer = blob.read(FOOTER)
    assert footer[:4] == b"\x1f\x8b\x08\x04" and footer[12:14] == b"SG" and footer[32:38] == b"STARGZ", footer
    with tarfile.open(fileobj=io.BytesIO(inflate(blob, int(footer[16:32], 16)))) as archive:
        return json.load(archive.extractfile("stargz.index.json"))


def lazily(layer, path, root, whited):
    """How many files and bytes were read by ranges and found right."""
    files, chunks = {}, {}
    with open(path, "rb") as blob:
        for entry in contents(blob, os.path.getsize(path))["entries"]:
            if entry["type"] == "reg":
                files[entry["name"]] = entry
            if entry["type"] in ("reg", "chunk") and entry.get("offset"):
                chunks.setdefault(entry["name"], []).append(entry)
        names = [n for n in files if n != ".no.prefetch.landmark" and files[n].get("size")]
        names = random.Random(layer).sample(names, min(FILES, len(names)))
        names += sorted(files, key=lambda n: files[n].get("size", 0))[-2:]
        total = 0
        for name in names:
            content = b"".join(inflate(blob, chunk["offset"]) for chunk in chunks.get(name, []))
            assert len(content) == files[name].get("size", 0), name
            assert "sha256:" + hashlib.sha256(content).hexdigest() == files[name]["digest"], name
            if name not in whited and name != ".no.prefetch.landmark":
                with open(os.path.join(root, name), "rb") as file:
                    assert file.read() == content, name
            total += len(content)
    return len(names), total


def judge(layout):
    seen = json.loads(run("skopeo", "inspect", "--override-arch", "arm64", "oci:{}:{}".format(layout, TAG))[0])
    assert (seen["Os"], seen["Architecture"]) == ("linux", "arm64"), seen
    copy = fresh(DIR + "/copy")
    run("skopeo", "copy", "-q", "oci:{}:{}".format(layout, TAG), "oci:{}:x".format(copy))
    copied = json.loads(run("skopeo", "inspect", "oci:{}:x".format(copy))[0])
    assert copied["Digest"] == seen["Digest"]
    print("skopeo: {}, copied".format(seen["Digest"]))
    shutil.rmtree(copy)

    shutil.rmtree(DIR + "/unpacked", ignore_errors=True)
    run("umoci", "unpack", "--image", "{}:{}".format(layout, TAG), DIR + "/unpacked")
    root = DIR + "/unpacked/rootfs"
    print("umoci: {} files".format(sum(len(names) for _, _, names in os.walk(root))))
    blob = lambda digest: "{}/blobs/{}".format(layout, digest.replace(":", "/"))
    with open(blob(seen["Digest"])) as file:
        layers = json.load(file)["layers"]
    # A file of a lower layer that an upper one replaces is not the one that is unpacked.
    names = []
    for layer in layers:
        with tarfile.open(blob(layer["digest"])) as archive:
            names.append({member.name for member in archive if not member.isdir()})
    # What is made of wheels; the base, OS packages and small files are plain layers.
    lazy = [n for n, layer in enumerate(layers) if TOC in layer.get("annotations", {})]
    assert len(lazy) > 30, lazy
    files, total = 0, 0
    for number in lazy:
        layer = layers[number]
        above = set().union(*names[number + 1:])
        read = lazily(number, blob(layer["digest"]), root, above)
        files, total = files + read[0], total + read[1]
    print("eStargz: {} files of {} layers, {:.2f} GB, read by ranges".format(files, len(lazy), total / 1e9))
    shutil.rmtree(DIR + "/unpacked")


def load(program, archive):
    said = run(program, "load", "-q", "-i", archive)[0].decode().split()[-1]
    try:
        about = json.loads(run(program, "image", "inspect", said)[0])[0]
        assert about["Architecture"] == "arm64", about
        print("{}: {} loaded, {:.1f} GB".format(program, said, about["Size"] / 1e9))
    finally:
        run(program, "rmi", "-f", said)


def main():
    stackforge = os.path.abspath(sys.argv[1])
    os.makedirs(DIR, exist_ok=True)
    for suffix in (".yaml", ".lock"):
        shutil.copy("stacks/" + NAME + suffix, DIR)
    stack = DIR + "/" + NAME + ".yaml"
    digests = []
    for number, store in enumerate((DIR + "/store", fresh(DIR + "/other"))):
        if number:
            # Packages alone: what was made of them is made again.
            for name in os.listdir(DIR + "/store/names"):
                os.makedirs(store + "/blobs/sha256", exist_ok=True)
                os.link("{}/store/blobs/sha256/{}".format(DIR, name), "{}/blobs/sha256/{}".format(store, name))
        layout = fresh("{}/layout-{}".format(DIR, number))
        out, seconds = run(stackforge, "build", stack, "--engine", "native", "--json", "--store", store,
                           "-o", "oci:" + layout)
        built = json.loads(out)
        steps = {s["id"]: round(s["seconds"], 1) for s in built["steps"] if s["seconds"] > 0.5}
        size = sum(layer["size"] for layer in built["image"]["layers"])
        print("built in {:.1f} s: {:.2f} GB in {} layers, {}".format(
            seconds, size / 1e9, len(built["image"]["layers"]), steps), flush=True)
        digests.append(built["image"]["id"])
    assert digests[0] == digests[1], digests
    print("both are", digests[0])
    layout = DIR + "/layout-0"
    audit, seconds = run(stackforge, "audit", "oci:{}:{}".format(layout, TAG), "--gpu", "thor", "--json")
    findings = [f["severity"] for f in json.loads(audit)["findings"]]
    print("audit for thor: {} errors, {} warnings, {:.1f} s".format(
        findings.count("error"), findings.count("warning"), seconds))
    judge(layout)
    archive = DIR + "/docker.tar"
    if os.path.exists(archive):
        os.unlink(archive)
    run("skopeo", "copy", "-q", "oci:{}:{}".format(layout, TAG), "docker-archive:{}:{}".format(archive, NAME + ":bench"))
    for program in ("docker", "podman"):
        if shutil.which(program):
            load(program, archive)
    os.unlink(archive)
    shutil.rmtree(DIR + "/other")


if __name__ == "__main__":
    main()
