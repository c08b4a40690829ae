#!/usr/bin/env python3
"""The parts of `make dist` that no other tool does as we need them.

    scripts/dist.py check PROGRAM --glibc 2.28 --private DIR <AUDIT   that a program runs where we say, by
                                                                  what `stackforge audit --json` read in it
    scripts/dist.py macos PROGRAM                                 the same of one for Macs, by its load commands
    scripts/dist.py wheel PROGRAM --version V --tag TAG -o DIR    a wheel that installs the program
    scripts/dist.py sbom --version V <METADATA                    cargo's metadata as CycloneDX 1.6

Bytes depend on the input and on SOURCE_DATE_EPOCH alone.
"""
import argparse
import base64
import hashlib
import json
import os
import struct
import sys
import time
import zipfile

# What glibc itself brings: nothing else has to be installed.
LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1",
             "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
LIMIT = 20_000_000
# Where only macOS itself puts libraries.
OF_MACOS = ("/usr/lib/", "/System/Library/Frameworks/")


def epoch():
    return int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))


def numbers(version):
    return tuple(int(part) for part in version.split("."))


def check(arguments):
    with open(arguments.program, "rb") as file:
        data = file.read()
    (audited,) = json.load(sys.stdin)["objects"]
    libraries, glibc = set(audited["needed"]), audited["floors"]["glibc"]
    faults = []
    if len(data) > LIMIT:
        faults.append(f"has {len(data)} bytes, more than {LIMIT}")
    if libraries - LIBRARIES:
        faults.append(f"needs {', '.join(sorted(libraries - LIBRARIES))}, which glibc does not bring")
    if not glibc or numbers(glibc) > numbers(arguments.glibc):
        faults.append(f"needs glibc {glibc}, and {arguments.glibc} is promised")
    for private in arguments.private:
        if private.encode() in data:
            faults.append(f"holds the path {private} of this machine")
    for fault in faults:
        print(f"dist: {arguments.program} {fault}", file=sys.stderr)
    if faults:
        sys.exit(1)
    print(f"{arguments.program}: {len(data)} bytes, glibc {glibc}, {', '.join(sorted(libraries))}")


def macos(arguments):
    """Numbers are those of Apple's <mach-o/loader.h>."""
    with open(arguments.program, "rb") as file:
        data = file.read()
    magic, processor, _, kind, commands = struct.unpack_from("<5I", data)
    libraries, oldest, at = [], None, 32
    if (magic, processor, kind) != (0xfeedfacf, 0x0100000c, 2):
        sys.exit(f"dist: {arguments.program} is no program for Apple silicon")
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", data, at)
        if command & 0xff in (0x0c, 0x18, 0x1f, 0x20, 0x23):  # a library, in one of five ways
            name = at + struct.unpack_from("<I", data, at + 8)[0]
            libraries.append(data[name:at + size].split(b"\0")[0].decode())
        elif command == 0x32:  # the version that it was built for
            system, least = struct.unpack_from("<2I", data, at + 8)
            oldest = f"{least >> 16}.{least >> 8 & 0xff}" if system == 1 else None
        at += size
    others = [name for name in libraries if not name.startswith(OF_MACOS)]
    if others or oldest is None:
        sys.exit(f"dist: {arguments.program} needs {', '.join(others) or 'another system'}, which macOS does not bring")
    print(f"{arguments.program}: {len(data)} bytes, macOS {oldest}, {', '.join(libraries)}")


def wheel(arguments):
    with open("README.md") as file:
        readme = file.read()
    with open("LICENSE", "rb") as file:
        license = file.read()
    with open(arguments.program, "rb") as file:
        program = file.read()
    name = f"stackforge-{arguments.version}"
    info = f"{name}.dist-info"
    metadata = (f"Metadata-Version: 2.4\nName: stackforge\nVersion: {arguments.version}\n"
                "Summary: CUDA machine-learning stacks that work, as container images, from one YAML file\n"
                "License-Expression: Apache-2.0\nLicense-File: LICENSE\nRequires-Python: >=3.8\n"
                f"Description-Content-Type: text/markdown\n\n{readme}")
    tags = f"Wheel-Version: 1.0\nGenerator: stackforge-dist\nRoot-Is-Purelib: false\nTag: {arguments.tag}\n"
    files = [(f"{name}.data/scripts/stackforge", program, 0o755),
             (f"{info}/licenses/LICENSE", license, 0o644),
             (f"{info}/METADATA", metadata.encode(), 0o644),
             (f"{info}/WHEEL", tags.encode(), 0o644)]
    record = ""
    for path, data, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    record += f"{info}/RECORD,,\n"
    files.append((f"{info}/RECORD", record.encode(), 0o644))
    # ZIP has no time before 1980.
    stamp = time.gmtime(max(epoch(), 315532800))[:6]
    target = os.path.join(arguments.output, f"{name}-{arguments.tag}.whl")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, data, mode in files:
            member = zipfile.ZipInfo(path, stamp)
            member.create_system = 3
            member.external_attr = (0o100000 | mode) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, data)
    print(target)


def sbom(arguments):
    metadata = json.load(sys.stdin)
    packages = {p["id"]: p for p in metadata["packages"]}
    nodes = {n["id"]: n for n in metadata["resolve"]["nodes"]}
    root = next(i for i, p in packages.items() if p["name"] == "stackforge")
    # What is linked: neither tests' nor build scripts' dependencies.
    linked, waiting = {}, [root]
    while waiting:
        at = waiting.pop()
        if at in linked:
            continue
        linked[at] = sorted(d["pkg"] for d in nodes[at]["deps"] if any(k["kind"] is None for k in d["dep_kinds"]))
        waiting.extend(linked[at])

    def purl(i):
        return f"pkg:cargo/{packages[i]['name']}@{packages[i]['version']}"

    def component(i):
        package = packages[i]
        entry = {"type": "application" if i == root else "library", "bom-ref": purl(i), "name": package["name"],
                 "version": package["version"], "purl": purl(i)}
        if package.get("license"):
            entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        return entry

    order = sorted(linked, key=purl)
    document = {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch())),
                     "component": component(root)},
        "components": [component(i) for i in order if i != root],
        "dependencies": [{"ref": purl(i), "dependsOn": sorted({purl(d) for d in linked[i]})} for i in order],
    }
    json.dump(document, sys.stdout, indent=1)
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("check")
    one.add_argument("program")
    one.add_argument("--glibc", required=True)
    one.add_argument("--private", action="append", default=[])
    one.set_defaults(run=check)
    one = commands.add_parser("macos")
    one.add_argument("program")
    one.set_defaults(run=macos)
    one = commands.add_parser("wheel")
    one.add_argument("program")
    one.add_argument("--version", required=True)
    one.add_argument("--tag", required=True)
    one.add_argument("-o", "--output", required=True)
    one.set_defaults(run=wheel)
    one = commands.add_parser("sbom")
    one.add_argument("--version", required=True)
    one.set_defaults(run=sbom)
    arguments = parser.parse_args()
    arguments.run(arguments)


main()
