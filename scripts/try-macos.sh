#!/bin/sh
# Tries a program of another system than Linux on that system, a Mac for instance: what works everywhere has to work, and
# what takes Linux has to say so. Builds the program with cargo unless one is given. Needs Python 3 with pip and the
# network, for two wheels and a base of Debian packages.
#
#     scripts/try-macos.sh [PROGRAM]
set -eu
cd "$(dirname "$0")/.."
if [ $# -eq 0 ]; then
    cargo build --locked --bin stackforge
    set -- "${CARGO_TARGET_DIR:-$PWD/target}/debug/stackforge"
fi
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export STACKFORGE_STORE="$work/store"
# No engine: what Docker Desktop does is tried where there is one.
export DOCKER_HOST="unix://$work/none.sock"

# Runs a command that has to end with this status, and to say this.
try() {
    wanted=$1 said=$2
    shift 2
    echo "stackforge $*"
    status=0
    "$program" "$@" >"$work/said" 2>&1 || status=$?
    if [ "$status" != "$wanted" ] || ! grep -q "$said" "$work/said"; then
        cat "$work/said" >&2
        echo "try-macos: it ended with $status, and $wanted and \"$said\" were expected" >&2
        exit 1
    fi
}

try 0 '^stackforge ' --version
try 0 'only Linux runs programs of an image' doctor
try 0 '' check examples/tiny.yaml
try 0 'base' plan examples/tiny.yaml
cp examples/tiny.yaml "$work/tiny.yaml"
try 0 'written' lock "$work/tiny.yaml"
cmp examples/tiny.lock "$work/tiny.lock" || echo "newer releases were locked"
try 0 'not validated here' build examples/tiny.yaml --locked --engine native -o "oci:$work/tiny"
try 0 '' diagnose tests/fixtures/logs/abi-new-extension.log
try 0 '' audit "oci:$work/tiny"
try 3 SF0335 validate "oci:$work/tiny"
try 3 SF0335 run "oci:$work/tiny" -- true
try 3 SF0335 run --engine native tiny -- true
try 3 SF0335 validate rootfs:/
echo "image $(sed -n 's/.*"digest": *"\(sha256:[0-9a-f]*\)".*/\1/p' "$work/tiny/index.json")"
