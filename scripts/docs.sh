#!/bin/sh
# Writes the generated pages anew and builds the book in target/docs.
set -eu
stackforge=${STACKFORGE:-target/release/stackforge}
"$stackforge" explain --markdown >docs/rules.md
"$stackforge" man --markdown >docs/commands.md
"$stackforge" schema --markdown >docs/keys.md
mdbook=target/docs-tools/bin/mdbook
if command -v mdbook >/dev/null 2>&1; then
    mdbook=mdbook
elif [ ! -x "$mdbook" ]; then
    cargo install --locked --quiet --debug --root target/docs-tools mdbook
fi
"$mdbook" build docs
# A look at every page, where there is a browser for it.
if command -v chromium >/dev/null 2>&1 && python3 -c 'import playwright' 2>/dev/null; then
    python3 scripts/look-docs.py target/docs
else
    echo "docs: no browser looked at the pages; scripts/look-docs.py does with playwright and chromium" >&2
fi
