//! What is recorded of a tree once it is written: its layers, and the inode and times of each file.

use super::folders::Folders;
use super::listing::Listing;
use super::merged::Merged;
use crate::store::write_atomically;
use rustix::fs::{CWD, Mode, OFlags, Stat, openat};
use serde::{Deserialize, Serialize};
use stackforge_binary::tar::MemberKind;
use stackforge_types::Digest;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

/// Most bytes of a record, decompressed.
const MOST: u64 = 1 << 30;
/// The longest step of the clock that gives files their times.
const TICK: Duration = Duration::from_millis(10);
const LEVEL: i32 = 1;

/// The layers of a tree and the state of its files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    layers: Vec<(Digest, Listing)>,
    pub(super) files: Vec<Recorded>,
}

/// A file of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Recorded {
    #[serde(rename = "p")]
    pub(super) path: String,
    /// Layer and member that the content is of.
    #[serde(rename = "c")]
    pub(super) content: (usize, usize),
    #[serde(rename = "s")]
    pub(super) stamp: Stamp,
}

/// What the kernel says of an unchanged file: inode, size, and the times of its content and of any change, in
/// seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl Stamp {
    #[allow(
        clippy::unnecessary_cast,
        clippy::cast_sign_loss,
        reason = "the fields of `stat` differ between processors"
    )]
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            inode: stat.st_ino as u64,
            size: stat.st_size as u64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        }
    }

    /// Whether only the time of change differs, as after a rename.
    pub(super) fn is_moved(&self, other: &Self) -> bool {
        Self {
            changed: other.changed,
            ..*self
        } == *other
    }
}

impl Record {
    /// Records a tree that nobody else can write to yet. `None` if the layers do not tell what is in it.
    ///
    /// # Errors
    /// If the tree cannot be read.
    pub fn of(root: &Path, layers: Vec<(Digest, Listing)>) -> io::Result<Option<Self>> {
        match Merged::of(layers.iter().map(|(_, l)| l.clone()).collect()) {
            Ok(merged) => Self::of_merged(root, &merged, layers),
            Err(_) => Ok(None),
        }
    }

    /// As [`Record::of`], of layers that were merged.
    pub(super) fn of_merged(
        root: &Path,
        merged: &Merged,
        layers: Vec<(Digest, Listing)>,
    ) -> io::Result<Option<Self>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folders = Folders::of(openat(CWD, root, flags, Mode::empty())?);
        let mut files = Vec::new();
        for (path, node) in &merged.nodes {
            if node.header.kind != MemberKind::File {
                continue;
            }
            match folders.stat(path) {
                Ok(stat) if stat.st_size.cast_unsigned() == node.header.size => {
                    files.push(Recorded {
                        path: path.clone(),
                        content: (node.content.layer, node.content.member),
                        stamp: Stamp::of(&stat),
                    });
                }
                // The merge is wrong, so nothing that it says is used.
                _ => return Ok(None),
            }
        }
        // A change from now on gets a later time than those recorded.
        std::thread::sleep(TICK);
        Ok(Some(Self { layers, files }))
    }

    /// Writes the record to a file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        write_atomically(path, &zstd::bulk::compress(&text, LEVEL)?)
    }

    /// Reads a record. `None` if there is none that this version can read.
    pub fn read(path: &Path) -> Option<Self> {
        let mut text = Vec::new();
        let file = zstd::Decoder::new(File::open(path).ok()?).ok()?;
        file.take(MOST).read_to_end(&mut text).ok()?;
        let record: Self = serde_json::from_slice(&text).ok()?;
        let is_sound = |file: &Recorded| file.content.0 < record.layers.len();
        record.files.iter().all(is_sound).then_some(record)
    }

    /// The members of a layer, if the tree has it.
    pub(super) fn listing(&self, diff_id: &Digest) -> Option<&Listing> {
        let found = self.layers.iter().find(|(own, _)| own == diff_id);
        found.map(|(_, listing)| listing)
    }

    pub(super) fn diff_id(&self, layer: usize) -> Option<&Digest> {
        self.layers.get(layer).map(|(diff_id, _)| diff_id)
    }
}
