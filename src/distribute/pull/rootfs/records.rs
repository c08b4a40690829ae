//! Records of the directories that were written, in the store.
//!
//! A service can write to its own directory, so what is in it proves nothing: the records are where only this
//! user can write. A record is found by the image in the directory's marker and by the directory's inode. That
//! it is out of date, or of another directory, is harmless: each file of a record is compared with its inode and
//! times before it is used, and those of another file are never the same.

use super::marker::Marker;
use crate::pull::PullError;
use stackforge_image::store::Store;
use stackforge_image::unpack::update::Record;
use stackforge_types::Digest;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const FOLDER: &str = "trees";
/// Most records; a service has three directories.
const MOST: usize = 24;

/// A directory by what it keeps under another name.
pub(super) struct Directory {
    path: PathBuf,
    inode: u64,
}

impl Directory {
    pub fn of(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            inode: path.symlink_metadata()?.ino(),
        })
    }
}

#[derive(Clone)]
pub(super) struct Records {
    folder: PathBuf,
    /// Digest of the image that is written.
    digest: Digest,
}

impl Records {
    pub fn of(store: &Store, digest: &Digest) -> Result<Self, PullError> {
        Ok(Self {
            folder: store.dir(FOLDER)?,
            digest: digest.clone(),
        })
    }

    /// Reads the record of a directory with a marker.
    pub fn read(&self, directory: &Path) -> Option<Record> {
        let digest = Marker::read(directory)?.digest?;
        let inode = Directory::of(directory).ok()?.inode;
        Record::read(&self.file(&digest, inode))
    }

    /// Writes the record of the new directory, which may get another name meanwhile. Without it the next update unpacks
    /// anew, so a failure is only reported.
    pub fn write(&self, directory: &Directory, record: &Record) {
        let path = self.file(&self.digest, directory.inode);
        if let Err(e) = record.write(&path).and_then(|()| self.forget()) {
            tracing::warn!(
                "the next update of {} takes longer: {e}",
                directory.path.display()
            );
        }
    }

    fn file(&self, digest: &Digest, inode: u64) -> PathBuf {
        self.folder.join(format!("{}-{inode}", digest.hex()))
    }

    /// Removes the oldest records.
    fn forget(&self) -> io::Result<()> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            all.push((entry.metadata()?.modified()?, entry.path()));
        }
        all.sort();
        let more = all.len().saturating_sub(MOST);
        all.iter()
            .take(more)
            .try_for_each(|(_, path)| fs::remove_file(path))
    }
}
