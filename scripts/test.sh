#!/bin/sh
# Every test: those of the Python programs that run inside images, Rust's, the examples of the documentation, and a look
# at each page of the book with a browser. At the end stand the ten slowest tests, what was left out, and which of
# nextest's tests failed, with the end of what they printed. Without cargo-nextest, `cargo test` runs the programs one
# after another and says only what was left out; nothing looks at the book then.
set -eu
STACKFORGE_TEST_LEFT_OUT=$(mktemp)
export STACKFORGE_TEST_LEFT_OUT
of_python=$(mktemp)
of_docs=$(mktemp)
of_doctests=$(mktemp)
python=
docs=
doctests=
# With `-e` a command that fails in a trap decides the exit status.
trap 'kill $python $docs $doctests 2>/dev/null || true; rm -f "$STACKFORGE_TEST_LEFT_OUT" "$of_python" "$of_docs" "$of_doctests"' EXIT
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
        # Tests wait for engines and mirrors part of their time, and what the book's test needs fills it.
        if command -v chromium >/dev/null 2>&1; then
            nice -n 19 sh scripts/docs-tools.sh >"$of_docs" 2>&1 &
            docs=$!
        else
            echo "the book's pages in a browser: no chromium here (scripts/docs.sh)" >>"$STACKFORGE_TEST_LEFT_OUT"
        fi
        sh scripts/test-engine.sh cargo nextest run --locked --workspace --test-threads "$threads" || failed="$failed nextest"
    else
        failed="$failed build"
    fi
    cargo test --locked --workspace --doc --no-fail-fast >"$of_doctests" 2>&1 &
    doctests=$!
    if [ -n "$docs" ]; then
        if wait "$docs"; then
            STACKFORGE=$target/debug/stackforge sh scripts/docs.sh || failed="$failed docs"
        else
            cat "$of_docs"
            echo "the book's pages in a browser: mdbook or playwright cannot be had" >>"$STACKFORGE_TEST_LEFT_OUT"
        fi
        docs=
    fi
    wait "$doctests" || failed="$failed doc"
    doctests=
    cat "$of_doctests"
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
