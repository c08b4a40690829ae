# Locked OS packages from the context: no index, no network.
set -eu
export DEBIAN_FRONTEND=noninteractive
dpkg --unpack --force-unsafe-io --no-triggers /dev/stackforge/debs/*.deb
dpkg --configure -a --force-unsafe-io
rm -rf /var/log/* /var/cache/ldconfig/aux-cache /var/cache/debconf/*-old /var/lib/dpkg/*-old
