#!/bin/sh
# Runs a command with a Docker Engine of its own, which is gone with all it made when the command ends:
#
#     sh scripts/test-engine.sh cargo nextest run --test engine
#
# Such an engine starts without anybody's images and caches, and keeps its layers in overlay2; a machine's own
# engine may keep them in fuse-overlayfs, in which file-heavy steps take two to four times as long. It shares the
# bridge of the machine's engine, which leads out. Where DOCKER_HOST is set, without root, without dockerd, or
# where none starts, the command runs with the engine that it finds.
set -u
[ $# -gt 0 ] || { echo "usage: test-engine.sh COMMAND [ARGUMENT...]" >&2; exit 2; }

say() { printf 'test-engine: %s\n' "$*" >&2; }
with_what_is_here() { say "$1: the tests use the engine that they find"; shift; exec "$@"; }

[ -z "${DOCKER_HOST:-}" ] || with_what_is_here "DOCKER_HOST is set" "$@"
[ "$(id -u)" = 0 ] || with_what_is_here "not root" "$@"
PATH=$PATH:/usr/sbin
for program in dockerd docker unshare setpriv flock; do
    command -v "$program" >/dev/null 2>&1 || with_what_is_here "no $program" "$@"
done
[ -e /sys/class/net/docker0 ] || with_what_is_here "no bridge docker0" "$@"

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
target=$(cd "$target" && pwd)
exec 9>"$target/test-engine.lock"
flock -n 9 || with_what_is_here "another run has this tree's engine" "$@"
data=$target/test-engine
rm -rf "$data"
mkdir "$data"
# The path of a socket has at most 107 bytes.
run=$(mktemp -d)
engine=
end() {
    [ -z "$engine" ] || { kill -KILL "$engine" && wait "$engine"; } 2>/dev/null
    engine=
    # Mounts of a namespace end with its last process, a moment after the first.
    tries=0
    until rm -rf "$data" "$run" 2>/dev/null || [ "$tries" -gt 50 ]; do
        tries=$((tries + 1))
        sleep 0.2
    done
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# The largest packet that the way out takes; an engine's own idea of it, 1500, may be more.
device=$(awk '$2 == "00000000" { print $1; exit }' /proc/net/route)
mtu=$(cat "/sys/class/net/$device/mtu" 2>/dev/null || echo 1500)
# Tests' other engines have the addresses of 64 to 191 and 200 to 255.
subnet=172.17.$((192 + $$ % 8)).0/24
# What the machine's engine is told is not for this one.
echo '{}' > "$run/daemon.json"
setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc \
    dockerd --host "unix://$run/docker.sock" --storage-driver overlay2 --config-file "$run/daemon.json" \
    --data-root "$data" --exec-root "$run/run" --pidfile "$run/pid" --bridge docker0 --fixed-cidr "$subnet" \
    --mtu "$mtu" --iptables=false --ip-masq=false --ip-forward=false </dev/null >"$run/log" 2>&1 9>&- &
engine=$!
tries=0
until docker --host "unix://$run/docker.sock" version >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -gt 120 ] || ! kill -0 "$engine" 2>/dev/null; then
        say "dockerd does not start with overlay2 here; the tests use the engine that they find. Its last words:"
        tail -n 3 "$run/log" >&2
        end
        trap - EXIT INT TERM HUP
        exec "$@"
    fi
    sleep 0.5
done
say "an engine of its own, with overlay2"
STACKFORGE_TEST_ENGINE=own DOCKER_HOST=unix://$run/docker.sock "$@" 9>&-
