"""The whole validation: every check in order, and one report of them.

    {"schema": 1, "stack", "spec", "ok", "device": {"gpu", "sm", "count", "driver", "driver_cuda", "cuda", "cpu",
     "machine", "torch", "python"}, "checks": [{"name", "status", "reason"?, "results": [...], ...}]}

`spec` is the digest of the spec.json that was read. A check's status is `failed` if any result failed, `not-run` if nothing ran, else `passed`; only
`failed` makes the report not ok. What was measured lies under "timing" and "accuracy" keys alone:
without those two, two runs on the same machine write the same report. The report is written
whatever happens: a malformed spec, a signal and a fault in this program are entries in it.
"""

import hashlib
import json
import os
import platform
import signal
import sys

from sfvalidate import failure, runner, worker
from sfvalidate import spec as specs
from sfvalidate.machine import NO_DEVICE


class Stopped(Exception):
    """Someone asked this program to end."""


def validate(program, spec_path, out):
    """The exit code: 0 if the report is ok."""
    document = {"schema": 1, "stack": None, "spec": digest(spec_path), "ok": False, "device": dict(NO_DEVICE), "checks": []}
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    waiting = []
    try:
        spec = specs.read(spec_path)
        document["stack"] = spec["stack"]
        waiting = list(spec["checks"])
        document["device"] = ask_machine(program, spec_path, spec)
        if spec["require_gpu"] and document["device"]["gpu"] is None:
            add(document, entry("gpu", "failed", document["device"]["no_gpu"]))
        while waiting:
            add(document, run_check(program, spec_path, spec, waiting[0], document["device"]))
            waiting.pop(0)
    except specs.SpecError as error:
        add(document, entry("spec", "failed", str(error)))
    except Stopped as error:
        for name in waiting:
            add(document, entry(name, "not-run", str(error)))
        add(document, entry("validate", "failed", str(error)))
    except Exception as error:
        add(document, dict(entry("validate", "failed", failure.summary(error)), **failure.describe(error)))
    document["ok"] = all(check["status"] != "failed" for check in document["checks"])
    write(document, out)
    return 0 if document["ok"] else 1


def digest(path):
    """sha256:… of a file; None if it cannot be read, which the spec's reader explains."""
    try:
        with open(path, "rb") as file:
            return "sha256:" + hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def stop(number, frame):
    raise Stopped("ended by {}".format(runner.signal_name(number)))


def ask_machine(program, spec_path, spec):
    """The device, or one with no GPU and the reason why it could not be asked."""
    answer = runner.run_units(program, spec_path, spec, "machine", ["machine"], {})[0]
    device = dict(NO_DEVICE, cpu=None, machine=platform.machine())
    device.update(answer.get("device") or {"no_gpu": "no GPU: asking the driver failed: {}".format(answer["reason"])})
    device.update(cuda=None, torch=None, python=platform.python_version())
    device.update(installed_torch())
    return device


def installed_torch():
    """torch's version and CUDA, read from its version.py: importing torch is a check's affair."""
    import importlib.util

    try:
        found = importlib.util.find_spec("torch")
        path = os.path.join(found.submodule_search_locations[0], "version.py")
        facts = {}
        with open(path, encoding="utf-8") as file:
            exec(compile(file.read(), path, "exec"), {"__name__": "torch.version"}, facts)
    except Exception:
        return {}  # torch is absent, or not torch: the imports check says so
    return {"cuda": facts.get("cuda"), "torch": facts.get("__version__")}


def run_check(program, spec_path, spec, name, device):
    check = worker.module(name)
    obstacle = check.obstacle(spec, device)
    if obstacle is not None:
        return dict(entry(name, *obstacle), **check.facts(spec, device))
    units = check.units(spec, device)
    results = runner.run_units(program, spec_path, spec, name, units, device)
    later = getattr(check, "afterwards", None)
    if later is not None:
        results += runner.run_units(program, spec_path, spec, name, later(results), device)
    return dict(entry(name, *conclusion(results), results=results), **check.facts(spec, device))


def conclusion(results):
    """(status, reason) of a check from its results."""
    bad = [result for result in results if result["status"] == "failed"]
    if bad:
        names = {}
        for result in bad:
            names.setdefault(result["reason"], []).append(result["name"])
        return "failed", "; ".join("{}: {}".format(", ".join(which), reason) for reason, which in names.items())
    if any(result["status"] == "passed" for result in results):
        return "passed", None
    reasons = [result["reason"] for result in results]
    return "not-run", "; ".join(dict.fromkeys(reasons)) or "the stack names nothing for it to do"


def entry(name, status, reason=None, results=()):
    check = {"name": name, "status": status}
    if reason is not None:
        check["reason"] = reason
    return dict(check, results=list(results))


def add(document, check):
    document["checks"].append(check)
    reason = check.get("reason")
    line = "{}: {}{}".format(check["name"], check["status"], ": " + reason if reason else "")
    print(" ".join(line.split())[:300], file=sys.stderr, flush=True)


def write(document, out):
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    if out == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    temporary = out + ".part"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, out)
