//! Reads what a run changed from the upper directory that it left.
//!
//! In an overlay's upper directory a removed file is a character device 0:0, and a directory that
//! replaces a layer's directory is marked opaque by an extended attribute. Overlay's own attributes are
//! not returned.

use std::collections::HashMap;
use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{lgetxattr, llistxattr};

use super::error::SandboxError;

/// An entry of the upper directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Path relative to the root.
    pub path: PathBuf,
    /// What is at the path now.
    pub kind: ChangeKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner's user ID, as the host sees it.
    pub uid: u32,
    /// Owner's group ID, as the host sees it.
    pub gid: u32,
    /// Modification time in seconds since 1970.
    pub mtime: i64,
    /// Extended attributes by name, without overlay's own.
    pub attributes: Vec<(OsString, Vec<u8>)>,
}

/// The kind of an entry of the upper directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// A directory that was made or changed.
    Directory {
        /// Whether the directory hides the contents of the layers below.
        opaque: bool,
    },
    /// A regular file that was written or changed.
    File {
        /// Size in bytes.
        size: u64,
    },
    /// A hard link to the file at this path, which is earlier in the list.
    HardLink(PathBuf),
    /// A symbolic link, with its target as written.
    Symlink(PathBuf),
    /// The path was removed.
    Whiteout,
    /// A named pipe.
    Fifo,
    /// A socket or a device; neither is part of a layer.
    Special,
}

/// Lists everything below `upper`, sorted by name, each parent before its contents.
///
/// # Errors
/// [`SandboxError::Unreadable`], with the path.
pub fn changes(upper: &Path) -> Result<Vec<Change>, SandboxError> {
    let mut out = Vec::new();
    let mut links = HashMap::new();
    walk(upper, Path::new(""), &mut links, &mut out).map_err(|(path, source)| {
        SandboxError::Unreadable {
            path: upper.join(path),
            source,
        }
    })?;
    Ok(out)
}

type Links = HashMap<(u64, u64), PathBuf>;

fn walk(
    upper: &Path,
    below: &Path,
    links: &mut Links,
    out: &mut Vec<Change>,
) -> Result<(), (PathBuf, std::io::Error)> {
    let fault = |path: &Path| {
        let path = path.to_owned();
        move |e: std::io::Error| (path, e)
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(upper.join(below)).map_err(fault(below))? {
        names.push(entry.map_err(fault(below))?.file_name());
    }
    names.sort();
    for name in names {
        let path = below.join(name);
        let change = look(upper, &path, links).map_err(fault(&path))?;
        let directory = matches!(change.kind, ChangeKind::Directory { .. });
        out.push(change);
        if directory {
            walk(upper, &path, links, out)?;
        }
    }
    Ok(())
}

fn look(upper: &Path, path: &Path, links: &mut Links) -> std::io::Result<Change> {
    let full = upper.join(path);
    let stat = std::fs::symlink_metadata(&full)?;
    let (attributes, opaque) = attributes(&full);
    let kind = stat.file_type();
    let kind = if kind.is_dir() {
        ChangeKind::Directory { opaque }
    } else if kind.is_char_device() && stat.rdev() == 0 {
        // Whiteouts are hard links to one file, but not hard links of a layer.
        ChangeKind::Whiteout
    } else if let Some(first) = (stat.nlink() > 1)
        .then(|| links.get(&(stat.dev(), stat.ino())))
        .flatten()
    {
        ChangeKind::HardLink(first.clone())
    } else if kind.is_file() {
        ChangeKind::File { size: stat.size() }
    } else if kind.is_symlink() {
        ChangeKind::Symlink(std::fs::read_link(&full)?)
    } else if kind.is_fifo() {
        ChangeKind::Fifo
    } else {
        ChangeKind::Special
    };
    if stat.nlink() > 1 && !matches!(kind, ChangeKind::Directory { .. } | ChangeKind::Whiteout) {
        links
            .entry((stat.dev(), stat.ino()))
            .or_insert_with(|| path.to_owned());
    }
    Ok(Change {
        path: path.to_owned(),
        kind,
        mode: stat.mode() & 0o7777,
        uid: stat.uid(),
        gid: stat.gid(),
        mtime: stat.mtime(),
        attributes,
    })
}

/// Returns a file's attributes without overlay's own, and whether overlay marks the file opaque. On a
/// file system without extended attributes the list is empty.
fn attributes(path: &Path) -> (Vec<(OsString, Vec<u8>)>, bool) {
    let mut names = vec![0; 64 << 10];
    let length = llistxattr(path, &mut names).unwrap_or(0);
    let (mut out, mut opaque) = (Vec::new(), false);
    for name in names[..length].split_inclusive(|b| *b == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else {
            continue;
        };
        let mut value = vec![0; 64 << 10];
        let Ok(length) = lgetxattr(path, name, &mut value) else {
            continue;
        };
        value.truncate(length);
        match overlay_name(name.to_bytes()) {
            Some(b"opaque") => opaque |= value == b"y",
            Some(_) => {}
            None => out.push((OsString::from_vec(name.to_bytes().to_vec()), value)),
        }
    }
    out.sort();
    (out, opaque)
}

/// Strips the prefix of overlay's own attributes from a name. `None` for any other attribute.
fn overlay_name(name: &[u8]) -> Option<&[u8]> {
    [&b"trusted.overlay."[..], b"user.overlay."]
        .iter()
        .find_map(|prefix| name.strip_prefix(*prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_overlays_attributes() {
        assert_eq!(
            overlay_name(b"trusted.overlay.opaque"),
            Some(&b"opaque"[..])
        );
        assert_eq!(overlay_name(b"user.overlay.origin"), Some(&b"origin"[..]));
        assert_eq!(overlay_name(b"user.overlays"), None);
    }

    #[test]
    fn links_and_files_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("b")).unwrap();
        std::fs::write(at("a"), "1234").unwrap();
        std::fs::hard_link(at("a"), at("b/c")).unwrap();
        std::os::unix::fs::symlink("/etc/shadow", at("d")).unwrap();
        let all = changes(dir.path()).unwrap();
        let kinds: Vec<(&str, ChangeKind)> = all
            .iter()
            .map(|c| (c.path.to_str().unwrap(), c.kind.clone()))
            .collect();
        assert_eq!(
            kinds,
            [
                ("a", ChangeKind::File { size: 4 }),
                ("b", ChangeKind::Directory { opaque: false }),
                ("b/c", ChangeKind::HardLink("a".into())),
                ("d", ChangeKind::Symlink("/etc/shadow".into())),
            ]
        );
    }
}
