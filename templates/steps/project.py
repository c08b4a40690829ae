"""Builds the wheel of a project (PEP 517), without network, with the image's Python and libraries.

Usage: project.py INPUTS WHEELS: INPUTS has the project's files (source.tar), what its build requires beyond the
image's libraries (requires/*.whl), and how it is built (project.json). The wheel goes to the folder WHEELS.
"""

import glob
import importlib
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
import zipfile

# Versions that tools read from a repository, whose history is no part of the image.
UNVERSIONED = {
    "SETUPTOOLS_SCM_PRETEND_VERSION": "0",
    "PDM_BUILD_SCM_VERSION": "0",
    "PBR_VERSION": "0",
    "POETRY_DYNAMIC_VERSIONING_BYPASS": "0",
}


def fail(text):
    sys.exit("stackforge: " + text)


def unpack(wheel, to):
    """Lay a wheel's modules into a folder, and its programs into bin."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(to)
        infos = archive.infolist()
    for info in infos:
        parts = info.filename.split("/")
        if len(parts) < 3 or not parts[0].endswith(".data") or info.is_dir():
            continue
        own = {"purelib": to, "platlib": to, "scripts": os.path.join(to, "bin"), "data": to}.get(parts[1])
        if own is None:
            continue
        target = os.path.join(own, *parts[2:])
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.move(os.path.join(to, *parts), target)
        os.chmod(target, 0o755)


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def missing(requirements):
    """Return those requirements of a hook whose distribution is not there."""
    from importlib import metadata

    known = {normal(dist.metadata["Name"] or "") for dist in metadata.distributions()}
    name = re.compile(r"\s*([A-Za-z0-9._-]+)")
    named = [(text, name.match(text)) for text in requirements if ";" not in text]
    return [text for text, found in named if found and normal(found.group(1)) not in known]


def backend(project, source):
    module, _, path = project["backend"].partition(":")
    sys.path[:0] = [os.path.join(source, folder) for folder in project["backend_path"]]
    try:
        found = importlib.import_module(module)
    except ImportError as e:
        fail("the build backend `{}` cannot be imported: {}".format(module, e))
    for part in filter(None, path.split(".")):
        found = getattr(found, part)
    return found


def extract(archive, to):
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "fully_trusted_filter"):
            tar.extractall(to, filter="fully_trusted")
        else:
            tar.extractall(to)


def main(inputs, wheels):
    with open(os.path.join(inputs, "project.json")) as file:
        project = json.load(file)
    work = tempfile.mkdtemp()
    source, requires = os.path.join(work, "source"), os.path.join(work, "requires")
    os.makedirs(requires)
    for wheel in sorted(glob.glob(os.path.join(inputs, "requires", "*.whl"))):
        unpack(wheel, requires)
    extract(os.path.join(inputs, "source.tar"), source)
    sys.path.insert(0, requires)
    os.environ.update(
        HOME=work,
        PATH=os.path.join(requires, "bin") + os.pathsep + os.environ.get("PATH", os.defpath),
        PYTHONPATH=requires,
        PYTHONHASHSEED="0",
        SOURCE_DATE_EPOCH=str(project["epoch"]),
    )
    for name, value in UNVERSIONED.items():
        os.environ.setdefault(name, value)
    os.chdir(source)
    hooks = backend(project, source)
    asked = getattr(hooks, "get_requires_for_build_wheel", lambda settings=None: [])()
    more = missing(asked)
    if more:
        fail("the build also requires {}: add it to `build-system.requires`".format(", ".join(more)))
    os.makedirs(wheels, exist_ok=True)
    name = hooks.build_wheel(wheels)
    with open(os.path.join(wheels, "name"), "w") as file:
        file.write(name)
    shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    os.umask(0o022)
    main(*sys.argv[1:])
