#!/bin/sh
# Builds and runs what a stranger would write with one library of crates/ (tests/strangers), on real inputs: a wheel
# with device code, Debian packages, this machine's engine, a registry on loopback.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
image=localhost:${PORT:=5891}/stackforge-test-strangers
registry=
end() {
    [ -z "$registry" ] || kill "$registry" 2>/dev/null || true
    docker rmi --force "$image:1" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap end EXIT
cp -r "$here/tests/strangers" "$work/programs"
sed -i "s#\.\./\.\./crates#$here/crates#" "$work/programs/Cargo.toml"
cp "$here/Cargo.lock" "$work/programs/"
wc -l "$work"/programs/src/bin/*.rs
export CARGO_TARGET_DIR="$work/target"
cargo build --quiet --manifest-path "$work/programs/Cargo.toml"
cd "$work"
run() {
    echo "== $*"
    program=$1
    shift
    "$work/target/debug/$program" "$@"
}

python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest . nvidia-curand-cu12==10.3.10.19 six==1.17.0
python3 -m zipfile --extract nvidia_curand_cu12-*.whl curand
run runs_on curand/nvidia/curand/lib/libcurand.so.10 9.0 8.7 11.0
run wheel_layer six-*.whl layer.tar.gz
tar -tzf layer.tar.gz | grep six.py
mirror=$(sed -n 's#^URIs: *\([^ ]*\).*#\1#p; s#^deb  *\(\[[^]]*\] \)\?\(http[^ ]*\).*#\2#p' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -v security | head -n 1)
run rootfs bookworm "$here/images/keyrings/debian-archive-bookworm.gpg" "${mirror%/}" root.tar hello
curl -fsS "${mirror%/}/dists/bookworm/InRelease" -o InRelease
run signed "$here/images/keyrings/debian-archive-bookworm.gpg" InRelease
run sandboxed id
docker import root.tar "$image:1" >/dev/null
run engine "$image:1" hello
cat >registry.yml <<EOF
version: 0.1
storage: { filesystem: { rootdirectory: $work/registry } }
http: { addr: "127.0.0.1:$PORT" }
EOF
docker-registry serve registry.yml >registry.log 2>&1 &
registry=$!
tries=0
until docker push "$image:1" >push.log 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 20 ] || { cat push.log; exit 1; }
    sleep 0.5
done
mkdir pulled
run pulled "$image:1" pulled
