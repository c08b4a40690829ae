"""Import every library as its users do, and see that it is the one that was promised.

One process per library, so that none lives off another's imports and a crash names its culprit;
then one process imports all that passed, since libraries can also break each other. A library
fails when its distribution is absent, installed in editable mode, of another version than the
stack's, shadowed by another copy, or when one of its modules does not import. Of a library for which
nothing names modules, those are imported that its distribution brings. A module that wants a
driver's library where there is no GPU is `not-run`.
"""

import csv
import importlib
import importlib.metadata
import json
import os
import pathlib
import re
import sys

from sfvalidate import failure
from sfvalidate.versions import related_version, same_version

LIMIT = 600
ISOLATED = True
TOGETHER = "together:"
MODULE = re.compile(r"^([A-Za-z_]\w*)(\.py|(\.[\w-]+)?\.so)$", re.ASCII)
# What no library for others is called.
TAGGED = re.compile(r"\.(cpython-\d+[\w-]*|abi3)\.so$", re.ASCII)
# Of those who pack more than they mean to.
ASIDE = ("test", "tests", "testing", "doc", "docs", "example", "examples", "benchmark", "benchmarks", "scripts", "setup")


def obstacle(spec, device):
    return None


def facts(spec, device):
    return {}


def units(spec, device):
    return [library["name"] for library in spec["libraries"]]


def afterwards(results):
    """The unit that imports what passed alone, all in one process."""
    passed = [result["name"] for result in results if result["status"] == "passed"]
    return [TOGETHER + ",".join(passed)] if len(passed) > 1 else []


def run(unit, job):
    libraries = {library["name"]: library for library in job.spec["libraries"]}
    if unit.startswith(TOGETHER):
        names = unit[len(TOGETHER):].split(",")
        return together([libraries[name] for name in names], job)
    return one(libraries[unit], job)


def one(library, job):
    result = {"name": library["name"], "distribution": library["distribution"], "status": "passed",
              "version": None, "expected": library["version"], "modules": []}
    try:
        distribution = importlib.metadata.distribution(library["distribution"])
    except importlib.metadata.PackageNotFoundError:
        return dict(result, status="failed", kind="missing-distribution",
                    reason="{} is not installed".format(library["distribution"]))
    result["version"] = distribution.version
    if editable(distribution):
        return dict(result, status="failed", kind="editable", reason="{} is installed in editable mode: "
                    "its code is a source folder, not what was locked".format(library["distribution"]))
    if library["version"] and not same_version(library["version"], distribution.version):
        return dict(result, status="failed", kind="version-mismatch", reason="{} is installed, the stack promises {}".format(
            distribution.version, library["version"]))
    result["modules"] = imported(library, distribution, job)
    for name in library["gpu_imports"]:
        result["modules"].append(try_import(name, job) if job.device.get("gpu") else
                                 {"module": name, "status": "not-run", "reason": job.device.get("no_gpu")})
    bad = [module for module in result["modules"] if module["status"] == "failed"]
    if bad:
        reason = "; ".join("import {}: {}".format(module["module"], failure.headline(module["message"])) for module in bad)
        return dict(result, status="failed", kind=bad[0]["kind"], reason=reason)
    ran = [module for module in result["modules"] if module["status"] == "passed"]
    if result["modules"] and not ran:
        return dict(result, status="not-run", reason=result["modules"][0]["reason"])
    return dict(result, **shadowed(distribution, [module["module"] for module in ran]))


def imported(library, distribution, job):
    """The result of each module. One that stands beside the distribution's own, or beside others in a namespace, and imports
    what the distribution does not require, is for those who have that: duckdb's adbc_driver_duckdb, pgvector.django."""
    results = [try_import(name, job) for name in modules_of(library, distribution)]
    own = re.sub(r"[-_.]+", "_", library["distribution"]).lower()
    in_namespace = all("." in result["module"] for result in results)
    main = [result for result in results if in_namespace or result["module"].lower() == own]
    if named(library) or not any(result["status"] == "passed" for result in main):
        return results
    brought = {result["module"].partition(".")[0] for result in results}

    def waits(result):
        return "missing" in result and result["missing"].partition(".")[0] not in brought

    return [{"module": result["module"], "status": "not-run", "reason": "it imports {}, which {} does not require".format(
        result["missing"], library["distribution"])} if waits(result) else result for result in results]


def named(library):
    return library["imports"] or library["gpu_imports"]


def modules_of(library, distribution):
    """The modules that its recipe names, else the top ones that it brings: public ones if there are any."""
    if named(library):
        return library["imports"]
    paths = [path.parts for path in recorded(distribution)]
    packages = {parts[:-1] for parts in paths if parts[-1] == "__init__.py" and all(map(str.isidentifier, parts[:-1]))}
    brought = {parts for parts in packages if len(parts) == 1}
    brought |= {(single(parts[0]),) for parts in paths if len(parts) == 1 and single(parts[0])}
    if not brought:
        brought = in_namespaces(paths, packages)
    # Some pack the packages inside of theirs once more, beside it, where they do not import.
    twice = {parts[1:] for parts in packages if len(parts) == 2 and parts[:1] in brought and parts[1:] != parts[:1]}
    brought = brought - twice or brought
    meant = {parts for parts in brought if parts[-1] not in ASIDE} or brought
    return sorted({".".join(parts) for parts in meant if not parts[-1].startswith("_")} or map(".".join, meant))


def recorded(distribution):
    """The files that it was installed with, also those that are gone: Python 3.12 leaves these out of `files`."""
    text = distribution.read_text("RECORD")
    if text is None:
        return [pathlib.PurePosixPath(path) for path in distribution.files or []]
    return [pathlib.PurePosixPath(row[0]) for row in csv.reader(text.splitlines()) if row and row[0]]


def single(name):
    """The module that a file is."""
    match = MODULE.match(name)
    return match and match.group(1)


def in_namespaces(paths, packages):
    """The packages, and the compiled modules, of folders that are no packages themselves: `google/cloud/storage`."""
    def inside(parts):
        return any(parts[:depth] in packages for depth in range(1, len(parts)))

    compiled = {parts[:-1] + (single(parts[-1]),) for parts in paths
                if TAGGED.search(parts[-1]) and single(parts[-1]) and all(map(str.isidentifier, parts[:-1]))}
    return {parts for parts in packages | compiled if not inside(parts)}


def try_import(name, job):
    job.step("importing " + name)
    try:
        importlib.import_module(name)
    except (Exception, SystemExit) as error:
        description = failure.describe(error)
        if failure.from_driver(description) and not job.device.get("gpu"):
            return {"module": name, "status": "not-run",
                    "reason": "it loads {}, which comes with a GPU's driver".format(description["library"])}
        if description["kind"] == "network":
            return {"module": name, "status": "not-run",
                    "reason": "it asks the network when it is imported, and there is none here: " + failure.headline(description["message"])}
        return dict({"module": name, "status": "failed"}, **description)
    return {"module": name, "status": "passed"}


def together(libraries, job):
    result = {"name": "together", "status": "passed", "libraries": [library["name"] for library in libraries]}
    for library in libraries:
        distribution = importlib.metadata.distribution(library["distribution"])
        modules = imported(library, distribution, job)
        modules += [try_import(name, job) for name in (library["gpu_imports"] if job.device.get("gpu") else [])]
        bad = [module for module in modules if module["status"] == "failed"]
        if bad:
            return dict(result, status="failed", kind=bad[0]["kind"], modules=bad,
                        reason="{} imports alone, but not after the libraries before it: {}".format(
                            bad[0]["module"], failure.headline(bad[0]["message"])))
    return result


def editable(distribution):
    """Installed by reference to a source folder: PEP 610's mark, or the finder that setuptools leaves."""
    text = distribution.read_text("direct_url.json")
    if text:
        try:
            if json.loads(text).get("dir_info", {}).get("editable") is True:
                return True
        except (ValueError, AttributeError):
            pass  # not a document that says editable
    return any(os.path.basename(str(path)).startswith("__editable__") for path in distribution.files or [])


def shadowed(distribution, modules):
    """What is wrong, or worth a note, about where the modules came from and the version they claim."""
    owned = distribution.files
    top = sys.modules.get(modules[0].partition(".")[0]) if modules else None
    origin = getattr(top, "__file__", None)
    if origin is None:
        return {}  # a namespace has neither a file nor a version of its own
    if owned is not None:
        paths = {os.path.realpath(str(distribution.locate_file(path))) for path in owned}
        inside = os.path.realpath(origin) in paths
    else:
        inside = os.path.realpath(origin).startswith(os.path.realpath(str(distribution.locate_file(""))) + os.sep)
    if not inside and top.__name__ in getattr(sys, "stdlib_module_names", ()):
        return {"note": "Python has a module {} of its own, which is imported in its place".format(top.__name__)}
    claimed = getattr(top, "__version__", None)
    agrees = not isinstance(claimed, str) or related_version(claimed, distribution.version)
    if agrees:
        return {}
    if inside:
        return {"note": "the module says {}, its distribution {}".format(claimed, distribution.version)}
    return {"status": "failed", "kind": "version-mismatch",
            "reason": "{} {} is imported from {}, which is not the installed {}".format(
                top.__name__, claimed, origin, distribution.version)}
