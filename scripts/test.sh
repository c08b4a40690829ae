#!/bin/sh
# Every test: those of the Python programs that run inside images, Rust's, and the examples of the documentation.
# At the end stand the ten slowest tests and what was left out. Without cargo-nextest, `cargo test` runs the
# programs one after another and says only what was left out.
set -eu
STACKFORGE_TEST_LEFT_OUT=$(mktemp)
export STACKFORGE_TEST_LEFT_OUT
trap 'rm -f "$STACKFORGE_TEST_LEFT_OUT"' EXIT
failed=
python3 -m unittest discover -s tests -p '*_test.py' || failed="$failed python"
if cargo nextest --version >/dev/null 2>&1; then
    junit=${CARGO_TARGET_DIR:-target}/nextest/default/junit.xml
    rm -f "$junit"
    # Tests of engines mostly wait, so more run at a time than there are cores.
    threads=$(($(getconf _NPROCESSORS_ONLN) + 2))
    cargo nextest run --locked --workspace --no-run || failed="$failed build"
    [ -n "$failed" ] || sh scripts/test-engine.sh cargo nextest run --locked --workspace --test-threads "$threads" \
        || failed="$failed nextest"
    cargo test --locked --workspace --doc --no-fail-fast || failed="$failed doc"
    [ ! -e "$junit" ] || python3 scripts/slowest.py "$junit"
else
    cargo test --locked --workspace --no-fail-fast || failed="$failed cargo-test"
fi
if [ -s "$STACKFORGE_TEST_LEFT_OUT" ]; then
    echo "left out:"
    sort -u "$STACKFORGE_TEST_LEFT_OUT" | sed 's/^/  /'
else
    echo "left out: nothing"
fi
if [ -n "$failed" ]; then
    echo "failed:$failed" >&2
    exit 1
fi
