#!/bin/sh
# What the README says about speed. Each figure is a median of whole processes on this machine.
set -eu
cd "$(dirname "$0")/.."
python3 benches/plan.py target/release/stackforge
python3 benches/diagnose.py target/release/stackforge
