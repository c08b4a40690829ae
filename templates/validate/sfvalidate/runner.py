"""The parent's side of one check: starts workers, watches them, and turns what they did into results.

A unit whose process dies is a failed result that names the signal, what the unit was doing and
the last lines of its stderr; one that gives no sign of life for the time limit is asked for its
stack (SIGABRT, which faulthandler answers), then killed. The units after it run in a new process.
Nothing that a worker started outlives it.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

from sfvalidate import worker

LAST_LINES = 20
LINE_LENGTH = 400
POLL_SECONDS = 0.02
STACK_SECONDS = 5
EXIT_SECONDS = 10  # for a process that has given all its results
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def run_units(program, spec_path, spec, check, units, device):
    """The results of all units, in their order."""
    limit = spec["time_limit"] or worker.module(check).LIMIT
    isolated = worker.module(check).ISOLATED
    pending, results = list(units), []
    while pending:
        batch = pending[:1] if isolated else pending
        got, ending = run_worker(program, spec_path, check, batch, device, limit)
        results.extend(got)
        pending = pending[len(got):]
        # Every round settles one unit at least: a worker that stops early has a failed result.
        if ending is not None and len(got) < len(batch):
            results.append(dict({"name": pending.pop(0), "status": "failed"}, **ending))
    return results


def run_worker(program, spec_path, check, units, device, limit):
    """(results, None), or (results, why the next unit has none)."""
    with tempfile.TemporaryDirectory(prefix="validate-") as folder:
        events, output = os.path.join(folder, "events"), os.path.join(folder, "output")
        scratch = os.path.join(folder, "scratch")
        os.mkdir(scratch)
        command = [sys.executable, "-B", "-X", "faulthandler", program, "--spec", os.path.abspath(spec_path),
                   "--out", events, "--worker", check, "--device", json.dumps(device)]
        for unit in units:
            command += ["--unit", unit]
        open(events, "w", encoding="utf-8").close()
        with open(output, "wb") as sink:
            process = subprocess.Popen(command, cwd=scratch, env=environment(scratch), stdin=subprocess.DEVNULL,
                                       stdout=sink, stderr=sink, start_new_session=True)
        progress = Progress(events)
        try:
            hung = watch(process, progress, limit)
        finally:
            end(process)
        progress.read()
        if progress.done and progress.results:
            if progress.results[-1]["status"] == "failed" and last_lines(output):
                # What it printed last belongs to the failure: a compiler's message, for one.
                progress.results[-1]["output"] = last_lines(output)
            return progress.results, None
        return progress.results, ending(process.returncode, hung, limit, progress.doing, last_lines(output))


class Progress:
    """The worker's events so far."""

    def __init__(self, path):
        self.path, self.offset = path, 0
        self.results, self.doing, self.done = [], "starting", False

    def read(self):
        """Whether anything new came."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            text = file.read()
        complete = text[: text.rfind(b"\n") + 1]
        self.offset += len(complete)
        for line in complete.splitlines():
            event = json.loads(line)
            if "result" in event:
                self.results.append(event["result"])
            if "unit" in event:
                self.doing = "running " + event["unit"]
            self.doing = event.get("step", self.doing)
            self.done = self.done or "done" in event
        return bool(complete)


def watch(process, progress, limit):
    """Wait for the end; True if the limit came first (the process then has been asked for its stack)."""
    deadline = time.monotonic() + limit
    while process.poll() is None:
        if progress.read():
            deadline = time.monotonic() + (EXIT_SECONDS if progress.done else limit)
        if time.monotonic() > deadline:
            process.send_signal(signal.SIGABRT)
            try:
                process.wait(STACK_SECONDS)
            except subprocess.TimeoutExpired:
                pass  # it is killed by the caller
            return True
        time.sleep(POLL_SECONDS)
    return False


def end(process):
    """End the worker and everything it started: they share its process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all have ended
    process.wait()


def ending(code, hung, limit, doing, lines):
    if hung:
        cause = {"kind": "time-limit", "reason": "no sign of life for {:g} s while {}".format(limit, doing)}
    elif code < 0:
        name = signal_name(-code)
        hint = " (the kernel does this when memory runs out)" if name == "SIGKILL" else ""
        cause = {"kind": "signal", "signal": name, "reason": "killed by {} while {}{}".format(name, doing, hint)}
    else:
        cause = {"kind": "exit", "reason": "its process ended with exit code {} while {}".format(code, doing)}
    return dict(cause, output=lines)


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal {}".format(number)


def last_lines(path):
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - LAST_LINES * LINE_LENGTH * 4))
        text = file.read().decode("utf-8", "replace")
    lines = [ESCAPES.sub("", line).rstrip()[:LINE_LENGTH] for line in text.splitlines()]
    return [line for line in lines if line][-LAST_LINES:]


def environment(scratch):
    """This process's environment, with every cache inside the scratch folder: each run compiles
    anew, needs no writable home, and leaves nothing behind."""
    return dict(
        os.environ,
        PYTHONUNBUFFERED="1",
        TMPDIR=scratch,
        XDG_CACHE_HOME=os.path.join(scratch, "cache"),
        TRITON_CACHE_DIR=os.path.join(scratch, "triton"),
        TORCHINDUCTOR_CACHE_DIR=os.path.join(scratch, "inductor"),
    )
