"""Applies textual changes to an unpacked source.

Usage: patch.py PATCHES.json, in the source's directory. PATCHES.json is a list of
{"id", "file", "replace", "with"}; with "lines": true, the lines that contain `replace` are removed.
A patch whose text is not there is an error: the source is not the one that the patch was written for.
"""

import json
import sys
from pathlib import Path


def changed(text, patch):
    """The new text and the number of changed places."""
    if not patch.get("lines"):
        return text.replace(patch["replace"], patch["with"]), text.count(patch["replace"])
    lines = text.splitlines(keepends=True)
    kept = [line for line in lines if patch["replace"] not in line]
    return "".join(kept), len(lines) - len(kept)


def main() -> int:
    root = Path.cwd().resolve()
    for patch in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        path = (root / patch["file"]).resolve()
        if root not in path.parents:
            print(f"patch {patch['id']}: {patch['file']} is outside the source", file=sys.stderr)
            return 1
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            print(f"patch {patch['id']}: cannot read {patch['file']}: {error.strerror}", file=sys.stderr)
            return 1
        text, count = changed(text, patch)
        if count == 0:
            print(f"patch {patch['id']}: {patch['file']} does not hold {patch['replace']!r}", file=sys.stderr)
            return 1
        path.write_text(text, encoding="utf-8")
        print(f"patch {patch['id']}: {patch['file']}, {count} places")
    return 0


if __name__ == "__main__":
    sys.exit(main())
