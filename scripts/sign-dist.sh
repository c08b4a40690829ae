#!/bin/sh
# Signs SHA256SUMS in target/dist with the key in SIGNING_KEY, a PEM text of `stackforge sign --generate-key`. The
# signature has the form of cosign: ECDSA on P-256 over SHA-256, in base64. To verify it:
#
#     base64 -d SHA256SUMS.sig >sig && openssl dgst -sha256 -verify publisher.pub -signature sig SHA256SUMS
#     cosign verify-blob --key publisher.pub --signature SHA256SUMS.sig --insecure-ignore-tlog SHA256SUMS
set -eu
cd "$(dirname "$0")/../target/dist"
if [ -z "${SIGNING_KEY:-}" ]; then
    echo "sign-dist: SIGNING_KEY is empty; set it to the PEM text of a private key" >&2
    exit 1
fi
key=$(mktemp)
trap 'rm -f "$key"' EXIT
printf '%s\n' "$SIGNING_KEY" >"$key"
openssl dgst -sha256 -sign "$key" SHA256SUMS | base64 -w 0 >SHA256SUMS.sig
