#!/bin/sh
# Gets what the book is built and looked at with, below target: mdbook, compiled, and playwright. Chromium is the
# system's (scripts/setup.sh tests).
set -eu
cd "$(dirname "$0")/.."
if ! command -v mdbook >/dev/null 2>&1 && [ ! -x target/docs-tools/bin/mdbook ]; then
    # In a build folder of its own: cargo lets one build at a time into one.
    CARGO_TARGET_DIR=$PWD/target/docs-build cargo install --locked --quiet --debug --root target/docs-tools --version 0.5.4 mdbook
    rm -rf target/docs-build
fi
if ! python3 -c 'import playwright' 2>/dev/null && [ ! -e target/docs-tools/python/playwright ]; then
    python3 -m pip install --quiet --disable-pip-version-check --target target/docs-tools/python playwright==1.65.2
fi
