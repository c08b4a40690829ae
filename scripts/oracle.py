#!/usr/bin/env python3
"""Compares what `stackforge audit` reads in wheels with what others read in them.

    scripts/oracle.py --stackforge PROGRAM --cuobjdump PROGRAM WHEEL...
    scripts/oracle.py --stackforge PROGRAM --facts FACTS.json WHEEL...

The judges are NVIDIA's `cuobjdump` and binutils' `readelf`, run on every object; or a JSON file of
measurements: wheel -> object -> needed, soname, glibc_max, glibcxx_max, cxxabi_max, sm, ptx. Every
difference is a line; exit 1 if there is any. Where cuobjdump itself gives up, its answer is no
judgement, and a line starting with `?` says so.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile

KEYS = ["needed", "soname", "glibc", "glibcxx", "cxxabi", "sm", "ptx"]
DATA = re.compile(r"^[^/]+\.data/(purelib|platlib)/")


def run(*command):
    env = dict(os.environ, LC_ALL="C")
    return subprocess.run(command, capture_output=True, text=True, errors="replace", env=env)


def number(version):
    return tuple(int(part) for part in version.split("."))


def newest(listing, prefix):
    needs = listing.partition("Version needs section")[2]
    found = re.findall(r"Name: " + prefix + r"_([0-9.]+)", needs)
    return max(found, key=number, default=None)


def sm(digits):
    return "sm_" + digits.replace(".", "")


def audited(stackforge, wheel):
    answer = run(stackforge, "audit", wheel, "--json")
    document = json.loads(answer.stdout)
    objects = {}
    for row in document["objects"]:
        floors = row["floors"]
        objects[row["path"]] = {
            "needed": row["needed"],
            "soname": row["soname"],
            "glibc": floors.get("glibc"),
            "glibcxx": floors.get("glibcxx"),
            "cxxabi": floors.get("cxxabi"),
            "sm": sorted(map(sm, row["sm"])),
            "ptx": sorted({sm(p["sm"]) for p in row["ptx"]}),
        }
    damaged = [f["message"] for f in document["findings"] if f["code"] == "SF0901"]
    return objects, damaged


def by_readelf(path):
    listing = run("readelf", "-dVW", path).stdout
    tagged = lambda tag: re.findall(r"\(" + tag + r"\).*?\[(.*)\]", listing)
    return {
        "needed": tagged("NEEDED"),
        "soname": next(iter(tagged("SONAME")), None),
        "glibc": newest(listing, "GLIBC"),
        "glibcxx": newest(listing, "GLIBCXX"),
        "cxxabi": newest(listing, "CXXABI"),
    }


def by_cuobjdump(program, path):
    answer = run(program, "-all", path)
    kinds = {"elf": set(), "ptx": set()}
    kind = None
    for line in answer.stdout.splitlines():
        if line.startswith("Fatbin "):
            kind = line.split()[1]
        elif line.startswith("arch = ") and kind in kinds:
            kinds[kind].add(line.removeprefix("arch = ").strip())
    stopped = answer.returncode and "does not contain device code" not in answer.stderr
    return {"sm": sorted(kinds["elf"]), "ptx": sorted(kinds["ptx"])}, stopped and answer.stderr.strip()


def live(wheel, cuobjdump, wanted):
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "object")
        for member in archive.infolist():
            name = DATA.sub("", member.filename)
            if name not in wanted:
                continue
            with archive.open(member) as source, open(path, "wb") as to:
                while piece := source.read(1 << 20):
                    to.write(piece)
            os.chmod(path, 0o755)
            code, stopped = by_cuobjdump(cuobjdump, path)
            yield name, {**by_readelf(path), **code}, stopped


def measured(wheel, facts):
    for name, fact in facts.get(os.path.basename(wheel), {}).items():
        judged = {key: fact.get(key) for key in ("needed", "soname", "sm", "ptx")}
        judged |= {key: fact.get(key + "_max") for key in ("glibc", "glibcxx", "cxxabi")}
        judged["sm"], judged["ptx"] = sorted(judged["sm"] or []), sorted(judged["ptx"] or [])
        stopped = "measured so" if fact.get("oracle_valid") is False else None
        yield DATA.sub("", name), judged, stopped


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stackforge", default="target/release/stackforge")
    judges = parser.add_mutually_exclusive_group(required=True)
    judges.add_argument("--cuobjdump")
    judges.add_argument("--facts")
    parser.add_argument("wheels", nargs="+")
    args = parser.parse_args()
    facts = args.facts and json.load(open(args.facts))
    differences = objects = 0
    for wheel in args.wheels:
        ours, damaged = audited(args.stackforge, wheel)
        for message in damaged:
            differences += 1
            print(f"! {message}")
        judged = measured(wheel, facts) if facts else live(wheel, args.cuobjdump, set(ours))
        count = with_code = 0
        for name, judgement, stopped in judged:
            count += 1
            mine = ours.get(name)
            if mine is None:
                differences += 1
                print(f"! {wheel}: {name} was not read")
                continue
            with_code += bool(mine["sm"] or mine["ptx"])
            for key in KEYS:
                if mine[key] == judgement[key]:
                    continue
                if stopped and key in ("sm", "ptx"):
                    print(f"? {name} {key}: {mine[key]}, cuobjdump stops ({stopped})")
                    continue
                differences += 1
                print(f"! {name} {key}: {mine[key]}, judged {judgement[key]}")
        objects += count
        print(f"{os.path.basename(wheel)}: {count} objects, {with_code} with device code", flush=True)
    print(f"{len(args.wheels)} wheels, {objects} objects, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
