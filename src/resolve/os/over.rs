//! Reads from a registry's base which packages are installed in it and which archive fits it.
//!
//! In: its root file system. Out: a [`System`]: versions by package, the distribution's release and the
//! archive's signing keys. The keys are the base's own: whoever trusts the base trusts them. Only Debian's
//! and Ubuntu's own archives are asked, whatever other sources the base lists.

use crate::error::BaseSystemError;
use crate::system::SystemFile;
use stackforge_debian::Keyring;
use stackforge_debian::archive::{Suite, debian_suites};
use stackforge_debian::finish::{Root as _, Unpacked, installed};
use stackforge_stack::catalog;
use stackforge_stack::spec::Platform;
use stackforge_types::root::Root;
use std::collections::BTreeMap;
use std::path::Path;

pub struct System {
    pub installed: BTreeMap<String, String>,
    pub keyring: Keyring,
    /// os-release's `ID`; the other field is `VERSION_CODENAME`.
    id: String,
    codename: String,
}

impl System {
    pub fn read(root: &Path) -> Result<Self, BaseSystemError> {
        let system = Unpacked(root.to_owned());
        let read = |path: &str| {
            let read = system.read(path);
            read.map_err(|source| BaseSystemError::Read {
                path: path.to_owned(),
                source,
            })
        };
        // `/etc/os-release` is a symbolic link to this file.
        let release = match read("usr/lib/os-release")? {
            Some(release) => Some(release),
            None => read("etc/os-release")?,
        };
        let release = String::from_utf8_lossy(&release.unwrap_or_default()).into_owned();
        let value = |key: &str| {
            let mut values = release
                .lines()
                .filter_map(|l| l.strip_prefix(key)?.strip_prefix('='));
            values.next().map(|v| v.trim_matches('"').to_owned())
        };
        let id = value("ID").unwrap_or_default();
        let codename = value("VERSION_CODENAME").unwrap_or_default();
        if !["debian", "ubuntu"].contains(&id.as_str()) || codename.is_empty() {
            return Err(BaseSystemError::Other(
                format!("{id} {codename}").trim().to_owned(),
            ));
        }
        let installed = installed(&system)?;
        if installed.is_empty() {
            return Err(BaseSystemError::NoPackages);
        }
        let own = read(&format!("usr/share/keyrings/{id}-archive-keyring.gpg"))?;
        let keys = match &own {
            Some(keys) => keys.as_slice(),
            // A base without apt has no keys.
            None => catalog::keyring(&format!("{id}-archive-{codename}"))
                .ok_or(BaseSystemError::NoKeys)?,
        };
        let keyring = Keyring::parse(keys)?;
        Ok(Self {
            installed,
            keyring,
            id,
            codename,
        })
    }

    pub fn suites(&self, platform: Platform) -> Vec<Suite> {
        if self.id == "debian" {
            return debian_suites(&self.codename);
        }
        // Ubuntu has a separate archive for all platforms but amd64.
        let archive = match platform {
            Platform::LinuxAmd64 => "ubuntu",
            _ => "ubuntu-ports",
        };
        let pockets = ["", "-updates", "-security"].into_iter();
        pockets
            .map(|pocket| Suite {
                archive: archive.to_owned(),
                name: format!("{}{pocket}", self.codename),
                components: vec!["main".to_owned(), "universe".to_owned()],
            })
            .collect()
    }
}

/// Whether a file is in a root file system, whatever brought it. `false` for modules: the Python that has them may be
/// another than the stack's.
pub fn has(root: &Path, file: &SystemFile, platform: Platform) -> bool {
    let root = Root::new(root);
    let machine = format!("usr/lib/{}-linux-gnu", platform.machine());
    let folders: &[&str] = match file {
        SystemFile::Library(_) => &[
            &machine,
            "usr/lib",
            "usr/lib64",
            "usr/local/lib",
            "usr/local/cuda/lib64",
        ],
        SystemFile::Program(_) => &["usr/bin", "usr/sbin", "usr/local/bin"],
        SystemFile::Module { .. } => &[],
    };
    let mut paths = folders
        .iter()
        .map(|folder| format!("{folder}/{}", file.name()));
    paths.any(|path| root.exists(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    const STATUS: &str = "Package: libc6\nStatus: install ok installed\nVersion: 2.39-1\n\nPackage: gone\nStatus: deinstall ok config-files\nVersion: 1\n";

    fn why(files: &[(&str, &str)]) -> String {
        match System::read(base(files).path()) {
            Ok(_) => panic!("it was read"),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn a_debian_without_apt_is_read_by_the_keys_that_are_known() {
        let dir = base(&[
            ("usr/lib/os-release", "ID=debian\nVERSION_CODENAME=trixie\n"),
            (
                "var/lib/dpkg/status.d/libc6",
                "Package: libc6\nVersion: 2.41-12\n",
            ),
        ]);
        let system = System::read(dir.path()).unwrap();
        assert_eq!(system.installed["libc6"], "2.41-12");
        let names = |platform| {
            system
                .suites(platform)
                .into_iter()
                .map(|s| s.name)
                .collect::<Vec<_>>()
        };
        let expected = ["trixie", "trixie-updates", "trixie-security"];
        assert_eq!(names(Platform::LinuxArm64), expected);
    }

    #[test]
    fn ubuntus_own_keys_are_taken_and_its_ports_for_arm() {
        let keys = catalog::keyring("debian-archive-trixie").unwrap();
        let dir = base(&[
            (
                "etc/os-release",
                "NAME=x\nID=\"ubuntu\"\nVERSION_CODENAME=noble\n",
            ),
            ("var/lib/dpkg/status", STATUS),
        ]);
        let ring = dir.path().join("usr/share/keyrings");
        std::fs::create_dir_all(&ring).unwrap();
        std::fs::write(ring.join("ubuntu-archive-keyring.gpg"), keys).unwrap();
        let system = System::read(dir.path()).unwrap();
        assert_eq!(system.installed.len(), 1);
        let suites = system.suites(Platform::LinuxArm64);
        assert_eq!(
            (suites[2].archive.as_str(), suites[2].name.as_str()),
            ("ubuntu-ports", "noble-security")
        );
        assert_eq!(system.suites(Platform::LinuxAmd64)[0].archive, "ubuntu");
    }

    #[test]
    fn what_is_missing_is_said() {
        assert!(why(&[]).contains("neither Debian nor Ubuntu"));
        let alpine = ("etc/os-release", "ID=alpine\nVERSION_CODENAME=x\n");
        assert!(why(&[alpine]).contains("`alpine x`"));
        let debian = ("etc/os-release", "ID=debian\nVERSION_CODENAME=sid\n");
        assert!(why(&[debian]).contains("no package database"));
        assert!(why(&[debian, ("var/lib/dpkg/status", STATUS)]).contains("no keys"));
        let damaged = ("usr/share/keyrings/debian-archive-keyring.gpg", "no key");
        why(&[debian, ("var/lib/dpkg/status", STATUS), damaged]);
    }
}
