//! What lower layers left in the directory that a layer is unpacked over.
//!
//! A layer hides what is below it, never what it has itself: so the paths that it has are remembered.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::Errno;

use super::{UnpackError, join};
use crate::tar::{bytes, text};

/// Deeper trees than any program makes.
const DEEPEST: usize = 4096;

#[derive(Default)]
pub(super) struct Lower {
    /// Paths that the layer at hand has.
    own: HashSet<String>,
}

impl Lower {
    /// Makes way for a member; `keeps` for a directory, which joins the one that is there.
    pub fn replace(
        &mut self,
        folder: &OwnedFd,
        name: &str,
        path: &str,
        keeps: bool,
    ) -> Result<(), UnpackError> {
        let mut at = path;
        // A folder that the layer has something in is its own, too.
        while self.own.insert(at.to_owned()) {
            match at.rsplit_once('/') {
                Some((above, _)) => at = above,
                None => break,
            }
        }
        match kind(folder, name) {
            Some(FileType::Directory) if !keeps => {
                tree(folder, name, path, self, 0)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Removes what a whiteout hides.
    pub fn remove(&self, folder: &OwnedFd, name: &str, path: &str) -> Result<(), UnpackError> {
        match kind(folder, name) {
            None => Ok(()),
            Some(FileType::Directory) if self.own.contains(path) => {
                let inner = open(folder, name, path)?;
                content(&inner, path, self, 0).map(drop)
            }
            Some(FileType::Directory) => tree(folder, name, path, self, 0).map(drop),
            Some(_) if self.own.contains(path) => Ok(()),
            Some(_) => unlink(folder, name, path, AtFlags::empty()),
        }
    }

    /// Removes what lower layers have in a folder.
    pub fn empty(&self, folder: &OwnedFd, path: &str) -> Result<(), UnpackError> {
        content(folder, path, self, 0).map(drop)
    }
}

fn kind(folder: &OwnedFd, name: &str) -> Option<FileType> {
    let found = statat(folder, bytes(name), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(found.st_mode))
}

fn unlink(folder: impl AsFd, name: &str, path: &str, flags: AtFlags) -> Result<(), UnpackError> {
    match unlinkat(folder, bytes(name), flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(UnpackError::at("remove", path, e)),
    }
}

fn open(folder: impl AsFd, name: &str, path: &str) -> Result<OwnedFd, UnpackError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(folder, bytes(name), flags, Mode::empty()).map_err(|e| UnpackError::at("open", path, e))
}

/// Removes a folder, but for what the layer has in it. Whether it is gone.
fn tree(
    folder: impl AsFd,
    name: &str,
    path: &str,
    lower: &Lower,
    depth: usize,
) -> Result<bool, UnpackError> {
    let inner = open(&folder, name, path)?;
    if !content(&inner, path, lower, depth)? || lower.own.contains(path) && depth > 0 {
        return Ok(false);
    }
    unlink(folder, name, path, AtFlags::REMOVEDIR)?;
    Ok(true)
}

/// Removes what is in a folder, but for what the layer has. Whether it is empty.
fn content(folder: &OwnedFd, path: &str, lower: &Lower, depth: usize) -> Result<bool, UnpackError> {
    let failed = |e| UnpackError::at("list", path, e);
    if depth > DEEPEST {
        return Err(failed(Errno::NAMETOOLONG));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = openat(folder, ".", flags, Mode::empty()).map_err(failed)?;
    let mut entries = Vec::new();
    for entry in Dir::read_from(&listed).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        match entry.file_name().to_bytes() {
            b"." | b".." => {}
            name => entries.push(text(name)),
        }
    }
    let mut empty = true;
    for name in entries {
        let path = join(path, &name);
        let gone = match kind(&listed, &name) {
            Some(FileType::Directory) => tree(&listed, &name, &path, lower, depth + 1)?,
            _ if lower.own.contains(&path) => false,
            _ => {
                unlink(&listed, &name, &path, AtFlags::empty())?;
                true
            }
        };
        empty &= gone;
    }
    Ok(empty)
}
