//! Reads `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// A mount of this process's mount namespace (proc_pid_mountinfo(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Directory of the mounted file system that is visible at the mount point.
    pub root: PathBuf,
    /// The mount point.
    pub at: PathBuf,
    /// The file system's type, such as `ext4`.
    pub kind: String,
    /// Options of the file system, such as `rw,memory`.
    pub options: String,
}

/// Returns the mounts that this process sees, in the order in which they were made. Empty if `/proc` is
/// not mounted.
pub fn here() -> Vec<Mounted> {
    std::fs::read("/proc/self/mountinfo").map_or_else(|_| Vec::new(), |text| parse(&text))
}

/// Reads the text of a `mountinfo` file. A malformed line is skipped.
pub fn parse(text: &[u8]) -> Vec<Mounted> {
    text.split(|b| *b == b'\n').filter_map(line).collect()
}

fn line(line: &[u8]) -> Option<Mounted> {
    let words: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let after = words.iter().position(|w| *w == b"-")?;
    Some(Mounted {
        root: path(words.get(3)?),
        at: path(words.get(4)?),
        kind: String::from_utf8_lossy(words.get(after + 1)?).into_owned(),
        options: String::from_utf8_lossy(words.get(after + 3)?).into_owned(),
    })
}

/// Decodes a path, in which blanks, line ends and backslashes are three octal digits.
fn path(word: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let octal = (*first == b'\\')
            .then(|| after.get(..3))
            .flatten()
            .and_then(|d| std::str::from_utf8(d).ok())
            .and_then(|d| u8::from_str_radix(d, 8).ok());
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = &after[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

/// Returns the topmost mount points below `root`, relative to it. Those in `/dev`, `/proc` and `/sys`
/// are left out, because a sandbox has its own.
pub fn below(mounts: &[Mounted], root: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = mounts
        .iter()
        .filter_map(|m| m.at.strip_prefix(root).ok())
        .filter(|p| !p.as_os_str().as_bytes().is_empty())
        .filter(|p| !["dev", "proc", "sys"].iter().any(|own| p.starts_with(own)))
        .map(Path::to_owned)
        .collect();
    all.sort();
    all.dedup_by(|later, earlier| later.starts_with(&*earlier));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"21 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        30 21 0:5 / /proc rw - proc proc rw\n\
        31 21 0:6 /sub /mnt/a\\040b rw shared:1 - tmpfs none rw,size=1k\n\
        32 31 0:7 / /mnt/a\\040b/deeper rw - tmpfs none rw\n\
        33 21 0:8 /x /etc/hosts ro - ext4 /dev/vda rw\n";

    #[test]
    fn mounts_below_a_root() {
        let mounts = parse(TEXT);
        assert_eq!(mounts[2].at, Path::new("/mnt/a b"));
        assert_eq!(mounts[2].root, Path::new("/sub"));
        assert_eq!(mounts[2].options, "rw,size=1k");
        let mount_points = below(&mounts, Path::new("/"));
        assert_eq!(mount_points, [Path::new("etc/hosts"), Path::new("mnt/a b")]);
        assert_eq!(below(&mounts, Path::new("/mnt/a b")), [Path::new("deeper")]);
    }

    proptest! {
        #[test]
        fn any_text_is_fine(b in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&b);
        }
    }
}
