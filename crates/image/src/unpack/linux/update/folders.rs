//! The directories of a tree in which programs may be running.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, statat};
use rustix::io::Errno;
use stackforge_binary::tar::bytes;
use stackforge_types::beneath::{Within, open_beneath};
use std::os::fd::OwnedFd;

/// How a directory is opened to find files in it.
pub(super) const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Directories of a tree, of which the last one that was used stays open. No symbolic link and no mount is
/// followed.
pub(super) struct Folders {
    root: OwnedFd,
    last: Option<(String, OwnedFd)>,
}

impl Folders {
    pub(super) fn of(root: OwnedFd) -> Self {
        Self { root, last: None }
    }

    /// Opens the directory of a path; returns it with the file's name.
    pub(super) fn open<'a>(&mut self, path: &'a str) -> rustix::io::Result<(&OwnedFd, &'a str)> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        if self.last.as_ref().is_none_or(|(last, _)| last != folder) {
            let below = bytes(if folder.is_empty() { "." } else { folder });
            let opened = open_beneath(&self.root, below, FOLDER, Mode::empty(), Within::OneMount)?;
            self.last = Some((folder.to_owned(), opened));
        }
        let (_, opened) = self.last.as_ref().ok_or(Errno::NOENT)?;
        Ok((opened, name))
    }

    /// The state of a regular file.
    pub(super) fn stat(&mut self, path: &str) -> rustix::io::Result<Stat> {
        let (folder, name) = self.open(path)?;
        let stat = statat(folder, bytes(name), AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(stat),
            _ => Err(Errno::INVAL),
        }
    }
}
