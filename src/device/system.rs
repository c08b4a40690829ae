//! Reads the operating system: os-release, kernel, C library, loader.

use serde::Serialize;
use stackforge_types::Platform;
use stackforge_types::root::{Root, clean, leading_version};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct System {
    /// Name, as in `Ubuntu 24.04.1 LTS`.
    pub name: Option<String>,
    /// os-release's `ID` and `VERSION_ID`.
    pub id: Option<String>,
    pub version: Option<String>,
    pub kernel: Option<String>,
    /// Version of glibc.
    pub libc: Option<String>,
}

/// Most bytes of libc.so.6 that are read; no glibc is nearly as long.
const LONGEST_LIBRARY: u64 = 16 << 20;

pub fn read(root: &Root) -> System {
    let mut system = ["/etc/os-release", "/usr/lib/os-release"]
        .into_iter()
        .find_map(|p| root.text(p))
        .map(|text| os_release(&text))
        .unwrap_or_default();
    system.kernel = root.value("/proc/sys/kernel/osrelease");
    system.libc = Platform::ALL
        .iter()
        .flat_map(|p| {
            [
                format!("/lib/{}-linux-gnu/libc.so.6", p.machine()),
                "/lib64/libc.so.6".to_owned(),
            ]
        })
        .find_map(|p| root.bytes(&p, LONGEST_LIBRARY))
        .and_then(|bytes| libc_version(&bytes));
    system
}

/// Returns the platform of the installed dynamic loader.
pub fn platform(root: &Root) -> Option<Platform> {
    let loaders = [
        ("/lib64/ld-linux-x86-64.so.2", Platform::LinuxAmd64),
        ("/lib/ld-linux-aarch64.so.1", Platform::LinuxArm64),
    ];
    loaders
        .into_iter()
        .find(|(path, _)| root.exists(path))
        .map(|(_, platform)| platform)
}

/// Parses os-release(5).
pub fn os_release(text: &str) -> System {
    let value = |name: &str| {
        let line = text.lines().find_map(|l| l.trim().strip_prefix(name))?;
        let value = line.strip_prefix('=')?.trim_matches(['"', '\'']);
        Some(clean(value)).filter(|v| !v.is_empty())
    };
    System {
        name: value("PRETTY_NAME").or_else(|| value("NAME")),
        id: value("ID"),
        version: value("VERSION_ID"),
        ..System::default()
    }
}

/// Finds glibc's version in the string that `libc.so.6` prints when it is run.
pub fn libc_version(library: &[u8]) -> Option<String> {
    let words = b"release version ";
    let at = library.windows(words.len()).position(|w| w == words)?;
    let rest = &library[at + words.len()..];
    let text = String::from_utf8_lossy(&rest[..rest.len().min(16)]);
    leading_version(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_lose_their_quotes() {
        let system = os_release(
            "NAME=\"Ubuntu\"\nVERSION_ID='24.04'\nID=ubuntu\nPRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\n",
        );
        assert_eq!(system.name.as_deref(), Some("Ubuntu 24.04.1 LTS"));
        assert_eq!(system.version.as_deref(), Some("24.04"));
        assert_eq!(system.id.as_deref(), Some("ubuntu"));
    }

    #[test]
    fn this_machines_own_libc_says_its_version() {
        let banner = b"\0GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\nCopyright";
        assert_eq!(libc_version(banner).as_deref(), Some("2.36"));
        assert!(read(&Root::new("/".as_ref())).libc.is_some());
    }

    proptest! {
        #[test]
        fn parsers_never_panic(s in "(?s).*", b in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = os_release(&s);
            let _ = os_release(&format!("ID={s}\nPRETTY_NAME=\"{s}"));
            let mut library = b"release version ".to_vec();
            library.extend(&b);
            let _ = libc_version(&library);
            let _ = libc_version(&b);
        }
    }
}
