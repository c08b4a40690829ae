#!/bin/sh
# Says whether a tag can be released: it is the version of the program, and the changelog has a section for it.
set -eu
tag=$1
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
if [ "$tag" != "v$version" ]; then
    echo "release: the tag is $tag and Cargo.toml has $version" >&2
    exit 1
fi
if ! grep -q "^## $version" CHANGELOG.md; then
    echo "release: CHANGELOG.md has no section \`## $version\`" >&2
    exit 1
fi
