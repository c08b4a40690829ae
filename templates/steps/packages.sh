# OS packages by name from the base's own archive, for bases that registries have.
set -eu
# Programs of wheels come first in the image's PATH.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
[ "$#" -gt 0 ] || exit 0
. /dev/stackforge/steps/net.sh
export DEBIAN_FRONTEND=noninteractive
apt-get update --quiet=2
apt-get install --yes --quiet=2 --no-install-recommends "$@"
rm -rf /var/lib/apt/lists/* /var/log/* /var/cache/apt/*.bin /var/cache/ldconfig/aux-cache
