"""Leaves out of installed distributions what only compilers read, and its lines in their RECORD.

Usage: slim.py RULES; RULES are globs by distribution, from catalog/slim.yaml: `*` and `?` within a
folder, `**` across. Builder stages start earlier and still have everything.
"""

import csv
import glob
import json
import os
import re
import sys

WORDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def compiled(text):
    words = re.split(r"(\*\*/|\*\*|\*|\?)", text)
    return re.compile("".join(WORDS.get(word) or re.escape(word) for word in words))


def remove(site, path):
    os.unlink(os.path.join(site, path))
    folder = os.path.dirname(path)
    while folder and not os.listdir(os.path.join(site, folder)):
        os.rmdir(os.path.join(site, folder))
        folder = os.path.dirname(folder)


with open(sys.argv[1]) as file:
    rules = json.load(file)
for information in glob.glob("/opt/venv/lib/python*/site-packages/*.dist-info"):
    site, name = os.path.split(information)
    drops = [compiled(text) for text in rules.get(re.sub(r"[-_.]+", "-", name.split("-")[0]).lower(), [])]
    if not drops:
        continue
    record = os.path.join(information, "RECORD")
    with open(record, newline="") as file:
        lines = file.readlines()
    kept = []
    for line in lines:
        path = next(csv.reader([line]))[0]
        if any(drop.fullmatch(path) for drop in drops):
            remove(site, path)
        else:
            kept.append(line)
    if len(kept) < len(lines):
        with open(record, "w", newline="") as file:
            file.writelines(kept)
