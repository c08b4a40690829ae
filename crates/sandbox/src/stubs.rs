//! What mounting left in the directory that is written, and its removal.
//!
//! A mount needs a file or directory to lie on. Where the root has none, it is made, and copies of
//! the directories above it appear in the upper directory. Once every mount is gone, all that the
//! program did not touch goes too.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::text;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Stubs {
    made: Vec<Made>,
    copied: Vec<Copied>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Made {
    /// Relative to the root.
    #[serde(with = "text::one")]
    path: PathBuf,
    inode: u64,
}

/// A directory of a layer as it was before it had to be copied.
#[derive(Debug, Serialize, Deserialize)]
struct Copied {
    #[serde(with = "text::one")]
    path: PathBuf,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Stubs {
    /// Notes the directories above `path` that are not in `upper` yet.
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

    /// Notes what was made at `path`, which is in `upper` now.
    pub(crate) fn made(&mut self, upper: BorrowedFd<'_>, path: &Path) {
        if let Ok(stat) = statat(upper, path, AtFlags::SYMLINK_NOFOLLOW) {
            self.made.push(Made {
                path: path.to_owned(),
                inode: stat.st_ino,
            });
        }
    }

    /// Removes what is still as it was made, the deepest first.
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
            // A directory that the program put something into stays.
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

/// Opens the directory that holds `path` step by step, without following a link.
fn parent(upper: BorrowedFd<'_>, path: &Path) -> Option<(OwnedFd, PathBuf)> {
    let mut at = openat(upper, ".", DIRECTORY, Mode::empty()).ok()?;
    for part in path.parent()?.components() {
        at = openat(&at, part.as_os_str(), DIRECTORY, Mode::empty()).ok()?;
    }
    Some((at, path.file_name()?.into()))
}

/// An opaque directory hides a layer's: the program made it, empty or not.
fn is_opaque(parent: BorrowedFd<'_>, name: &Path) -> bool {
    let Ok(directory) = openat(parent, name, DIRECTORY, Mode::empty()) else {
        return true;
    };
    let mut value = [0; 8];
    ["trusted.overlay.opaque", "user.overlay.opaque"]
        .iter()
        .any(|n| rustix::fs::fgetxattr(&directory, *n, &mut value).is_ok())
}
