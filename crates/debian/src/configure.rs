//! Shell text that runs inside a root file system, with the packages' own scripts.
//!
//! [`CONFIGURE`] turns the output of [`super::rootfs::write_rootfs`] into a working system; [`INSTALL`]
//! adds locked packages to a working system. Both are for `/bin/sh`, as root, without network. Both
//! stop at the first failure, and their result does not differ from run to run: two runs on bookworm
//! were measured to give the same names, modes, owners, links and contents.
//!
//! shadow's tools write `SOURCE_DATE_EPOCH` as today's date into `/etc/shadow`. By default it is the
//! time that the root file system was written with.
//!
//! [`super::finish`] makes the same system, file by file, without running a script. So two things that
//! scripts make are removed: Python's byte code, which only that Python can make, and debconf's
//! database, which debconf makes again when it is next asked. Without the 14 MB of byte code, each
//! start of Python in a container takes longer until it has written its own (medians of 11 for
//! `import ssl, venv, ctypes, asyncio`: 0.3 s instead of 0.12 s on an idle machine, 0.81 s instead of
//! 0.62 s on one with six times its load).

macro_rules! prepare {
    () => {
        r#"set -eu
umask 022
: "${SOURCE_DATE_EPOCH:=$(stat -c %Y /var/lib/dpkg/arch 2>/dev/null || stat -L -c %Y /etc/os-release)}"
export SOURCE_DATE_EPOCH DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true LC_ALL=C.UTF-8
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
"#
    };
}

// Empty files in /var/log belong to base-files and stay. This removes backups of account files, locks,
// the linker's cache of inodes and times, apt's lists and caches, and whatever names this machine.
macro_rules! finish {
    () => {
        r#"dpkg --force-unsafe-io --configure -a
problems=$(dpkg --audit)
[ -z "$problems" ] || { echo "$problems" >&2; exit 1; }
rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/subuid- /etc/subgid- /etc/.pwd.lock
rm -f /etc/machine-id /var/lib/dbus/machine-id
rm -f /var/lib/dpkg/*-old /var/lib/dpkg/lock /var/lib/dpkg/lock-frontend /var/lib/dpkg/triggers/Lock
rm -f /var/cache/ldconfig/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb
rm -f /var/cache/debconf/*.dat /var/cache/debconf/*-old
find /usr/lib/python3* /usr/share/python3 -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
rm -rf /tmp/* /var/tmp/*
find /var/lib/apt/lists -type f -delete
find /var/log -type f -size +0 -delete
"#
    };
}

/// Script that configures unpacked packages.
///
/// dpkg assumes that an unpacked package's `preinst` has run, so these are run first, in the
/// environment that dpkg gives them: base-passwd's makes `/etc/passwd`. `policy-rc.d` stays in the
/// image, because no package's script may start a service in a container.
pub const CONFIGURE: &str = concat!(
    prepare!(),
    r#"printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
version=$(dpkg-query -f '${Version}' -W dpkg)
architecture=$(dpkg --print-architecture)
for script in /var/lib/dpkg/info/*.preinst; do
  [ -e "$script" ] || continue
  package=${script##*/}
  package=${package%.preinst}
  DPKG_MAINTSCRIPT_PACKAGE=${package%:*} DPKG_MAINTSCRIPT_NAME=preinst DPKG_MAINTSCRIPT_ARCH=$architecture \
  DPKG_MAINTSCRIPT_PACKAGE_REFCOUNT=1 DPKG_RUNNING_VERSION=$version DPKG_ADMINDIR=/var/lib/dpkg DPKG_ROOT= \
    "$script" install || { echo "preinst of $package failed" >&2; exit 1; }
done
"#,
    finish!()
);

/// Script that installs the package files `$DEBS/*.deb` and configures them.
///
/// All packages of a closure are there, so dependencies need only the order in which dpkg configures.
/// Unpacking uses `--force-depends`, as debootstrap does, because dpkg would otherwise refuse a package
/// whose pre-dependency is unpacked in the same run. The file names should sort in the resolver's
/// order. A package that is still missing at the end is an error.
pub const INSTALL: &str = concat!(
    prepare!(),
    r#"dpkg --force-unsafe-io --force-depends --unpack "${DEBS:?it must name a directory}"/*.deb
"#,
    finish!()
);
