#!/bin/sh
# What the README says about speed. Each figure is a median of whole processes on this machine.
set -eu
cd "$(dirname "$0")/.."
program=${CARGO_TARGET_DIR:-target}/release/stackforge
python3 benches/plan.py "$program"
python3 benches/diagnose.py "$program"
# One wheel of the size that counts; kept, so that a second run downloads nothing.
python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 \
    --platform manylinux_2_28_x86_64 --dest target/bench torch==2.13.0
cargo bench --quiet --bench layer -- "$PWD"/target/bench/torch-*.whl
cargo bench --quiet --bench prune -- 9.0 "$PWD"/target/bench/pruned "$PWD"/target/bench/torch-*.whl
# Fetches some 8 GB the first time.
inflate=$(cargo bench --quiet --no-run --bench inflate --message-format json | python3 -c '
import json, sys
print(*filter(None, (json.loads(line).get("executable") for line in sys.stdin)))')
python3 benches/audit.py "$program" "$inflate"
# With what the audit's fetched.
cargo bench --quiet --bench pack -- "$PWD"/target/bench/libtorch_cuda.so \
    "$PWD"/target/bench/hopper-cuda13/torch/lib/libtorch_cpu.so \
    "$PWD"/target/bench/hopper-cuda13/torch/lib/libtorch_cuda.so
# Against Docker, pip, uv and skopeo; some 7 GB more.
python3 benches/assemble.py "$program" "$inflate"
python3 benches/build.py "$program"
python3 benches/start.py "$program"
cargo bench --quiet --bench sandbox
# Against a registry on loopback.
python3 benches/pull.py "$program"
python3 benches/rootfs.py "$program"
# The same between two real stacks: 6 GB of wheels and 45 GB of disk.
python3 benches/update.py "$program"
