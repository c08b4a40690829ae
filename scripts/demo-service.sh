#!/bin/sh
# Builds the example service, starts it and asks it over HTTP. Without a Docker Engine it runs in namespaces.
set -eu
stackforge=${STACKFORGE:-${CARGO_TARGET_DIR:-target}/release/stackforge}
stack=examples/service/stack.yaml
port=${PORT:-8000}
tag=demo-service:latest
log=$(mktemp)

# Debian's mirrors drop a version when a newer one replaces it; the lock then names files that are gone.
"$stackforge" build "$stack" --engine native -t "$tag" || {
    "$stackforge" lock "$stack" --upgrade-os
    "$stackforge" build "$stack" --engine native -t "$tag"
}

"$stackforge" run "$tag" -p "$port:$port" -- --port "$port" >"$log" 2>&1 &
service=$!
trap 'kill "$service" 2>/dev/null || true; wait "$service" 2>/dev/null || true; rm -f "$log"' EXIT
python3 - "$port" <<'PYTHON' || { cat "$log" >&2; exit 1; }
import json, sys, time, urllib.request

url = "http://127.0.0.1:" + sys.argv[1]
for _ in range(240):
    try:
        print("health:", urllib.request.urlopen(url + "/health", timeout=5).read().decode())
        break
    except OSError:
        time.sleep(0.5)
else:
    sys.exit("the service does not answer")
rows = [[0.5] * 16] * 16
request = urllib.request.Request(url + "/detect", json.dumps({"rows": rows}).encode(), {"Content-Type": "application/json"})
print("detect:", urllib.request.urlopen(request, timeout=30).read().decode())
PYTHON
