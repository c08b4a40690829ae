#!/bin/sh
# Records docs/pictures/first.svg anew: a check that fails, and a first build.
set -eu
cd "$(dirname "$0")/.."
program=$(realpath "${STACKFORGE:-${CARGO_TARGET_DIR:-target}/release/stackforge}")
tools=target/recording-tools
if [ ! -x "$tools/bin/python" ]; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check pyte==0.8.2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/stacks"
ln -s "$program" "$work/bin/stackforge"
cp tests/console/check/thor.yaml examples/tiny.yaml "$work/stacks"
PATH=$work/bin:$PATH STACKFORGE_STORE=$work/store "$tools/bin/python" scripts/recording.py docs/pictures/first.svg \
    --folder "$work/stacks" 'stackforge check thor.yaml' 'stackforge build tiny.yaml --engine native -o oci:tiny'
