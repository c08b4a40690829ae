#!/bin/sh
# Installs what `make dist` made as an ordinary user would, and does the first things with it.
#
#     scripts/try-dist.sh wheel|deb     the deb needs root or sudo
set -eu
cd "$(dirname "$0")/.."
examples=$PWD/examples
case $(uname -m) in aarch64) machine=aarch64 arch=arm64 ;; *) machine=x86_64 arch=amd64 ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $1 in
    wheel)
        python3 -m venv "$work/venv"
        "$work/venv/bin/pip" install --quiet --no-index target/dist/stackforge-*_"$machine".whl
        PATH=$work/venv/bin:$PATH
        ;;
    deb)
        as_root=
        [ "$(id -u)" = 0 ] || as_root=sudo
        $as_root apt-get install --yes --no-install-recommends "$PWD"/target/dist/stackforge_*_"$arch".deb
        for file in man/man1/stackforge.1.gz man/man1/stackforge-build.1.gz bash-completion/completions/stackforge; do
            test -s "/usr/share/$file"
        done
        ;;
    *) echo "try-dist: write wheel or deb" >&2; exit 2 ;;
esac
export STACKFORGE_STORE="$work/store"
cd "$work"
stackforge --version
stackforge doctor
stackforge init --gpu h100 -o first.yaml
stackforge check first.yaml
# A lock names OS packages that a mirror may have dropped since.
cp "$examples/tiny.yaml" .
stackforge lock tiny.yaml
stackforge build tiny.yaml --engine native -o oci:tiny
stackforge audit oci:tiny
