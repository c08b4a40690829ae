#!/bin/sh
# The format, lints, and the tests that need neither an engine nor the network. Some start programs that
# `scripts/setup.sh tests` installs.
set -eu
cargo fmt --all --check
cargo clippy --locked --all-targets -- -D warnings
cargo test --locked --workspace --lib \
    --test offline --test hostile --test fetch --test registry --test sandbox
