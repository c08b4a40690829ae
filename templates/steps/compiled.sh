# The wheel that a builder stage made.
set -eu
/dev/stackforge/tools/bin/uv pip install --no-config --no-cache --no-deps --no-index --offline /dev/stackforge/wheels/*.whl
