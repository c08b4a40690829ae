"""Applies changes to an unpacked source.

Usage: patch.py PATCHES.json, in the source's directory. PATCHES.json is a list of {"id", "file", ...} with one of

- "replace", "with": a text, and what stands in its place
- "remove_lines": a text; the lines that contain it are removed
- "split": {"parts", "listed_in"}: the file becomes as many, each with all of it but for its explicit instantiations of
  templates, of which each has its share; the line of `listed_in` that names the file names each of them then

A patch whose text is not there is an error: the source is not the one that the patch was written for.
"""

import json
import re
import sys
from pathlib import Path

# An explicit instantiation on one line: `template void f<float>(int);`, neither a template nor `extern template`.
INSTANCE = re.compile(r"[ \t]*template\s+(?![\s<])[^;{]*;\s*$")


class Unfit(Exception):
    """The source is not the one that a patch was written for."""


class Source:
    def __init__(self, root):
        self.root = root

    def path(self, name):
        path = (self.root / name).resolve()
        if self.root not in path.parents:
            raise Unfit(f"{name} is outside the source")
        return path

    def read(self, name):
        try:
            return self.path(name).read_text(encoding="utf-8")
        except OSError as error:
            raise Unfit(f"cannot read {name}: {error.strerror}") from error

    def write(self, name, text):
        self.path(name).write_text(text, encoding="utf-8")

    def replace(self, name, text, by):
        before = self.read(name)
        self.write(name, before.replace(text, by))
        return self.places(name, text, before.count(text))

    def remove_lines(self, name, text):
        lines = self.read(name).splitlines(keepends=True)
        kept = [line for line in lines if text not in line]
        self.write(name, "".join(kept))
        return self.places(name, text, len(lines) - len(kept))

    def places(self, name, text, count):
        if count == 0:
            raise Unfit(f"{name} does not hold {text!r}")
        return f"{count} places"

    def split(self, name, parts, listed_in):
        lines = self.read(name).splitlines(keepends=True)
        shares = {at: turn % parts for turn, at in enumerate(n for n, line in enumerate(lines) if INSTANCE.match(line))}
        if len(shares) < parts:
            raise Unfit(f"{name} has {len(shares)} explicit instantiations of templates, too few for {parts} parts")
        path = Path(name)
        sources = self.read(listed_in).splitlines(keepends=True)
        named = [n for n, line in enumerate(sources) if path.name in line]
        if len(named) != 1:
            raise Unfit(f"{listed_in} names {path.name} in {len(named)} lines, and one is its list of sources")
        names = [f"{path.stem}_part{part + 1}{path.suffix}" for part in range(parts)]
        for part, part_name in enumerate(names):
            if self.path(str(path.with_name(part_name))).exists():
                raise Unfit(f"{path.with_name(part_name)} is there already")
            text = "".join(line for n, line in enumerate(lines) if shares.get(n, part) == part)
            self.write(str(path.with_name(part_name)), text)
        line = sources[named[0]]
        sources[named[0]] = "".join(line.replace(path.name, part_name) for part_name in names)
        self.write(listed_in, "".join(sources))
        return f"{parts} parts, listed in {listed_in}"


def made(source, patch):
    """Makes a change and says what it did."""
    if "split" in patch:
        return source.split(patch["file"], **patch["split"])
    if "remove_lines" in patch:
        return source.remove_lines(patch["file"], patch["remove_lines"])
    return source.replace(patch["file"], patch["replace"], patch["with"])


def main() -> int:
    source = Source(Path.cwd().resolve())
    for patch in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        try:
            print(f"patch {patch['id']}: {patch['file']}, {made(source, patch)}")
        except Unfit as fault:
            print(f"patch {patch['id']}: {fault}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
