#!/bin/sh
# Signs SHA256SUMS in target/dist with the key in SIGNING_KEY, a PEM text of `stackforge sign --generate-key`, and
# writes the public key beside it. The signature is made as `stackforge sign` makes those of images: ECDSA on P-256 over
# SHA-256, in base64. docs/install.md says how to verify it.
set -eu
cd "$(dirname "$0")/../target/dist"
if [ -z "${SIGNING_KEY:-}" ]; then
    echo "sign-dist: SIGNING_KEY is empty; set it to the PEM text of a private key" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '%s\n' "$SIGNING_KEY" >"$work/key"
# Not in a pipe, which would hide that a key is none.
openssl dgst -sha256 -sign "$work/key" -out "$work/signature" SHA256SUMS
base64 -w 0 "$work/signature" >SHA256SUMS.sig
openssl pkey -in "$work/key" -pubout -out stackforge.pub
