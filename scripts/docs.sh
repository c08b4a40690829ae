#!/bin/sh
# Writes the generated pages anew, builds the book in target/docs, and looks at each page with a browser where there is
# one.
set -eu
stackforge=${STACKFORGE:-${CARGO_TARGET_DIR:-target}/release/stackforge}
"$stackforge" explain --markdown >docs/rules.md
"$stackforge" man --markdown >docs/commands.md
"$stackforge" schema --markdown >docs/keys.md
sh scripts/docs-tools.sh
PATH=$PATH:$PWD/target/docs-tools/bin
PYTHONPATH=$PWD/target/docs-tools/python${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH
mdbook build docs
if command -v chromium >/dev/null 2>&1; then
    python3 scripts/look-docs.py target/docs
else
    echo "docs: no browser looked at the pages: install chromium" >&2
fi
