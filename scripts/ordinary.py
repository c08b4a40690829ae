#!/usr/bin/env python3
"""Tries what people put into stacks: each OS package, or each set of requirements, in a stack of its own.

    scripts/ordinary.py packages --stackforge target/release/stackforge --first 150 --out table.md
    scripts/ordinary.py packages nginx "git curl ffmpeg" --docker
    scripts/ordinary.py packages --docker --together 6 --base debian-trixie --python 3.13
    scripts/ordinary.py requirements --every 10 --turn 3

A set of packages is locked, built natively twice (the second time nothing is taken from the store) and, with
--docker, by the Docker engine, whose image's files are compared by path. Of requirements `init` makes a stack, which is
locked and built natively, and what they name is imported. One line of a Markdown table for each.

--together N puts N packages into one stack. Where such a stack is not as it should be, each of its packages is tried
alone. Names that are already in --out are skipped. --every 2 with --turn 0 and --turn 1 are two halves that may run
side by side.
"""

import argparse
import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

from pip._vendor.packaging.markers import Marker

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DATA = os.path.join(HERE, "tests", "ordinary")
NAME = "stackforge-test-ordinary"


def stack(base, python, libraries, packages):
    lines = [
        f"stack: {NAME}",
        f"base: {base}",
        # Every torch since 1.8 has code for it.
        "target: { platform: linux/amd64, gpu: [a100] }",
        f'python: "{python}"',
        "libraries:",
        *(f"  {json.dumps(name)}: {json.dumps(wanted)}" for name, wanted in libraries.items()),
        f"packages: [{', '.join(packages)}]",
        "jit: false",
    ]
    return "\n".join(lines) + "\n"


def run(args, folder):
    start = time.monotonic()
    done = subprocess.run(args, cwd=folder, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - start
    try:
        document = json.loads(done.stdout)
    except ValueError:
        document = {}
    return done.returncode, document, seconds, done.stderr


def why(document, errors):
    found = [d for d in document.get("diagnostics", []) if d.get("severity") == "error"]
    if found:
        return f"{found[0]['code']}: {found[0]['message']}"
    return " ".join(errors.split())[-200:]


def done_before(path):
    """Returns the names that the table in a file already has."""
    if not path or not os.path.exists(path):
        return set()
    with open(path, encoding="utf-8") as file:
        return {line.split("|")[1].strip() for line in file if line.startswith("| ")}


def short(text):
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) < 240 else text[:239] + "…"


def docker_files(image, pyc):
    made = subprocess.run(["docker", "create", image], capture_output=True, text=True, check=True)
    container = made.stdout.strip()
    try:
        export = subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE)
        return files(export.stdout, pyc)
    finally:
        subprocess.run(["docker", "rm", container], capture_output=True, check=False)


def files(stream, pyc):
    """Returns what a tar holds by path. Byte code counts in its normal form, as the native engine writes it."""
    found = {}
    with tempfile.TemporaryDirectory(prefix=NAME) as folder, tarfile.open(fileobj=stream, mode="r|*") as tar:
        compiled = {}
        for member in tar:
            path = member.name.strip("/")
            content = ""
            if member.isreg():
                data = tar.extractfile(member).read()
                content = hashlib.sha256(data).hexdigest()
                if path.endswith(".pyc") and content not in compiled:
                    compiled[content] = os.path.join(folder, content)
                    with open(compiled[content], "wb") as file:
                        file.write(data)
            elif member.islnk():
                path_of = member.linkname.strip("/")
                found[path] = found.get(path_of)
                continue
            found[path] = (member.type if not member.isreg() else b"0", member.mode, member.uid, member.gid,
                           member.linkname, content)
        normal = normal_form(pyc, compiled)
    found = {p: e and (*e[:-1], normal.get(e[-1], e[-1])) for p, e in found.items()}
    engine = (".dockerenv", "dev", "etc/hostname", "etc/hosts", "etc/mtab", "etc/resolv.conf")
    own = re.compile(r"opt/venv|stargz.index.json|\.no\.prefetch\.landmark|usr/share/stackforge|opt/stackforge")
    return {p: e for p, e in found.items() if not p.startswith(engine) and not own.match(p)}


def normal_form(pyc, compiled):
    """Returns the digests of byte code files' normal forms by the digests of the files."""
    paths, normal = list(compiled.values()), {}
    for start in range(0, len(paths), 5000):
        subprocess.run([pyc, *paths[start : start + 5000]], check=True)
    for digest, path in compiled.items():
        with open(path, "rb") as file:
            normal[digest] = hashlib.sha256(file.read()).hexdigest()
    return normal


def try_lock(packages, options, folder):
    """Locks a stack with packages. Returns the cells of its row if that fails."""
    with open(os.path.join(folder, "s.yaml"), "w", encoding="utf-8") as file:
        file.write(stack(options.base, options.python, {"six": "1.17.0"}, packages))
    code, document, _, errors = run([options.stackforge, "lock", "s.yaml", "--json"], folder)
    return ("not locked", "", "", "", why(document, errors)) if code else None


def try_packages(packages, options, folder):
    refused = try_lock(packages, options, folder)
    if refused:
        return refused
    build = [options.stackforge, "build", "s.yaml", "--json", "--store", options.store]
    by_native, by_docker = (f"{options.image}:{engine}" for engine in ("native", "docker"))
    native = [*build, "--engine", "native", "-t", by_native]
    if options.docker:
        native += ["-o", "docker"]
    code, one, seconds, errors = run(native, folder)
    if code:
        return "refused", "", "", f"{seconds:.0f}", why(one, errors)
    audit = one.get("audit", {})
    code, two, _, errors = run([*native, "--no-cache"], folder)
    same = code == 0 and one["image"]["id"] == two["image"]["id"]
    again = "same digest" if same else "**other digest**"
    result = "ok" if not audit.get("errors") else f"{audit['errors']} audit errors"
    if not options.docker:
        return result, again, "", f"{seconds:.0f}", ""
    code, built, docker_seconds, errors = run([*build, "--engine", "docker", "-t", by_docker], folder)
    if code:
        return result, again, "refused", f"{seconds:.0f}", why(built, errors)
    ours, theirs = (docker_files(image, options.pyc) for image in (by_native, by_docker))
    differ = sorted(p for p in set(ours) | set(theirs) if ours.get(p) != theirs.get(p))
    docker = "same files" if not differ else f"**{len(differ)} files differ**"
    subprocess.run(["docker", "rmi", by_native, by_docker], capture_output=True, check=False)
    return result, again, docker, f"{seconds:.0f} / {docker_seconds:.0f}", " ".join(differ[:6])


def is_good(cells):
    return cells[:2] == ("ok", "same digest") and cells[2] in ("", "same files")


def try_together(names, options):
    """Tries packages in one stack. Where it is not good, those that can be locked are tried without the others, or each
    alone."""
    cells = try_stack(names, options)
    if len(names) == 1 or is_good(cells):
        note = f"{len(names)} together" if len(names) > 1 else ""
        yield from ((name, (*cells[:4], cells[4] or note)) for name in names)
        return
    if cells[0] == "not locked":
        rows = {name: lock_alone(name, options) for name in names}
        refused = {name: row for name, row in rows.items() if row}
        yield from refused.items()
        names = [name for name in names if name not in refused]
        if refused and names:
            yield from try_together(names, options)
            return
    for name in names:
        yield name, try_stack([name], options)


def try_stack(names, options):
    with tempfile.TemporaryDirectory(prefix=NAME) as folder:
        return try_packages([package for name in names for package in name.split()], options, folder)


def lock_alone(name, options):
    with tempfile.TemporaryDirectory(prefix=NAME) as folder:
        return try_lock(name.split(), options, folder)


def add(libraries, name, wanted):
    """A file of requirements may name a library twice; a stack has it once, with the extras of both."""
    base, _, extras = name.rstrip("]").partition("[")
    plain = re.sub(r"[-_.]+", "-", base).lower()
    known = [n for n in libraries if re.sub(r"[-_.]+", "-", n.partition("[")[0]).lower() == plain]
    extras = {e for e in extras.split(",") if e}
    specifiers = {s for s in wanted.split(",") if s}
    for other in known:
        extras |= {e for e in other.rstrip("]").partition("[")[2].split(",") if e}
        specifiers |= {s for s in libraries.pop(other).split(",") if s != "auto"}
    whole = f"{base}[{','.join(sorted(extras))}]" if extras else base
    libraries[whole] = ",".join(sorted(specifiers)) or "auto"


def applies(marker, python):
    """Whether a requirement is for Linux and that Python, by its marker (`; python_version < "3.0"`)."""
    if not marker:
        return True
    here = {"python_version": python, "python_full_version": python + ".0", "sys_platform": "linux",
            "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix", "extra": ""}
    return Marker(marker.lstrip("; ").partition(" #")[0]).evaluate(here)


def keep(path, options, folder, document, errors):
    if not options.keep:
        return
    into = os.path.join(options.keep, os.path.basename(path).removesuffix(".txt"))
    shutil.copytree(folder, into, dirs_exist_ok=True)
    with open(os.path.join(into, "answer.json"), "w", encoding="utf-8") as file:
        json.dump({"document": document, "errors": errors}, file, indent=1)


def own_stack(path, options):
    """Returns a stack that has each requirement as it is, and how many lines are none."""
    libraries, odd = {}, 0
    with open(path, encoding="utf-8") as file:
        for line in file:
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            match = re.match(r"^([A-Za-z0-9][A-Za-z0-9._-]*(?:\[[^\]]*\])?)\s*((?:[<>=!~].*?)?)\s*(;.*)?$", line)
            if not match:
                odd += 1
            elif applies(match[3], options.python):
                add(libraries, match[1].replace(" ", ""), match[2].replace(" ", ""))
    return stack(options.base, options.python, libraries, []), f"{odd} lines left out"


def first_stack(path, options, folder):
    """Returns the stack that `init` makes of requirements, and what it changed. No kernels are compiled in its image."""
    init = [options.stackforge, "init", "--from", os.path.abspath(path), "--base", options.base, "--gpu", "a100"]
    code, document, _, errors = run([*init, "-o", "s.yaml", "--force", "--json", "--store", options.store], folder)
    if code:
        return "", why(document, errors)
    with open(os.path.join(folder, "s.yaml"), encoding="utf-8") as file:
        text = file.read()
    text = re.sub(r"^stack: .*$", f"stack: {NAME}", text, flags=re.MULTILINE) + "jit: false\n"
    return text, f"{len(document['instead'])} moved, {document['notes']} notes"


def try_requirements(path, options, folder):
    if options.as_written:
        text, remark = own_stack(path, options)
    else:
        text, remark = first_stack(path, options, folder)
        if not text:
            return "no stack", "", "", remark
    with open(os.path.join(folder, "s.yaml"), "w", encoding="utf-8") as file:
        file.write(text)
    lock = [options.stackforge, "lock", "s.yaml", "--json", "--store", options.store]
    code, document, seconds, errors = run(lock, folder)
    if code:
        keep(path, options, folder, document, errors)
        return "not locked", f"{seconds:.0f}", remark, why(document, errors)
    if options.lock_only:
        return "locked", f"{seconds:.0f}", remark, ", ".join(document.get("os_libraries", []))
    build = [options.stackforge, "build", "s.yaml", "--json", "--store", options.store, "--engine", "native"]
    code, document, more, errors = run([*build, "-o", "oci:image"], folder)
    result = "ok" if code == 0 else "refused"
    if code:
        keep(path, options, folder, document, errors)
    return result, f"{seconds + more:.0f}", remark, "" if code == 0 else why(document, errors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["packages", "requirements"])
    parser.add_argument("names", nargs="*", help="sets of packages, or files of requirements; all where there is none")
    parser.add_argument("--stackforge", default="target/release/stackforge")
    parser.add_argument("--base", default="debian-bookworm")
    parser.add_argument("--python", default="3.11")
    parser.add_argument("--store", help="by default one of its own, which is removed at the end")
    parser.add_argument("--docker", action="store_true", help="build by Docker too, and compare")
    parser.add_argument("--pyc", default="target/release/examples/pyc",
                        help="the program that --docker compares byte code with, an example of crates/binary")
    parser.add_argument("--as-written", action="store_true",
                        help="a stack with each requirement as it is, in place of what `init` makes of them")
    parser.add_argument("--lock-only", action="store_true", help="lock requirements, and build nothing")
    parser.add_argument("--first", type=int, default=150, help="how many of the most frequent packages")
    parser.add_argument("--together", type=int, default=1, help="how many packages are in one stack")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--turn", type=int, default=0)
    parser.add_argument("--out", help="the table is added to this file")
    parser.add_argument("--keep", help="a folder for the stacks and answers of requirements that do not work")
    options = parser.parse_args()
    options.stackforge = os.path.abspath(options.stackforge)
    options.pyc = os.path.abspath(options.pyc)
    options.image = f"{NAME}-{options.turn}"
    own = not options.store
    options.store = options.store or tempfile.mkdtemp(prefix=f"{options.image}-")
    try:
        try_all(options)
    finally:
        if own:
            shutil.rmtree(options.store, ignore_errors=True)


def try_all(options):
    names = options.names
    if not names and options.what == "packages":
        with open(os.path.join(DATA, "os-packages.tsv"), encoding="utf-8") as file:
            names = [row["package"] for row in csv.DictReader(file, delimiter="\t")][: options.first]
    elif not names:
        folder = os.path.join(DATA, "requirements")
        names = sorted(os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".txt"))
    names = names[options.turn % options.every :: options.every]
    out = open(options.out, "a", encoding="utf-8") if options.out else sys.stdout
    tried = done_before(options.out)

    def show(name, cells):
        print("| " + " | ".join([name, *map(short, cells)]) + " |", file=out, flush=True)

    if options.what == "packages":
        names = [name for name in names if name not in tried]
        for start in range(0, len(names), options.together):
            for name, cells in try_together(names[start : start + options.together], options):
                show(name, cells)
        return
    for name in names:
        shown = os.path.basename(name).removesuffix(".txt")
        if shown not in tried:
            with tempfile.TemporaryDirectory(prefix=NAME) as folder:
                show(shown, try_requirements(name, options, folder))


if __name__ == "__main__":
    main()
