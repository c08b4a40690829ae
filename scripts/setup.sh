#!/bin/sh
# Puts in place what stackforge's own build, demo and tests need and this machine lacks: a
# C compiler, Python with pip, a running Docker Engine; with `tests` as argument also the
# programs that only tests run. The demo goes without Docker where programs run in namespaces: then
# an engine is started if it is there and not installed. Debian and Ubuntu are set up; other systems
# are told what to install.
set -eu

say() { printf 'setup: %s\n' "$*" >&2; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

if ! command -v cargo >/dev/null 2>&1; then
    say "cargo is missing: install Rust 1.95 or newer with rustup, then run this again"
    exit 3
fi

# Whether stackforge's own engine can compile and validate here; tests compare it with Docker.
alone() {
    [ "${1:-}" != tests ] && unshare --user --map-root-user --mount --pid --fork true 2>/dev/null
}

missing=
need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
need cc gcc
need python3 python3
alone "${1:-}" || need docker docker.io
python3 -m pip --version >/dev/null 2>&1 || missing="$missing python3-pip"
if [ "${1:-}" = tests ]; then
    PATH=$PATH:/usr/sbin
    need sbatch slurm-client
    need slurmctld slurmctld
    need slurmd slurmd
    need skopeo skopeo
    need podman podman
    need umoci umoci
    need docker-registry docker-registry
    need docker-compose docker-compose
    need openssl openssl
    need curl curl
    need jq jq
    need nghttpd nghttp2-server
    need busybox busybox-static
    need newuidmap uidmap
    need systemd-analyze systemd
    need chromium chromium
    need mmdebstrap mmdebstrap
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing="$missing debian-archive-keyring"
    # The schemas of the OCI image specification.
    schemas=/usr/share/gocode/src/github.com/opencontainers/image-spec/schema
    [ -e "$schemas" ] || missing="$missing golang-github-opencontainers-image-spec-dev"
fi
[ -e /etc/ssl/certs/ca-certificates.crt ] || missing="$missing ca-certificates"
if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null 2>&1; then
        say "install these with your package manager, then run this again:$missing"
        exit 3
    fi
    say "installing$missing"
    as_root apt-get update -qq
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

# It runs the tests side by side. `cargo test` does without it, one program after another.
if [ "${1:-}" = tests ] && ! cargo nextest --version >/dev/null 2>&1; then
    say "installing cargo-nextest, which takes some minutes"
    cargo install --locked --quiet cargo-nextest \
        || say "cargo-nextest cannot be had: the tests run with \`cargo test\`, which takes longer"
fi

# The engine may belong to root, and then it is not ours to use or to start.
answers() { docker version >/dev/null 2>&1; }
if ! answers && command -v dockerd >/dev/null 2>&1 && { [ "$(id -u)" = 0 ] || ! alone "${1:-}"; }; then
    say "starting the Docker Engine"
    if command -v systemctl >/dev/null 2>&1 && systemctl is-system-running >/dev/null 2>&1; then
        as_root systemctl start docker
    else
        as_root sh -c 'setsid dockerd >/var/log/dockerd.log 2>&1 </dev/null &'
    fi
    tries=0
    until answers || [ "$tries" -gt 60 ]; do
        tries=$((tries + 1))
        sleep 1
    done
fi
if ! answers; then
    if alone "${1:-}"; then
        say "no Docker Engine answers: stackforge builds with its own"
    else
        say "the Docker Engine does not answer; start it, or set DOCKER_HOST"
        exit 3
    fi
fi
