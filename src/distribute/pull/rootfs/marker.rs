//! The file that marks a directory as written by stackforge and names the image in it.
//!
//! It is in the root of the image's files and moves with them: one rename changes both what a directory
//! holds and what is recorded of it. Copying or moving the directory keeps the marker. A file beside the
//! directory could not be changed in the same step, and inode numbers are reused.

use rustix::fs::{CWD, Mode, OFlags, openat};
use serde::{Deserialize, Serialize};
use stackforge_types::Digest;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

pub(super) const NAME: &str = ".stackforge.json";
const MOST: u64 = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marker {
    /// Version of the stackforge that wrote the directory.
    #[serde(default)]
    pub stackforge: String,
    /// Digest of the image's manifest. `None` if it is not known: then any image replaces the directory.
    pub digest: Option<Digest>,
}

impl Marker {
    pub fn of(digest: Option<&Digest>) -> Self {
        Self {
            stackforge: env!("CARGO_PKG_VERSION").to_owned(),
            digest: digest.cloned(),
        }
    }

    /// Reads the marker of a directory. `None` if stackforge did not write the directory.
    pub fn read(folder: &Path) -> Option<Self> {
        // Another program's file of this name may be JSON too.
        read(&folder.join(NAME)).filter(|marker| !marker.stackforge.is_empty())
    }

    /// Writes a new marker and syncs it.
    ///
    /// # Errors
    /// `AlreadyExists` if the directory has one.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let path = folder.join(NAME);
        self.to(File::options().write(true).create_new(true).open(path)?)
    }

    pub(super) fn to(&self, mut file: File) -> io::Result<()> {
        file.write_all(serde_json::to_string(self)?.as_bytes())?;
        file.sync_all()
    }
}

/// Reads a marker. Programs of the image may have put any kind of file in its place.
pub(super) fn read(path: &Path) -> Option<Marker> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}
