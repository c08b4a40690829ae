#!/bin/sh
# Runs scripts/dist.sh with Debian's Rust, in a container: its archive has the standard library for other processors
# where rustup's server cannot be reached. Needs Docker and mmdebstrap, which `scripts/setup.sh tests` installs.
#
#     scripts/dist-debian.sh [ARCHITECTURE...]
set -eu
cd "$(dirname "$0")/.."
# The suite whose Rust is new enough (rust-version in Cargo.toml).
suite=${STACKFORGE_DIST_SUITE:-sid}
case $(uname -m) in aarch64) here=arm64 other=amd64 ;; *) here=amd64 other=arm64 ;; esac
image=stackforge-dist:$suite
if ! docker image inspect "$image" >/dev/null 2>&1; then
    root=$(mktemp)
    trap 'rm -f "$root"' EXIT
    echo "dist: fetching Rust of Debian $suite" >&2
    # A mirror may stand still for longer than its index is good for.
    mmdebstrap --variant=minbase --architectures="$here,$other" --aptopt='Acquire::Check-Valid-Until "false"' \
        --include="rustc,cargo,libstd-rust-dev:$other,gcc,libc6-dev,python3,python3-venv,ca-certificates,git,dpkg-dev,gzip" \
        --format=tar "$suite" - ${STACKFORGE_DEBIAN_MIRROR:+"$STACKFORGE_DEBIAN_MIRROR"} >"$root"
    docker import "$root" "$image" >/dev/null
fi

# As this user, with this user's crates. Certificates and indexes are this machine's.
home=${CARGO_HOME:-$HOME/.cargo}
mkdir -p "$home"
set -- "$image" env HOME=/tmp CARGO_HOME="$home" PATH=/usr/local/bin:/usr/bin:/bin DIST_ON=-debian sh scripts/dist.sh "$@"
for name in PIP_INDEX_URL PIP_FIND_LINKS HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    eval "value=\${$name:-}"
    [ -z "$value" ] || set -- -e "$name=$value" "$@"
done
for file in /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf"; do
    [ ! -e "$file" ] || set -- -v "$file:/etc/pip.conf:ro" "$@"
done
docker run --rm --network host --user "$(id -u):$(id -g)" -v "$PWD:$PWD" -w "$PWD" -v "$home:$home" \
    -v /etc/ssl/certs/ca-certificates.crt:/etc/ssl/certs/ca-certificates.crt:ro "$@"
