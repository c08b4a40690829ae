# One layer of locked wheels, by hash, into the image's environment.
set -eu
. /dev/stackforge/steps/guard.sh
. /dev/stackforge/steps/net.sh
put_aside
/dev/stackforge/tools/bin/uv pip install --no-config --no-deps --no-build --require-hashes -r /dev/stackforge/lock.txt
put_back
. /dev/stackforge/steps/forget.sh
