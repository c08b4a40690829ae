#!/bin/sh
# What the README says about speed. Each figure is a median of whole processes on this machine.
set -eu
cd "$(dirname "$0")/.."
python3 benches/plan.py target/release/stackforge
python3 benches/diagnose.py target/release/stackforge
# One wheel of the size that counts; kept, so that a second run downloads nothing.
python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 \
    --platform manylinux_2_28_x86_64 --dest target/bench torch==2.13.0
cargo bench --quiet --bench layer -- "$PWD"/target/bench/torch-*.whl
