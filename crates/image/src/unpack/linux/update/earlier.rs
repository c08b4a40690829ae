//! An earlier tree, in which programs may be running, and the files of it that are as they were written.

use super::Tree;
use super::folders::{FOLDER, Folders};
use super::record::{Record, Recorded, Stamp};
use rustix::fs::{CWD, Mode, OFlags, openat};
use stackforge_types::Digest;
use std::collections::HashMap;

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
