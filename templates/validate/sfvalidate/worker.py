"""The child process: runs the units of one check and writes down what happens.

Each event is one JSON line in a file, written at once, so that a crash or hang loses nothing that
came before it: {"step": "importing torch"}, {"result": {...}}, {"done": true}. An exception that
a check does not handle is that unit's failure. After a failed unit the worker stops, since the
GPU's context or a library's state may be unusable, and the parent starts another for the rest.
"""

import importlib
import json

from sfvalidate import failure, spec

MODULES = {
    "machine": "machine",
    "imports": "imports",
    "cuda": "cuda_build",
    "triton": "triton_check",
    "compile": "compile_check",
    "attention": "attention",
    "options": "options",
    "vllm": "vllm_smoke",
}


class Job:
    """What a unit may use: the spec, the device, a place to keep things, and a sign of life."""

    def __init__(self, stack, device, events):
        self.spec = stack
        self.device = device
        self.events = events
        self.kept = {}

    def keep(self, name, make):
        """The value that `make` gave the first time in this process."""
        if name not in self.kept:
            self.kept[name] = make()
        return self.kept[name]

    def step(self, doing):
        self.write({"step": doing})

    def write(self, event):
        self.events.write(json.dumps(event, allow_nan=False) + "\n")
        self.events.flush()


def module(check):
    return importlib.import_module("sfvalidate." + MODULES[check])


def work(check, units, spec_path, device, out):
    runs = module(check)
    with open(out, "a", encoding="utf-8") as events:
        job = Job(spec.read(spec_path), json.loads(device), events)
        for unit in units:
            job.write({"unit": unit})
            try:
                result = runs.run(unit, job)
            except Exception as error:
                result = failed(unit, error)
            job.write({"result": result})
            if result["status"] == "failed":
                break
        job.write({"done": True})
    return 0


def failed(unit, error):
    """The result of a unit that raised."""
    return dict({"name": unit, "status": "failed", "reason": failure.summary(error)}, **failure.describe(error))
