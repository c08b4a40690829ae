"""How much of a compile the cache of objects saves: causal-conv1d 1.7.0, compiled by nvcc with the native engine.

Usage: compile.py PATH_OF_STACKFORGE [GiB]. Fetches some 3 GB, kept in target/bench/compile, and compiles for most of
an hour on two cores. Each case begins with the cache that it names and a step that was never done, so only
objects can come from an earlier one; printed are its seconds, and their ratio to a cold compile of the same run.

- cold: nothing is kept
- again: the same once more
- one SM more: for sm_90 and sm_110, over the objects of sm_90
- a comment: in one source file, over the same for both
- killed: at half of a cold compile's time, and begun again
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

DIR = os.path.abspath("target/bench/compile")
STACK = """stack: bench-compile
base: debian-bookworm
target: {{ platform: linux/amd64, gpu: [{gpus}] }}
python: "3.11"
libraries:
  torch: "2.13.0"
  causal-conv1d: {{ version: "1.7.0", from: source, env: {{ BENCH_CASE: "{case}" }} }}
jit: false
bytecode: false
"""
PATCH = """    - id: comment
      file: csrc/causal_conv1d_bwd.cu
      replace: "Tri Dao."
      with: "Tri Dao, and this is a comment."
      why: a comment that changed
      source: bench
"""
ONE, BOTH = "sm_90", "sm_90, sm_110"


class Bench:
    def __init__(self, program):
        self.program = os.path.abspath(program)
        self.case = 0
        self.store = DIR + "/store"
        self.objects = self.store + "/objects"
        os.makedirs(DIR + "/.stackforge/libraries", exist_ok=True)

    def write(self, gpus, comment):
        self.case += 1
        # The number of the run, too: nothing of an earlier run of this program is this step.
        case = "%d-%d" % (os.getpid(), self.case)
        with open(DIR + "/s.yaml", "w") as file:
            file.write(STACK.format(gpus=gpus, case=case))
        own = DIR + "/.stackforge/libraries/causal-conv1d.yaml"
        if comment:
            with open("catalog/libraries/causal-conv1d.yaml") as file:
                recipe = file.read()
            with open(own, "w") as file:
                file.write(recipe.replace("  patches:\n", "  patches:\n" + PATCH))
        elif os.path.exists(own):
            os.remove(own)

    def command(self, *more):
        return [self.program, "--store", self.store, "build", DIR + "/s.yaml", "--json", "--engine", "native"] + [
            "-o", "oci:" + DIR + "/layout", *more]

    def compile(self, gpus, comment=False):
        """Seconds of the compile and the objects that came from the cache, or None where there is no cache."""
        self.write(gpus, comment)
        done = subprocess.run(self.command(), cwd=DIR, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(done.stdout[-3000:] + done.stderr[-3000:])
        document = json.loads(done.stdout)
        [step] = [s for s in document["steps"] if s["id"] == "compile:causal-conv1d"]
        events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
        objects = [e for e in events if e.get("event") == "objects"]
        return step["seconds"], objects[-1] if objects else None

    def kill_at(self, seconds, gpus):
        """Starts a compile and kills it so many seconds after its step began."""
        self.write(gpus, False)
        child = subprocess.Popen(self.command(), cwd=DIR, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                 start_new_session=True)
        for line in child.stderr:
            if '"step_started"' in line and "compile causal-conv1d" in line:
                break
        time.sleep(seconds)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()

    def forget(self):
        shutil.rmtree(self.objects, ignore_errors=True)


def said(objects):
    if objects is None:
        return "no cache"
    return "{cached} of {objects} objects, {cached_device} of {device} device steps".format(**objects)


def main():
    bench = Bench(sys.argv[1])

    def show(what, took, cold):
        seconds, objects = took
        print("%-14s %7.1f s  %4.2f  %s" % (what, seconds, seconds / cold, said(objects)), flush=True)

    print("causal-conv1d 1.7.0 on %d processors" % os.cpu_count())
    bench.forget()
    one = bench.compile(ONE)
    show("cold, sm_90", one, one[0])
    more = bench.compile(BOTH)
    bench.forget()
    both = bench.compile(BOTH)
    show("cold, both", both, both[0])
    show("one SM more", more, both[0])
    show("again", bench.compile(BOTH), both[0])
    show("a comment", bench.compile(BOTH, comment=True), both[0])
    bench.forget()
    bench.kill_at(both[0] / 2, BOTH)
    show("after a kill", bench.compile(BOTH), both[0])


main()
