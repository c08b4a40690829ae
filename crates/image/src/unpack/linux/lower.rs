//! Handles the files of lower layers in a directory that a layer is unpacked over.
//!
//! A layer hides files of lower layers, never its own, so its own paths are remembered. A directory without
//! any of them is removed whole; the others are read one at a time, so that the number of open descriptors
//! does not depend on the depth.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, statat, unlinkat};
use rustix::io::Errno;

use super::error::UnpackError;
use super::paths::{Paths, join};
use stackforge_binary::tar::{bytes, text};
use stackforge_types::beneath::{Within, open_beneath};
use stackforge_types::remove_at;

#[derive(Default)]
pub(super) struct Lower {
    /// Paths of the current layer.
    own: Paths,
}

impl Lower {
    /// Removes what a member replaces. `keeps` is set for a directory, which merges with an existing one.
    pub(super) fn replace(
        &mut self,
        folder: &OwnedFd,
        name: &str,
        path: &str,
        keeps: bool,
    ) -> Result<(), UnpackError> {
        // A directory that contains members of the layer belongs to the layer too.
        if !self.own.insert(path) {
            return Err(UnpackError::Many);
        }
        if keeps || kind(folder, name) != Some(FileType::Directory) {
            return Ok(());
        }
        self.clear(folder, name, path)?;
        match unlinkat(folder, bytes(name), AtFlags::REMOVEDIR) {
            // The layer has files in it; the error is reported when the member is written.
            Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(e) => Err(UnpackError::at("remove", path, e)),
        }
    }

    /// Removes what a whiteout hides.
    pub(super) fn remove(
        &self,
        folder: &OwnedFd,
        name: &str,
        path: &str,
    ) -> Result<(), UnpackError> {
        match (kind(folder, name), self.own.contains(path)) {
            (None, _) => Ok(()),
            (Some(FileType::Directory), true) => self.clear(folder, name, path),
            (Some(_), true) => Ok(()),
            (Some(FileType::Directory), false) => remove_tree(folder, name, path),
            (Some(_), false) => unlink(folder, name, path),
        }
    }

    /// Removes the files of lower layers in a directory.
    pub(super) fn empty(&self, folder: &OwnedFd, path: &str) -> Result<(), UnpackError> {
        self.clear(folder, ".", path)
    }

    /// Removes everything in the directory `name` except the layer's own files.
    fn clear(&self, folder: &OwnedFd, name: &str, path: &str) -> Result<(), UnpackError> {
        // Directories left to clear: path from `folder`, and path in the image.
        let mut left = vec![(name.to_owned(), path.to_owned())];
        while let Some((at, path)) = left.pop() {
            let listed = open(folder, &at, &path)?;
            let failed = |e| UnpackError::at("list", &path, e);
            for entry in Dir::read_from(&listed).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let name = match entry.file_name().to_bytes() {
                    b"." | b".." => continue,
                    name => text(name),
                };
                let below = join(&path, &name);
                let is_folder = kind(&listed, &name) == Some(FileType::Directory);
                match (is_folder, self.own.contains(&below)) {
                    (true, true) => left.push((format!("{at}/{name}"), below)),
                    (false, true) => {}
                    (true, false) => remove_tree(&listed, &name, &below)?,
                    (false, false) => unlink(&listed, &name, &below)?,
                }
            }
        }
        Ok(())
    }
}

fn kind(folder: &OwnedFd, name: &str) -> Option<FileType> {
    let found = statat(folder, bytes(name), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(found.st_mode))
}

fn unlink(folder: impl AsFd, name: &str, path: &str) -> Result<(), UnpackError> {
    match unlinkat(folder, bytes(name), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(UnpackError::at("remove", path, e)),
    }
}

/// Removes a directory that contains no files of the layer.
fn remove_tree(folder: impl AsFd, name: &str, path: &str) -> Result<(), UnpackError> {
    let removed = CString::new(bytes(name)).map_err(|_| Errno::INVAL);
    let removed = removed.and_then(|name| remove_at(folder, &name));
    removed.map_err(|e| UnpackError::at("remove", path, e))
}

fn open(folder: impl AsFd, name: &str, path: &str) -> Result<OwnedFd, UnpackError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open_beneath(folder, bytes(name), flags, Mode::empty(), Within::Folders)
        .map_err(|e| UnpackError::at("open", path, e))
}
