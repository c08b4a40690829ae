//! An earlier tree, in which programs may be running, and the files of it that are as they were written.

use super::Tree;
use super::record::{Record, Recorded, Stamp};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;
use stackforge_binary::tar::bytes;
use stackforge_types::Digest;
use stackforge_types::beneath::{Within, open_beneath};
use std::collections::HashMap;
use std::os::fd::OwnedFd;

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

pub(super) struct Earlier {
    pub(super) folders: Folders,
    pub(super) is_spare: bool,
    record: Record,
    /// Files of the record by content. One of its names is enough.
    by_content: HashMap<(Digest, usize), usize>,
}

impl Earlier {
    /// `None` if the directory is gone.
    pub(super) fn open(tree: Tree<'_>) -> Option<Self> {
        let root = openat(CWD, tree.path, FOLDER | OFlags::NOFOLLOW, Mode::empty()).ok()?;
        let record = tree.record;
        let mut by_content = HashMap::with_capacity(record.files.len());
        for (n, file) in record.files.iter().enumerate() {
            let diff_id = record.diff_id(file.content.0)?.clone();
            by_content.entry((diff_id, file.content.1)).or_insert(n);
        }
        Some(Self {
            folders: Folders::of(root),
            is_spare: tree.is_spare,
            record,
            by_content,
        })
    }

    /// Whether a file with this content is there, unchanged.
    pub(super) fn find(&mut self, diff_id: &Digest, member: usize) -> bool {
        let Some(file) = self.recorded(diff_id, member).cloned() else {
            return false;
        };
        let stat = self.folders.stat(&file.path);
        stat.is_ok_and(|stat| Stamp::of(&stat) == file.stamp)
    }

    /// The file with this content, as it was recorded.
    pub(super) fn recorded(&self, diff_id: &Digest, member: usize) -> Option<&Recorded> {
        let at = self.by_content.get(&(diff_id.clone(), member))?;
        self.record.files.get(*at)
    }
}

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
