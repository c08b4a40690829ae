# What a compile is built with, by hash. A step of its own, for the compile itself runs foreign
# code and sees neither the index settings nor the cache.
set -eu
. /dev/stackforge/steps/guard.sh
. /dev/stackforge/steps/net.sh
[ -s /dev/stackforge/build/requires.txt ] || exit 0
put_aside
/dev/stackforge/tools/bin/uv pip install --quiet --no-config --no-deps --no-build --require-hashes -r /dev/stackforge/build/requires.txt
put_back
