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
//! No initial ramdisk is made. What would tell one image from another is removed: the machine's ID, the keys
//! that openssh-server and ssl-cert make for it, and PostgreSQL's first cluster, which has a random
//! identifier. Dates in Java's keystore of authorities become `SOURCE_DATE_EPOCH`, and the settings that
//! git-lfs writes into `/etc/gitconfig` in random order are sorted.
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
export INITRD=No
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
rm -f /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub
snakeoil=/etc/ssl/certs/ssl-cert-snakeoil.pem
if [ -e $snakeoil ]; then
  rm -f "/etc/ssl/certs/$(openssl x509 -noout -hash -in $snakeoil).0" $snakeoil /etc/ssl/private/ssl-cert-snakeoil.key
fi
if command -v pg_lsclusters >/dev/null; then
  pg_lsclusters --no-header | while read -r release cluster rest; do pg_dropcluster --stop "$release" "$cluster"; done
fi
keystore=/etc/ssl/certs/java/cacerts
# The keystore but its checksum, with SOURCE_DATE_EPOCH in place of each entry's date.
dates='binmode STDOUT; local $/; open F, "<", $ARGV[0] or die; binmode F; my $d = <F>;
  my ($magic, $version, $count) = unpack "NNN", $d; exit 1 if $magic != 0xfeedfeed || $version != 2; my $at = 12;
  for (1 .. $count) { exit 1 if unpack("N", substr $d, $at, 4) != 2; $at += 4; $at += 2 + unpack "n", substr $d, $at, 2;
    substr($d, $at, 8) = pack "Q>", 1000 * $ARGV[1]; $at += 8; $at += 2 + unpack "n", substr $d, $at, 2;
    $at += 4 + unpack "N", substr $d, $at, 4; }
  print substr $d, 0, $at'
# What its checksum is of: the password in UTF-16, a salt, the rest.
summed='binmode STDOUT; local $/; open F, "<", $ARGV[0] or die; binmode F;
  print map({ "\0$_" } split //, "changeit"), "Mighty Aphrodite", <F>'
if [ -e $keystore ] && perl -e "$dates" $keystore "$SOURCE_DATE_EPOCH" > $keystore.new; then
  sum=$(perl -e "$summed" $keystore.new | sha1sum | cut -d' ' -f1)
  perl -e 'print pack "H*", $ARGV[0]' "$sum" >> $keystore.new
  cat $keystore.new > $keystore
fi
rm -f $keystore.new
if [ -e /etc/gitconfig ]; then
  perl -0pi -e 's/^(\[filter "lfs"\]\n)((?:\t.*\n)+)/$1 . join "", sort split m{^}m, $2/me' /etc/gitconfig
fi
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
    r#"policy=/usr/sbin/policy-rc.d
if [ -e $policy ]; then policy=; else printf '#!/bin/sh\nexit 101\n' > $policy; chmod 755 $policy; fi
dpkg --force-unsafe-io --force-depends --unpack "${DEBS:?it must name a directory}"/*.deb
"#,
    finish!(),
    r#"[ -z "$policy" ] || rm -f "$policy"
"#
);
