"""Compare the image with its lock, and the report of its validation with what was to be validated.

    python3 locked.py INSTALLED SPEC REPORT WHEELS

INSTALLED has a line NAME==VERSION for each locked distribution, SPEC is the spec.json that the report
has to be of, WHEELS is a folder of compiled wheels, one folder per library, or is not there. Writes a line
for each difference and exits 1 if there is one. Engines know layers by the words that made them: one that
mistakes a layer of another build for this one's is found here.
"""

import csv
import glob
import hashlib
import io
import json
import os
import re
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
SITES = "/opt/venv/lib/python*/site-packages"
MARK = "stackforge-difference "
# Beside packages, and nobody's own, though many distributions install one by mistake.
NOBODYS = ("test", "tests", "doc", "docs", "example", "examples", "benchmark", "benchmarks",
           "build_backend.py", "conftest.py", "setup.py")
# What an installer writes itself, whatever a wheel brings under its name.
INSTALLERS = re.compile(r"\.dist-info/(INSTALLER|REQUESTED|RECORD|direct_url\.json)$")

# The statements that declare a package to be a namespace.
NAMESPACE = re.compile(
    r"(__path__ = (__import__\(.pkgutil.\)\.|pkgutil\.)?extend_path\(__path__, __name__\)"
    r"|(__import__\(.pkg_resources.\)|pkg_resources)\.declare_namespace\(__name__\)"
    r"|from pkgutil import extend_path|import pkgutil|import pkg_resources|try:|except( \w+Error)?:)$"
)


def same_version_of_validation():
    """The notion of equal versions that the check of imports has."""
    sys.path.insert(0, HERE)
    try:
        from sfvalidate.versions import same_version
    finally:
        sys.path.remove(HERE)
    return same_version


def normalized(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(sites):
    """(version, RECORD) by name, as the folders of the environment say it."""
    found = {}
    for record in sorted(glob.glob(os.path.join(sites, "*.dist-info", "RECORD"))):
        name, _, version = os.path.basename(os.path.dirname(record))[: -len(".dist-info")].rpartition("-")
        if name:
            with open(record, encoding="utf-8", newline="") as file:
                found[normalized(name)] = version, file.read()
    return found


def locked(path):
    with open(path, encoding="utf-8") as file:
        pairs = (line.strip().split("==", 1) for line in file if line.strip())
        return {normalized(name): version for name, version in pairs}


def versions(wanted, found, same):
    for name, (version, _) in sorted(found.items()):
        if name not in wanted:
            yield "{} {} is installed and not locked".format(name, version)
        elif not same(wanted[name], version):
            yield "{} {} is installed, {} is locked".format(name, version, wanted[name])
    for name, version in sorted(wanted.items()):
        if name not in found:
            yield "{} {} is not installed".format(name, version)


def of_report(spec_path, report_path, same):
    with open(spec_path, "rb") as file:
        text = file.read()
    with open(report_path, encoding="utf-8") as file:
        report = json.load(file)
    if report.get("spec") != "sha256:" + hashlib.sha256(text).hexdigest():
        yield "the report of the validation is of another spec.json"
    if report.get("ok") is not True:
        yield "the report of the validation says that it failed"
    results = [result for check in report["checks"] if check["name"] == "imports" for result in check["results"]]
    validated = {result["name"]: result.get("version") for result in results}
    for library in json.loads(text.decode("utf-8"))["libraries"]:
        version = validated.get(library["name"])
        if version and library["version"] and not same(library["version"], version):
            yield "{} {} was validated, {} is locked".format(library["name"], version, library["version"])


def digests(record):
    rows = (row for row in csv.reader(io.StringIO(record)) if len(row) > 1 and row[1] and not INSTALLERS.search(row[0]))
    return {row[0]: row[1] for row in rows}


def of_wheels(folder, found):
    """Files whose installed RECORD states another digest than the compiled wheel's."""
    for path in sorted(glob.glob(os.path.join(folder, "*", "*.whl"))):
        name = normalized(os.path.basename(path).split("-")[0])
        if name not in found:
            continue  # it is among the versions that are missing
        with zipfile.ZipFile(path) as wheel:
            records = [entry for entry in wheel.namelist() if re.match(r"[^/]+\.dist-info/RECORD$", entry)]
            stated = digests(wheel.read(records[0]).decode("utf-8")) if records else {}
        there = digests(found[name][1])
        for file in sorted(file for file, digest in stated.items() if there.get(file, digest) != digest):
            yield "`{}` of {} is not that of its wheel".format(file, name)


def without_record(sites):
    for folder in sorted(glob.glob(os.path.join(sites, "*.dist-info"))):
        if not os.path.exists(os.path.join(folder, "RECORD")):
            yield "{} was installed by no installer".format(os.path.basename(folder))


def is_nobodys(path):
    """Whether a path is of no package: texts, and folders that many distributions install by mistake."""
    first, slash, _ = path.partition("/")
    return first in NOBODYS or not (slash or path.endswith((".py", ".pth", ".so")))


def declares_namespace(path, sites):
    """Whether a file of the environment only declares a namespace, as each distribution in it does in its own way."""
    if not path.endswith("/__init__.py"):
        return False
    for file in glob.glob(os.path.join(sites, path)):
        with open(file, encoding="utf-8", errors="replace") as lines:
            code = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
        return bool(code) and all(NAMESPACE.match(line) for line in code) and "__name__" in code[-1]
    return False


def collisions(found, sites):
    """Files that two distributions state differently: the environment has one of them."""
    owners = {}
    for name, (_, record) in sorted(found.items()):
        for file, digest in sorted(digests(record).items()):
            first, other = owners.setdefault(file, (name, digest))
            if other != digest and not is_nobodys(file) and not declares_namespace(file, sites):
                yield "`{}` is a file of {} and another one of {}".format(file, first, name)


def main(installed_path, spec_path, report_path, wheels, sites=SITES):
    same = same_version_of_validation()
    found = installed(sites)
    differences = list(versions(locked(installed_path), found, same))
    differences += of_report(spec_path, report_path, same)
    differences += of_wheels(wheels, found)
    differences += without_record(sites)
    differences += collisions(found, sites)
    for difference in differences:
        print(MARK + difference, flush=True)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
