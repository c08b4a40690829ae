#!/bin/sh
# The main job on real packages, twice: the second run has nothing to do.
set -eu
stackforge=target/release/stackforge
stack=stacks/demo-cuda13.yaml

if ! "$stackforge" build "$stack"; then
    # Debian's mirrors drop a version when a newer one replaces it; the lock then names files
    # that are gone. Everything else keeps its version.
    echo "demo: locking the OS packages again in case the mirror has dropped some" >&2
    "$stackforge" lock "$stack" --upgrade-os
    "$stackforge" build "$stack"
fi

echo
echo "once more: every step is cached"
"$stackforge" build "$stack"

docker run --rm demo-cuda13 python -c '
import torch, triton, triton.language, causal_conv1d
print("torch", torch.__version__, "CUDA", torch.version.cuda)
print("triton", triton.__version__)
print("causal_conv1d", causal_conv1d.__version__)
'
