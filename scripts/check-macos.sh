#!/bin/sh
# Whether the program can be made for macOS on Apple silicon: type-checks and lints all crates for it, then links the
# program with zig. Needs rustup, Python 3, and the network for crates and wheels. Nothing of it is started here: that
# takes a Mac.
#
# zig brings the names that libSystem has. For the frameworks there are lists of what is asked of them
# (scripts/macos-frameworks.txt): the link fails for any other name. A linker on a Mac reads Apple's own lists.
set -eu
cd "$(dirname "$0")/.."
triple=aarch64-apple-darwin
tools=target/dist-tools
out=${CARGO_TARGET_DIR:-target}/$triple

if [ ! -x "$tools/bin/cargo-zigbuild" ]; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --requirement scripts/dist-tools.txt
fi
PATH=$PWD/$tools/bin:$PATH
export PATH
if command -v rustup >/dev/null 2>&1; then
    rustup target add "$triple"
fi

# Lists as linkers read them, in place of Apple's development kit.
lists=$out/frameworks
rm -rf "$lists"
mkdir -p "$lists"
name=
while read -r line; do
    case $line in
        '#'* | '') ;;
        '['*)
            name=${line#\[} name=${name%\]}
            mkdir "$lists/$name.framework"
            cat >"$lists/$name.framework/$name.tbd" <<END
--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos ]
install-name: '/System/Library/Frameworks/$name.framework/Versions/A/$name'
exports:
  - targets: [ arm64-macos ]
    symbols:
END
            ;;
        *) echo "      - _$line" >>"$lists/$name.framework/$name.tbd" ;;
    esac
done <scripts/macos-frameworks.txt
for list in "$lists"/*/*.tbd; do
    echo ... >>"$list"
done

cargo-zigbuild clippy --locked --workspace --target "$triple" -- -D warnings
cargo-zigbuild rustc --locked --target "$triple" --bin stackforge -- -L "framework=$lists"
python3 scripts/dist.py macos "$out/debug/stackforge"
