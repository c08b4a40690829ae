#!/bin/sh
# Installs what `make dist` made in an empty Debian that has no more than Python, and does the first things with it as
# an ordinary user: doctor, init, check, lock, build, audit, push and pull.
#
#     scripts/try-dist-in.sh SUITE wheel|deb [ARCHITECTURE]     SUITE: bookworm, trixie, ubuntu-like; ARCHITECTURE:
#                                                               amd64, arm64
#     scripts/try-dist-in.sh SUITE socket     the wheel, and Docker's socket: the image is built and run by Docker
#
# ubuntu-like is a trixie that says of itself what Ubuntu 24.04 does, for machines that reach no archive of Ubuntu.
#
# Another architecture than this machine's is emulated (Debian's qemu-user-static and arch-test); then this machine's
# program builds the same image too, and both have to be the same. Sandboxes do not start under that emulator, so the
# image is not validated, and has no byte code.
#
# Needs mmdebstrap, Docker and docker-registry, which `scripts/setup.sh tests` installs.
set -eu
cd "$(dirname "$0")/.."
suite=$1 kind=$2 more= from=$1
[ "$suite" != ubuntu-like ] || from=trixie
case $(uname -m) in aarch64) here=arm64 ;; *) here=amd64 ;; esac
arch=${3:-$here}
case $arch in
    arm64) machine=aarch64 gpu=thor ;;
    amd64) machine=x86_64 gpu=h100 ;;
    *) echo "try-dist-in: no architecture $arch; write amd64 or arm64" >&2; exit 2 ;;
esac
if [ "$arch" != "$here" ] && [ ! -e "/proc/sys/fs/binfmt_misc/qemu-$machine" ]; then
    echo "try-dist-in: programs of $arch do not run here: install qemu-user-static, binfmt-support and arch-test" >&2
    exit 3
fi
case $kind in
    wheel | socket) install="runuser -u someone -- sh -c 'python3 -m venv /home/someone/venv
        /home/someone/venv/bin/pip install -q --no-index /dist/stackforge-*_$machine.whl'" ;;
    deb) install="dpkg -i /dist/stackforge_*_$arch.deb" more=,python3-pip ;; # which it recommends
    *) echo "try-dist-in: write wheel, deb or socket" >&2; exit 2 ;;
esac
image=stackforge-try-dist:$suite-$arch
built=try-dist-$$:latest
work=$(mktemp -d)
registry=
end() {
    [ -z "$registry" ] || kill "$registry" 2>/dev/null || true
    docker image rm --force "$image" "$built" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap end EXIT
cat >"$work/os-release" <<EOF
PRETTY_NAME="Ubuntu 24.04.3 LTS"
NAME="Ubuntu"
VERSION_ID="24.04"
VERSION="24.04.3 LTS (Noble Numbat)"
VERSION_CODENAME=noble
ID=ubuntu
ID_LIKE=debian
UBUNTU_CODENAME=noble
EOF
name=true
[ "$suite" != ubuntu-like ] || name="cp '$work/os-release' \"\$1/usr/lib/os-release\""
mmdebstrap --variant=minbase "--architectures=$arch" "--include=python3,python3-venv,ca-certificates$more" \
    "--customize-hook=$name" "$from" "$work/root.tar" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
docker import --platform "linux/$arch" "$work/root.tar" "$image" >/dev/null
rm "$work/root.tar"

port=$((20000 + $$ % 20000))
cat >"$work/registry.yml" <<EOF
version: 0.1
log: { level: error }
storage: { filesystem: { rootdirectory: $work/registry } }
http: { addr: "127.0.0.1:$port", secret: try }
EOF
docker-registry serve "$work/registry.yml" >"$work/registry.log" 2>&1 &
registry=$!

cat >"$work/install" <<EOF
set -e
useradd --create-home someone
if [ -e /var/run/docker.sock ]; then
    groupadd --non-unique --gid "\$(stat -c %g /var/run/docker.sock)" docker
    usermod --append --groups docker someone
fi
$install
exec runuser -u someone -- env HOME=/home/someone PATH="/home/someone/venv/bin:\$PATH" sh /try/steps
EOF
cat >"$work/steps" <<EOF
set -e
step() {
    echo "== \$*"
    start=\$(date +%s%N)
    "\$@"
    echo "== took \$((( \$(date +%s%N) - start ) / 1000000)) ms"
}
cd /home/someone
step stackforge --version
step stackforge doctor
step stackforge init --gpu $gpu -o first.yaml
step stackforge check first.yaml
cp /try/tiny.yaml .
if [ $kind = socket ]; then
    step stackforge build tiny.yaml
    step stackforge build tiny.yaml
    step stackforge run tiny.yaml -- python -c 'import sys; print(sys.version)'
    echo 'print(6 * 7)' | step stackforge run tiny.yaml -- python - >/made/answer
    grep -x 42 /made/answer
    exit
fi
step stackforge lock tiny.yaml
step stackforge plan tiny.yaml
step stackforge build tiny.yaml -o oci:tiny
step stackforge audit oci:tiny
step stackforge push oci:tiny 127.0.0.1:$port/tiny:1
rm -rf /home/someone/.cache/stackforge
step stackforge pull 127.0.0.1:$port/tiny:1 -o rootfs:root
test -e root/usr/bin/python3.11
cp tiny.lock /made/
cp tiny/index.json /made/
EOF
sed "s,linux/amd64,linux/$arch,; s/h100/$gpu/; s/^stack: tiny/stack: ${built%:*}/" examples/tiny.yaml >"$work/tiny.yaml"
[ "$arch" = "$here" ] || echo "bytecode: false" >>"$work/tiny.yaml"
mkdir "$work/made"
chmod 777 "$work/made"
chmod 755 "$work"
# Certificates, indexes and mirrors are this machine's.
set -- --rm --network host -v "$PWD/target/dist:/dist:ro" -v "$work:/try:ro" -v "$work/made:/made" \
    -v /etc/ssl/certs/ca-certificates.crt:/etc/ssl/certs/ca-certificates.crt:ro
for file in /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf"; do
    [ ! -e "$file" ] || set -- "$@" -v "$file:/etc/pip.conf:ro"
done
for name in PIP_INDEX_URL UV_DEFAULT_INDEX UV_INDEX_URL PIP_FIND_LINKS HTTP_PROXY HTTPS_PROXY NO_PROXY \
    STACKFORGE_DEBIAN_MIRROR; do
    eval "value=\${$name:-}"
    [ -z "$value" ] || set -- "$@" -e "$name=$value"
done
[ "$kind" != socket ] || set -- "$@" -v /var/run/docker.sock:/var/run/docker.sock
docker run "$@" "$image" sh /try/install

if [ "$arch" != "$here" ]; then
    echo "== the same image, made by the program of $here"
    cp "$work/made/tiny.lock" "$work/"
    set -- target/dist/stackforge-*-linux-"$here"
    "$1" --store "$work/store" build "$work/tiny.yaml" --engine native -o "oci:$work/tiny"
    cmp "$work/made/index.json" "$work/tiny/index.json"
fi
