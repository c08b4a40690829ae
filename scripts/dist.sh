#!/bin/sh
# Makes what is published, in target/dist: programs, wheels, Debian packages, an SBOM and checksums
# (scripts/sign-dist.sh signs those). Needs rustup, Python 3, and the network for crates and wheels; zig links for the
# other processor and for the old glibc.
#
# The same commit and the same tools give the same bytes: no clock and no path of this machine is in a file.
#
#     scripts/dist.sh [ARCHITECTURE...]     amd64 and arm64 without one
set -eu
cd "$(dirname "$0")/.."
out=target/dist
tools=target/dist-tools
# The oldest glibc that the programs run on: Debian 10, RHEL 8 and JetPack 5 have no older one.
# docs/install.md says why they are not static.
glibc=2.28

if [ ! -x "$tools/bin/cargo-zigbuild" ]; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --requirement scripts/dist-tools.txt
fi
if ! command -v cargo-deb >/dev/null 2>&1 && [ ! -x "$tools/bin/cargo-deb" ]; then
    cargo install --locked --quiet --debug --root "$tools" --version 3.8.0 cargo-deb
fi
PATH=$PWD/$tools/bin:$PATH
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
home=${CARGO_HOME:-$HOME/.cargo}
RUSTFLAGS="--remap-path-prefix=$PWD=/stackforge --remap-path-prefix=$home=/cargo"
CFLAGS="-ffile-prefix-map=$PWD=/stackforge -ffile-prefix-map=$home=/cargo"
CARGO_TARGET_DIR=$PWD/target/dist-build
export PATH SOURCE_DATE_EPOCH RUSTFLAGS CFLAGS CARGO_TARGET_DIR

[ $# -gt 0 ] || set -- amd64 arm64
rm -rf "$out"
mkdir -p "$out"
version=$(cargo metadata --no-deps --format-version 1 --locked \
    | python3 -c 'import json, sys
print(next(p["version"] for p in json.load(sys.stdin)["packages"] if p["name"] == "stackforge"))')

for arch in "$@"; do
    case $arch in
        amd64) triple=x86_64-unknown-linux-gnu machine=x86_64 ;;
        arm64) triple=aarch64-unknown-linux-gnu machine=aarch64 ;;
        *) echo "dist: no architecture $arch; write amd64 or arm64" >&2; exit 2 ;;
    esac
    if command -v rustup >/dev/null 2>&1; then
        rustup target add "$triple"
    fi
    cargo zigbuild --locked --profile dist --target "$triple.$glibc" --bin stackforge
    program=$CARGO_TARGET_DIR/$triple/dist/stackforge
    python3 scripts/dist.py check "$program" --glibc "$glibc" --private "$PWD" --private "$home"
    cp "$program" "$out/stackforge-$version-linux-$arch"

    python3 scripts/dist.py wheel "$program" --version "$version" \
        --tag "py3-none-manylinux_$(echo "$glibc" | tr . _)_$machine" --output "$out"
done

# Pages and completions come from a program that runs here: they are the same for each architecture.
case $(uname -m) in aarch64) here=arm64 ;; *) here=amd64 ;; esac
runs=$out/stackforge-$version-linux-$here
pages=target/dist-pages
rm -rf "$pages"
if [ -x "$runs" ]; then
    "$runs" man --output "$pages/man"
    gzip -9n "$pages"/man/*.1
    mkdir -p "$pages/completions"
    for shell in bash zsh fish; do
        "$runs" completions "$shell" >"$pages/completions/stackforge.$shell"
    done
    for arch in "$@"; do
        case $arch in
            amd64) triple=x86_64-unknown-linux-gnu ;;
            arm64) triple=aarch64-unknown-linux-gnu ;;
        esac
        cargo deb --no-build --no-strip --locked --profile dist --target "$triple" \
            --output "$out/stackforge_${version}_$arch.deb"
    done
else
    echo "dist: no Debian packages: their pages come from the program for this machine ($here)" >&2
fi

cargo metadata --format-version 1 --locked --filter-platform x86_64-unknown-linux-gnu \
    | python3 scripts/dist.py sbom --version "$version" >"$out/stackforge-$version.cdx.json"
(cd "$out" && sha256sum -- * >SHA256SUMS)
ls -l "$out"
