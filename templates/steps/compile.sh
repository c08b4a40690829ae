# Compiles one library to a wheel in /opt/wheels, without a network: what it takes is there.
#
# /dev/stackforge/build holds what this build is told: sdist.txt (digest and name of the source) or
# git.txt (what was cloned), env.sh (exported settings), patches.json, commands.sh (in place of the
# standard wheel build). /dev/stackforge/source holds the sdist, or the repository as `git`;
# /dev/stackforge/fetched what its build would clone by itself.
set -eu
build=/dev/stackforge/build
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_NO_INDEX=1 PIP_ROOT_USER_ACTION=ignore UV_LINK_MODE=copy UV_NO_CACHE=1 UV_NO_PROGRESS=1 UV_OFFLINE=1
. "$build/env.sh"
uv=/dev/stackforge/tools/bin/uv

for wheel in /dev/stackforge/after/*/*.whl; do
    [ -e "$wheel" ] || continue
    "$uv" pip install --quiet --no-config --no-cache --no-deps --no-index --offline "$wheel"
done

# A CUDA_HOME whose nvcc is the filter: the toolkit itself stays as it is.
toolkit=
if [ -n "${STACKFORGE_TOOLKIT:-}" ]; then
    toolkit=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/$STACKFORGE_TOOLKIT
elif [ -x /usr/local/cuda/bin/nvcc ]; then
    toolkit=$(readlink -f /usr/local/cuda)
fi
if [ -n "$toolkit" ]; then
    home=/opt/cuda
    mkdir -p "$home/bin"
    for entry in "$toolkit"/*; do
        name=${entry##*/}
        [ "$name" = bin ] || ln -s "$entry" "$home/$name"
    done
    for entry in "$toolkit"/bin/*; do
        ln -s "$entry" "$home/bin/${entry##*/}"
    done
    # Wheels have lib, builds look in lib64; wheels carry no link for the linker either.
    [ -e "$home/lib64" ] || [ ! -d "$toolkit/lib" ] || ln -s "$toolkit/lib" "$home/lib64"
    if [ -n "${STACKFORGE_TOOLKIT:-}" ]; then
        for library in "$toolkit"/lib/lib*.so.*; do
            plain=${library%%.so.*}.so
            [ -e "$plain" ] || ln -s "${library##*/}" "$plain"
        done
    fi
    rm -f "$home/bin/nvcc"
    { echo "#!$(command -v python)"; cat /dev/stackforge/nvcc_filter.py; } > "$home/bin/nvcc"
    chmod 755 "$home/bin/nvcc"
    export STACKFORGE_NVCC="$toolkit/bin/nvcc" CUDA_HOME="$home" CUDA_PATH="$home" CUDACXX="$home/bin/nvcc" PATH="$home/bin:$PATH"
    export LIBRARY_PATH="$home/lib64:$home/lib64/stubs${LIBRARY_PATH:+:$LIBRARY_PATH}"
fi

. /dev/stackforge/steps/objects.sh
trap objects_end EXIT
objects_start || true

# As many jobs as there are cores where each object waits for its memory (objects.sh), else no more than memory allows;
# a limit from outside (a retry after the kernel killed a compiler) comes as a secret because it changes nothing in
# the result.
cores=$(nproc)
memory=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
for file in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
    [ -r "$file" ] || continue
    limit=$(cat "$file")
    case $limit in
        max | ????????????????*) ;;
        *) [ "$((limit / 1048576))" -ge "$memory" ] || memory=$((limit / 1048576)) ;;
    esac
done
jobs=$((memory / STACKFORGE_JOB_MIB))
[ "$jobs" -le "$cores" ] && [ -z "${STACKFORGE_SCCACHE:-}" ] || jobs=$cores
[ -z "${STACKFORGE_JOBS_MAX:-}" ] || [ "$jobs" -le "$STACKFORGE_JOBS_MAX" ] || jobs=$STACKFORGE_JOBS_MAX
if [ -s /dev/stackforge/jobs ]; then
    limit=$(cat /dev/stackforge/jobs)
    [ "$jobs" -le "$limit" ] || jobs=$limit
fi
[ "$jobs" -ge 1 ] || jobs=1
export "$STACKFORGE_JOBS_VARIABLE=$jobs" CMAKE_BUILD_PARALLEL_LEVEL="$jobs"
echo "stackforge: jobs=$jobs cores=$cores memory=${memory}MiB per-job=${STACKFORGE_JOB_MIB}MiB"

work=/opt/build
mkdir -p "$work" /opt/wheels
cd "$work"
if [ -s "$build/sdist.txt" ]; then
    (cd /dev/stackforge/source && sha256sum --quiet --check "$build/sdist.txt")
    set -- /dev/stackforge/source/*
    case $1 in
        *.tar.gz | *.tgz)
            mkdir source
            tar -xf "$1" -C source --strip-components=1 --no-same-owner
            ;;
        *)
            python -I -c 'import shutil, sys; shutil.unpack_archive(*sys.argv[1:])' "$1" unpacked
            mv unpacked/* source
            ;;
    esac
else
    cp -a /dev/stackforge/source/git source
fi
# Builds write into what they clone.
[ ! -d /dev/stackforge/fetched ] || cp -a /dev/stackforge/fetched /opt/fetched
cd source
python /dev/stackforge/patch.py "$build/patches.json"
if [ -s "$build/commands.sh" ]; then
    sh -eu "$build/commands.sh"
else
    /dev/stackforge/tools/bin/python -m pip --python /opt/venv/bin/python wheel --no-cache-dir --no-deps --no-build-isolation --no-index --wheel-dir /opt/wheels --verbose .
fi
ls /opt/wheels/*.whl
rm -rf "$work"
