# The installer, by hash, into /opt/tools of a stage that nothing is copied from.
set -eu
. /dev/stackforge/steps/net.sh
"$1" -m venv /opt/tools
/opt/tools/bin/pip install --quiet --no-cache-dir --no-deps --only-binary :all: --require-hashes -r /dev/stackforge/lock.txt
