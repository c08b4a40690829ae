#!/bin/sh
# Format, lints, and the tests that need no engine, network or other program.
set -eu
cargo fmt --all --check
cargo clippy --locked --all-targets -- -D warnings
cargo test --locked --workspace --lib \
    --test offline --test hostile --test fetch --test registry --test sandbox
