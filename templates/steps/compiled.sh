# The wheel that a builder stage made: NAME==VERSION. By name, so that its metadata does not
# point to a path of the build.
set -eu
. /dev/stackforge/steps/guard.sh
put_aside
/dev/stackforge/tools/bin/uv pip install --no-config --no-cache --no-deps --no-index --offline --find-links /dev/stackforge/wheels "$1"
put_back
. /dev/stackforge/steps/forget.sh
