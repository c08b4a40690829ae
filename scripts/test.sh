#!/bin/sh
# Every test: Rust's, and those of the Python programs that run inside images.
set -eu
python3 -m unittest discover -s tests -p '*_test.py'
cargo test --locked --no-fail-fast
