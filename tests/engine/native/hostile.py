"""Wheels and a layer that mean harm: hostile.py CASE FILE."""

import base64
import hashlib
import io
import os
import stat
import sys
import tarfile
import zipfile

METADATA = "Metadata-Version: 2.1\nName: {}\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheel(case, path):
    stem = os.path.basename(path).split("-")[0]
    extra = {
        "covers": [("victim/__init__.py", b"EVIL = 1\n")],
        "victim": [],
        "interpreter-folder": [("evil-1.0.data/data/bin/python3/x", b"x")],
        "interpreter-folder-version": [("evil-1.0.data/data/bin/python3.13/x", b"x")],
        "environment": [("evil-1.0.data/data/bin", b"x")],
        "metadata": [("evil-1.0.data/purelib/torch-9.0.dist-info/METADATA", b"Name: torch\nVersion: 9.0\n")],
        "traversal": [("../../../../../../tmp/stackforge-escaped", b"x")],
        "absolute": [("/tmp/stackforge-escaped", b"x")],
        "data-traversal": [("evil-1.0.data/data/../../../../tmp/stackforge-escaped", b"x")],
        "interpreter": [("evil-1.0.data/scripts/python", b"x")],
        "interpreter-data": [("evil-1.0.data/data/bin/python3", b"x")],
        "interpreter-version": [("evil-1.0.data/data/bin/python3.13", b"x")],
        "interpreter-home": [("evil-1.0.data/data/pyvenv.cfg", b"home = /tmp\n")],
        "interpreter-command": [("evil-1.0.dist-info/entry_points.txt", b"[console_scripts]\npython3 = evil:main\n")],
        "case": [("evil/A.py", b"x"), ("evil/a.py", b"y")],
        "twice": [("evil/a.py", b"x"), ("evil/a.py", b"y")],
        "whiteout": [("evil/.wh.b.py", b"x")],
        "bomb": [("evil/a.bin", bytes(64 << 20))],
    }[case]
    info = stem + "-1.0.dist-info/"
    files = [(stem + "/__init__.py", b""), *extra]
    files += [(info + name, text.encode()) for name, text in (("METADATA", METADATA.format(stem)), ("WHEEL", WHEEL))]
    line = lambda content: "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    record = "".join("{},{},{}\n".format(
        name, line(content), len(content)) for name, content in files)
    files.append((info + "RECORD", (record + info + "RECORD,,\n").encode()))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    if case == "bomb":
        # It says that it is small.
        with open(path, "r+b") as file:
            data = file.read().replace((64 << 20).to_bytes(4, "little"), (64).to_bytes(4, "little"))
            file.seek(0)
            file.write(data)


def layer(case, path):
    def member(name, kind=tarfile.REGTYPE, link="", content=b""):
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.size = kind, link, len(content)
        return info, content
    members = {
        "traversal": [member("../../../../../tmp/stackforge-escaped", content=b"x")],
        "link-out": [member("out", tarfile.SYMTYPE, "/tmp"), member("out/stackforge-escaped", content=b"x")],
        "hard-link": [member("secret", tarfile.LNKTYPE, "../../../../../etc/shadow")],
        "device": [member("dev/disk", tarfile.BLKTYPE)],
    }[case]
    with tarfile.open(path, "w") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))


kind, case, path = sys.argv[1:]
(wheel if kind == "wheel" else layer)(case, path)
