//! Reads files below the root directory of a machine.
//!
//! All content is untrusted: reads are bounded, symbolic links never lead outside the directory, and only
//! regular files are opened for reading. Content that cannot be read counts as absent and is never an error.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

/// Longest text, in bytes. /proc/cpuinfo has about 1.5 KiB for each of a server's many hundred processors.
const LONGEST_TEXT: u64 = 8 << 20;
const MOST_LINKS: usize = 40;
const MOST_ENTRIES: usize = 4096;
/// Longest name or version that is kept, in bytes.
const LONGEST_VALUE: usize = 120;

/// The root directory of a machine: of this one, or of one that is mounted.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Root {
    /// Describes the machine whose root directory is `path`, which need not exist.
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Whether it is the root of the machine that this program runs on.
    pub fn is_here(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Returns the content of a file, cut at the longest length of a text.
    pub fn text(&self, path: &str) -> Option<String> {
        let bytes = self.bytes(path, LONGEST_TEXT)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns at most `limit` bytes of a regular file. `None` if it cannot be read.
    pub fn bytes(&self, path: &str, limit: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(path)?.take(limit).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Returns a short text such as a number in /sys.
    pub fn value(&self, path: &str) -> Option<String> {
        let bytes = self.bytes(path, 4096)?;
        Some(clean(&String::from_utf8_lossy(&bytes))).filter(|v| !v.is_empty())
    }

    /// Whether the path leads to something that exists.
    pub fn exists(&self, path: &str) -> bool {
        self.resolve(path).is_some_and(|p| p.exists())
    }

    /// Returns the names in a directory, sorted.
    pub fn list(&self, path: &str) -> Vec<String> {
        let Some(entries) = self.resolve(path).and_then(|p| std::fs::read_dir(p).ok()) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .take(MOST_ENTRIES)
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    fn open(&self, path: &str) -> Option<File> {
        let path = self.resolve(path)?;
        // Without O_NONBLOCK, opening a FIFO waits for a writer.
        let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).ok()?;
        let file = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(nonblock)
            .open(path)
            .ok()?;
        file.metadata().ok()?.is_file().then_some(file)
    }

    /// Returns the path on this machine for a path of the described machine, with symbolic links resolved there.
    pub fn resolve(&self, path: &str) -> Option<PathBuf> {
        let real = self.real(path)?;
        Some(self.0.join(real.strip_prefix("/").unwrap_or(&real)))
    }

    /// Returns the path in the described machine with symbolic links resolved.
    pub fn real(&self, path: &str) -> Option<PathBuf> {
        let mut rest: VecDeque<OsString> = parts(Path::new(path));
        let mut inside = PathBuf::new();
        let mut links = 0;
        while let Some(part) = rest.pop_front() {
            if part == ".." {
                inside.pop();
                continue;
            }
            let next = inside.join(&part);
            let Ok(to) = std::fs::read_link(self.0.join(&next)) else {
                inside = next;
                continue;
            };
            links += 1;
            if links > MOST_LINKS {
                return None;
            }
            if to.is_absolute() {
                inside = PathBuf::new();
            }
            let mut followed = parts(&to);
            followed.append(&mut rest);
            rest = followed;
        }
        Some(Path::new("/").join(inside))
    }
}

fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|c| match c {
            Component::Normal(part) => Some(part.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect()
}

/// Cleans a text for a report: one short line, without the NUL that ends a value of a device tree.
pub fn clean(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .filter(|c| !c.is_control() && *c != '\u{fffd}')
        .take(LONGEST_VALUE)
        .collect();
    plain.trim().to_owned()
}

/// Returns numbers joined by dots, such as a version, from the start of a text.
pub fn leading_version(text: &str) -> Option<String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let version = text[..end].trim_end_matches('.');
    let numbers = version.split('.').count();
    let fine = version.len() <= 32
        && (2..=4).contains(&numbers)
        && version.split('.').all(|n| !n.is_empty() && n.len() <= 8);
    fine.then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_stay_inside_and_loops_end() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        std::fs::write(dir.path().join("real"), "inside").unwrap();
        symlink("/real", dir.path().join("etc/absolute")).unwrap();
        symlink("../../../../real", dir.path().join("etc/relative")).unwrap();
        symlink("loop", dir.path().join("etc/loop")).unwrap();
        symlink("/etc/passwd", dir.path().join("etc/outside")).unwrap();
        let root = Root::new(dir.path());
        assert_eq!(root.text("/etc/absolute").as_deref(), Some("inside"));
        assert_eq!(root.text("/etc/relative").as_deref(), Some("inside"));
        assert_eq!(root.text("/../../real").as_deref(), Some("inside"));
        assert_eq!(root.text("/etc/loop"), None);
        assert_eq!(root.text("/etc/outside"), None, "there is none inside");
        assert_eq!(root.text("/etc"), None, "a directory is not text");
    }

    #[test]
    fn a_fifo_does_not_hold_the_reader() {
        let dir = tempfile::tempdir().unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(dir.path().join("os-release"))
            .status();
        assert!(made.unwrap().success());
        assert_eq!(Root::new(dir.path()).text("/os-release"), None);
    }

    #[test]
    fn versions_at_the_start() {
        assert_eq!(
            leading_version("580.65.06 Release").as_deref(),
            Some("580.65.06")
        );
        assert_eq!(leading_version("13.0, V13.0.88").as_deref(), Some("13.0"));
        for none in ["", "13", "..", "a1.2", "1..2", "1.2.3.4.5"] {
            assert_eq!(leading_version(none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_one_short_line(s in "(?s).*") {
            let shown = clean(&s);
            prop_assert!(shown.chars().count() <= LONGEST_VALUE);
            prop_assert!(!shown.chars().any(char::is_control));
            let _ = leading_version(&s);
        }

        #[test]
        fn no_path_leaves_the_root(path in "(\\.\\./|/|a|\\.)*") {
            let dir = tempfile::tempdir().unwrap();
            let at = Root::new(dir.path()).resolve(&path).unwrap();
            prop_assert!(at.starts_with(dir.path()));
            prop_assert!(!at.components().any(|c| c == Component::ParentDir));
        }
    }
}
