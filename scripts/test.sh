#!/bin/sh
# Every test: those of the Python programs that run inside images, Rust's, and the examples of the documentation.
# At the end stand the ten slowest tests, what was left out, and which of nextest's tests failed, with the end
# of what they printed. Without cargo-nextest, `cargo test` runs the programs one after another and says only what was left out.
set -eu
STACKFORGE_TEST_LEFT_OUT=$(mktemp)
export STACKFORGE_TEST_LEFT_OUT
of_python=$(mktemp)
python=
# With `-e` a command that fails in a trap decides the exit status.
trap '[ -z "$python" ] || kill "$python" 2>/dev/null || true; rm -f "$STACKFORGE_TEST_LEFT_OUT" "$of_python"' EXIT
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
target=$(cd "$target" && pwd)
failed=
# They mostly wait, so they run beside the build.
python3 -m unittest discover -s tests -p '*_test.py' >"$of_python" 2>&1 &
python=$!
# Tests lock in stores of their own, and each would fetch uv anew. (Where a test clears PATH, it does.)
uv=$(sed -n '/^- name: uv$/,/^- name/s/^  version: "\(.*\)"$/\1/p' catalog/tools.yaml)
tools=$target/test-tools/uv-$uv
if [ ! -x "$tools/bin/uv" ]; then
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$tools" "uv==$uv" || true
fi
PATH=$tools/bin:$PATH
if cargo nextest --version >/dev/null 2>&1; then
    # nextest writes below the workspace's `target`, whatever CARGO_TARGET_DIR is.
    junit=target/nextest/default/junit.xml
    rm -f "$junit"
    # Tests of engines mostly wait, so more run at a time than there are cores.
    threads=$(($(getconf _NPROCESSORS_ONLN) + 3))
    if cargo nextest run --locked --workspace --no-run; then
        sh scripts/test-engine.sh cargo nextest run --locked --workspace --test-threads "$threads" || failed="$failed nextest"
    else
        failed="$failed build"
    fi
    cargo test --locked --workspace --doc --no-fail-fast || failed="$failed doc"
    # A look at each page of the book, where there are the programs for it: they take minutes to install.
    if command -v mdbook >/dev/null 2>&1 && command -v chromium >/dev/null 2>&1 && python3 -c 'import playwright' 2>/dev/null; then
        STACKFORGE=$target/debug/stackforge sh scripts/docs.sh || failed="$failed docs"
    else
        echo "the book's pages in a browser: no mdbook, chromium or playwright here (scripts/docs.sh)" >>"$STACKFORGE_TEST_LEFT_OUT"
    fi
    [ ! -e "$junit" ] || python3 scripts/junit.py "$junit" || true
else
    cargo test --locked --workspace --no-fail-fast || failed="$failed cargo-test"
fi
wait "$python" || failed="$failed python"
python=
cat "$of_python"
if [ -s "$STACKFORGE_TEST_LEFT_OUT" ]; then
    echo "left out:"
    sort -u "$STACKFORGE_TEST_LEFT_OUT" | sed 's/^/  /'
else
    echo "left out: nothing"
fi
[ ! -e "${junit:-}" ] || python3 scripts/junit.py "$junit" --failed || true
if [ -n "$failed" ]; then
    echo "failed:$failed" >&2
    exit 1
fi
