"""A whole native build, with base, byte code, validation and audit, beside `docker build` with pip.

Usage: build.py PATH_OF_STACKFORGE [--before PATH_OF_AN_OLDER_ONE] [--runs N]

The stack is that of assemble.py: torch 2.13.0 on stackforge's own Debian base, 29 wheels, nothing compiled, packages and
wheels at hand. Runs are paired, one of each after the other; figures are medians, ratios medians over the pairs.

- now, before: an OCI layout from nothing but packages; what was unpacked or made of them before is removed. Memory is
  stackforge's own, without the Python that validates
- docker build: pip installs the same wheels from a local directory on the same base, which it has. It validates and
  audits nothing, and compiles no byte code

Needs Docker, curl and pip; what it fetches is kept in target/bench.
"""

import argparse
import os
import statistics
import subprocess

from assemble import DIR, PIP, docker, native, prepare


def steps(built):
    took = sorted(built["steps"], key=lambda step: -step["seconds"])
    return ", ".join(f"{step['id']} {step['seconds']:.1f}" for step in took[:8])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stackforge")
    parser.add_argument("--before")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    stores = {"now": prepare(options.stackforge)}
    programs = {"now": options.stackforge}
    if options.before:
        programs["before"], stores["before"] = options.before, os.path.abspath(f"{DIR}/store-before")
        native(options.before, stores["before"])
    rows = []
    try:
        for _ in range(options.runs):
            row = {}
            for name, program in programs.items():
                _, row[name], row[f"{name}, MiB"], built = native(program, stores[name])
                print(f"{name}: {row[name]:.1f} s; {steps(built)}", flush=True)
            row["pip"] = docker(PIP, f"{DIR}/context")
            print(f"docker build with pip: {row['pip']:.1f} s", flush=True)
            rows.append(row)
    finally:
        subprocess.run(["docker", "rmi", "-f", "bench-torch", "bench-base"], capture_output=True, check=False)
    median = lambda f: statistics.median(map(f, rows))
    print(f"now: {median(lambda r: r['now']):.1f} s, {median(lambda r: r['now, MiB']):.0f} MiB")
    for name in ("before", "pip"):
        if name in rows[0]:
            seconds, ratio = median(lambda r: r[name]), median(lambda r: r["now"] / r[name])
            print(f"{name}: {seconds:.1f} s; now is {ratio:.2f} of it")


if __name__ == "__main__":
    main()
