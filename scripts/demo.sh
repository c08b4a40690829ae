#!/bin/sh
# The main job on real packages, twice: the second run has nothing to do. Without a Docker Engine the
# image becomes an OCI layout in target/demo.
set -eu
stackforge=${CARGO_TARGET_DIR:-target}/release/stackforge
stack=stacks/demo-cuda13.yaml
if docker version >/dev/null 2>&1; then
    set --
else
    set -- -o oci:target/demo
fi

if ! "$stackforge" build "$stack" "$@"; then
    # Debian's mirrors drop a version when a newer one replaces it; the lock then names files
    # that are gone. Everything else keeps its version.
    echo "demo: locking the OS packages again in case the mirror has dropped some" >&2
    "$stackforge" lock "$stack" --upgrade-os
    "$stackforge" build "$stack" "$@"
fi

echo
echo "once more: every step is cached"
"$stackforge" build "$stack" "$@"

if [ $# -gt 0 ]; then
    echo "target/demo is an OCI layout: skopeo, podman and umoci read it, and so does"
    echo "  $stackforge push oci:target/demo REGISTRY/NAME:TAG"
    exit
fi
docker run --rm demo-cuda13 python -c '
import torch, triton, triton.language, deepspeed.ops.adam
print("torch", torch.__version__, "CUDA", torch.version.cuda)
print("triton", triton.__version__)
print("deepspeed", deepspeed.__version__)
'
