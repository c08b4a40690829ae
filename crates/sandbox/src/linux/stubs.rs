//! Removes what mounting left in the upper directory.
//!
//! A mount needs a file or directory as its target. If the root has none, it is created, and copies of
//! its parent directories appear in the upper directory. Once every mount is gone, those that the
//! program did not touch are removed.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::text;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Stubs {
    made: Vec<Created>,
    copied: Vec<Copied>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Created {
    /// Path relative to the root.
    #[serde(with = "text::one")]
    path: PathBuf,
    inode: u64,
}

/// A layer's directory as it was before overlay copied it up.
#[derive(Debug, Serialize, Deserialize)]
struct Copied {
    #[serde(with = "text::one")]
    path: PathBuf,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Stubs {
    /// Records the parent directories of `path` that are not in `upper` yet.
    pub(crate) fn above(&mut self, upper: BorrowedFd<'_>, root: BorrowedFd<'_>, path: &Path) {
        for directory in path.ancestors().skip(1) {
            let known = self.copied.iter().any(|c| c.path == directory)
                || self.made.iter().any(|m| m.path == directory);
            if known || directory.as_os_str().is_empty() || lies_in(upper, directory) {
                continue;
            }
            if let Ok(stat) = statat(root, directory, AtFlags::SYMLINK_NOFOLLOW) {
                self.copied.push(Copied {
                    path: directory.to_owned(),
                    mode: stat.st_mode,
                    uid: stat.st_uid,
                    gid: stat.st_gid,
                });
            }
        }
    }

    /// Records what was created at `path`, which is now in `upper`.
    pub(crate) fn record(&mut self, upper: BorrowedFd<'_>, path: &Path) {
        if let Ok(stat) = statat(upper, path, AtFlags::SYMLINK_NOFOLLOW) {
            self.made.push(Created {
                path: path.to_owned(),
                inode: stat.st_ino,
            });
        }
    }

    /// Removes what is unchanged since it was created, the deepest paths first.
    pub(crate) fn remove(mut self, upper: BorrowedFd<'_>) {
        for made in self.made.iter().rev() {
            let Some((parent, name)) = parent(upper, &made.path) else {
                continue;
            };
            let Ok(stat) = statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            if stat.st_ino != made.inode {
                continue;
            }
            let flags = match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => AtFlags::REMOVEDIR,
                FileType::RegularFile if stat.st_size > 0 => continue,
                _ => AtFlags::empty(),
            };
            // A directory into which the program put something stays.
            let _ = unlinkat(&parent, &name, flags);
        }
        self.copied
            .sort_by_key(|c| std::cmp::Reverse(c.path.components().count()));
        for copied in &self.copied {
            let Some((parent, name)) = parent(upper, &copied.path) else {
                continue;
            };
            let same = statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|s| {
                (s.st_mode, s.st_uid, s.st_gid) == (copied.mode, copied.uid, copied.gid)
            });
            if same && !is_opaque(parent.as_fd(), &name) {
                let _ = unlinkat(&parent, &name, AtFlags::REMOVEDIR);
            }
        }
    }
}

fn lies_in(upper: BorrowedFd<'_>, path: &Path) -> bool {
    !matches!(
        statat(upper, path, AtFlags::SYMLINK_NOFOLLOW),
        Err(Errno::NOENT | Errno::NOTDIR)
    )
}

const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens the parent directory of `path` step by step, without following a link.
fn parent(upper: BorrowedFd<'_>, path: &Path) -> Option<(OwnedFd, PathBuf)> {
    let mut at = openat(upper, ".", DIRECTORY, Mode::empty()).ok()?;
    for part in path.parent()?.components() {
        at = openat(&at, part.as_os_str(), DIRECTORY, Mode::empty()).ok()?;
    }
    Some((at, path.file_name()?.into()))
}

/// Returns whether a directory is opaque: it hides a layer's, so the program created it, empty or not.
fn is_opaque(parent: BorrowedFd<'_>, name: &Path) -> bool {
    let Ok(directory) = openat(parent, name, DIRECTORY, Mode::empty()) else {
        return true;
    };
    let mut value = [0; 8];
    ["trusted.overlay.opaque", "user.overlay.opaque"]
        .iter()
        .any(|n| rustix::fs::fgetxattr(&directory, *n, &mut value).is_ok())
}
