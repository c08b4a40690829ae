# Compiles one library to a wheel in /opt/wheels.
#
# /dev/stackforge/build holds what this build is told: source.txt (a requirement with its
# hash) or git.txt (URL and revision), requires.txt, env.sh (exported settings),
# patches.json, commands.sh (in place of the standard wheel build).
set -eu
build=/dev/stackforge/build
. /dev/stackforge/steps/net.sh
. "$build/env.sh"
uv=/dev/stackforge/tools/bin/uv

if [ -s "$build/requires.txt" ]; then
    echo "installing build requirements"
    "$uv" pip install --quiet --no-config --no-deps --no-build --require-hashes -r "$build/requires.txt"
fi
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

# As many jobs as cores and memory allow; a limit from outside (a retry after the kernel
# killed a compiler) comes as a secret because it changes nothing in the result.
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
[ "$jobs" -le "$cores" ] || jobs=$cores
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
if [ -s "$build/source.txt" ]; then
    /dev/stackforge/tools/bin/python -m pip --python /opt/venv/bin/python download --quiet --no-cache-dir --no-deps --no-build-isolation --no-binary :all: --require-hashes --dest "$work" -r "$build/source.txt"
    mkdir source
    tar -xf "$work"/*.tar.* -C source --strip-components=1 --no-same-owner
else
    read -r url revision < "$build/git.txt"
    git clone --quiet --no-checkout "$url" source
    git -C source checkout --quiet --detach "$revision"
    git -C source submodule --quiet update --init --recursive
fi
cd source
python /dev/stackforge/patch.py "$build/patches.json"
if [ -s "$build/commands.sh" ]; then
    sh -eu "$build/commands.sh"
else
    /dev/stackforge/tools/bin/python -m pip --python /opt/venv/bin/python wheel --no-cache-dir --no-deps --no-build-isolation --no-index --wheel-dir /opt/wheels --verbose .
fi
ls /opt/wheels/*.whl
rm -rf "$work"
