#!/bin/sh
# Makes what is published, in target/dist: programs, wheels, Debian packages, an SBOM and checksums
# (scripts/sign-dist.sh signs those). Needs rustup, Python 3, and the network for crates and wheels; zig links for the
# other processor and for the old glibc.
#
# The same commit and the same tools give the same bytes: no clock and no path of this machine is in a file.
#
#     scripts/dist.sh [ARCHITECTURE...]     besides this machine's own; amd64 and arm64 without one
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
# A panic ends the program (Cargo.toml's profile `dist`), so nothing unwinds.
RUSTFLAGS="--remap-path-prefix=$PWD=/stackforge --remap-path-prefix=$home=/cargo -Cforce-unwind-tables=no \
    -Clink-arg=-Wl,-T,$PWD/scripts/no-unwind.ld"
CFLAGS="-ffile-prefix-map=$PWD=/stackforge -ffile-prefix-map=$home=/cargo"
CARGO_TARGET_DIR=$PWD/target/dist-build
export PATH SOURCE_DATE_EPOCH RUSTFLAGS CFLAGS CARGO_TARGET_DIR

# This machine's own is first: it runs here, reads the others, and writes the pages and completions, which are the
# same for each.
case $(uname -m) in aarch64) here=arm64 other=amd64 ;; *) here=amd64 other=arm64 ;; esac
[ $# -gt 0 ] || set -- "$other"
[ "$1" = "$here" ] || set -- "$here" "$@"
rm -rf "$out"
mkdir -p "$out"
version=$(cargo metadata --no-deps --format-version 1 --locked \
    | python3 -c 'import json, sys
print(next(p["version"] for p in json.load(sys.stdin)["packages"] if p["name"] == "stackforge"))')

runs=$out/stackforge-$version-linux-$here

triple() {
    case $1 in
        amd64) echo x86_64-unknown-linux-gnu ;;
        arm64) echo aarch64-unknown-linux-gnu ;;
        *) echo "dist: no architecture $1; write amd64 or arm64" >&2; exit 2 ;;
    esac
}

for arch in "$@"; do
    triple=$(triple "$arch")
    if command -v rustup >/dev/null 2>&1; then
        rustup target add "$triple"
    fi
    cargo zigbuild --locked --profile dist --target "$triple.$glibc" --bin stackforge
    program=$CARGO_TARGET_DIR/$triple/dist/stackforge
    cp "$program" "$out/stackforge-$version-linux-$arch"
    "$runs" --json audit "$program" \
        | python3 scripts/dist.py check "$program" --glibc "$glibc" --private "$PWD" --private "$home"
    python3 scripts/dist.py wheel "$program" --version "$version" \
        --tag "py3-none-manylinux_$(echo "$glibc" | tr . _)_${triple%%-*}" --output "$out"
done

pages=target/dist-pages
rm -rf "$pages"
"$runs" man --output "$pages/man"
gzip -9n "$pages"/man/*.1
mkdir -p "$pages/completions"
for shell in bash zsh fish; do
    "$runs" completions "$shell" >"$pages/completions/stackforge.$shell"
done
for arch in "$@"; do
    cargo deb --no-build --no-strip --locked --profile dist --target "$(triple "$arch")" \
        --output "$out/stackforge_${version}_$arch.deb"
done

cargo metadata --format-version 1 --locked --filter-platform x86_64-unknown-linux-gnu \
    | python3 scripts/dist.py sbom --version "$version" >"$out/stackforge-$version.cdx.json"
(cd "$out" && sha256sum -- * >SHA256SUMS)
ls -l "$out"
