#!/bin/sh
# The format, lints, and every test that needs no engine, network or other program.
set -eu
cargo fmt --all --check
cargo clippy --locked --workspace --all-targets -- -D warnings
if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --locked --workspace --lib --bins --test offline --test keys
else
    cargo test --locked --workspace --no-fail-fast --lib --bins --test offline --test keys
fi
