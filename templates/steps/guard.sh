# Sourced by steps that hold secrets or the shared cache and work on /opt/venv: no code of an
# installed package runs in them. Programs come from the system, for packages can put a `sed` of
# their own into /opt/venv/bin, and what Python runs at its start is put aside, for uv starts the
# environment's Python to ask where things go.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
environment() {
    for link in /opt/venv/bin/python /opt/venv/bin/python3 /opt/venv/bin/"$own" /opt/venv/lib64; do
        echo "$link -> $(readlink "$link")"
    done
    cksum /opt/venv/bin/python /opt/venv/pyvenv.cfg
}
startup_files() {
    for file in /opt/venv/lib/python*/site-packages/*.pth"$1" \
        /opt/venv/lib/python*/site-packages/sitecustomize*"$1" \
        /opt/venv/lib/python*/site-packages/usercustomize*"$1"; do
        [ ! -e "$file" ] || echo "$file"
    done
}
put_aside() {
    own=$(basename "$(readlink -f /opt/venv/bin/python)")
    environment_before=$(environment)
    startup_files "" | while read -r file; do mv "$file" "$file.aside"; done
}
put_back() {
    startup_files .aside | while read -r file; do mv "$file" "${file%.aside}"; done
    if [ "$(environment)" != "$environment_before" ]; then
        environment >&2
        echo "stackforge: a wheel replaces the environment's interpreter" >&2
        exit 1
    fi
}
