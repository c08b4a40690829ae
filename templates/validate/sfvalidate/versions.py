"""Versions as PEP 440 has them."""

import re

VERSION = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>alpha|a|beta|b|preview|pre|rc|c)[-_.]?(?P<pre_number>\d*))?"
    r"(?P<post>-(?P<implicit>\d+)|[-_.]?(?:post|rev|r)[-_.]?(?P<post_number>\d*))?"
    r"(?P<dev>[-_.]?dev[-_.]?(?P<dev_number>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?", re.ASCII)
PRE = {"alpha": "a", "beta": "b", "preview": "rc", "pre": "rc", "c": "rc"}


def same_version(expected, installed):
    """Equal as PEP 440 has it; a local part (+cu130) counts only if the stack names one."""
    if "+" not in expected:
        installed = installed.partition("+")[0]
    return canonical(expected) == canonical(installed)


def related_version(claimed, installed):
    """Equal, or the one a shorter form of the other: opencv 4.10.0.84's module says 4.10.0."""
    shorter, longer = sorted((canonical(claimed.partition("+")[0]), canonical(installed.partition("+")[0])), key=len)
    return longer[: len(shorter)] == shorter


def canonical(version):
    """The version's parts, spelled one way as PEP 440 has it, and without trailing zeros of the release."""
    text = version.strip().lower()
    found = VERSION.fullmatch(text)
    if not found:
        return re.findall(r"[0-9]+|[a-z]+|\+", text)
    release = [int(part) for part in found["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:
        del release[-1]
    parts = ["{}!".format(int(found["epoch"]))] if int(found["epoch"] or 0) else []
    parts += release
    if found["pre"]:
        parts += [PRE.get(found["pre"], found["pre"]), int(found["pre_number"] or 0)]
    if found["post"]:
        parts += ["post", int(found["implicit"] or found["post_number"] or 0)]
    if found["dev"]:
        parts += ["dev", int(found["dev_number"] or 0)]
    if found["local"]:
        parts += ["+", *(int(part) if part.isdigit() else part for part in re.split("[-_.]", found["local"]))]
    return parts
