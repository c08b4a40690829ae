//! The file that says that stackforge wrote a directory, and which image is in it.
//!
//! It lies in the root of the image's files, so it moves with them: one rename changes what a directory
//! holds and what is said of it, and no moment between the two exists. A copy and a move keep it.
//! A file beside the directory would be of another moment, and an inode's number is given again.

use super::target::Target;
use rustix::fs::{CWD, Mode, OFlags, openat};
use serde::{Deserialize, Serialize};
use stackforge_types::Digest;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::time::SystemTime;

pub(super) const NAME: &str = ".stackforge.json";
/// Suffix of the file beside a directory that earlier versions wrote.
const EARLIER: &str = ".stackforge.json";
const MOST: u64 = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marker {
    /// Version of the stackforge that wrote the directory.
    #[serde(default)]
    pub stackforge: String,
    /// Of the image's manifest. None if it is not known: then the directory is replaced by any image.
    pub digest: Option<Digest>,
}

impl Marker {
    pub fn of(digest: Option<&Digest>) -> Self {
        Self {
            stackforge: env!("CARGO_PKG_VERSION").to_owned(),
            digest: digest.cloned(),
        }
    }

    /// Reads the marker of a directory. None if there is none: stackforge did not write it.
    pub fn read(folder: &Path) -> Option<Self> {
        // A file of somebody else's may be JSON too.
        read(&folder.join(NAME)).filter(|marker| !marker.stackforge.is_empty())
    }

    /// Writes a new marker to disk.
    ///
    /// # Errors
    /// `AlreadyExists` if the directory has one.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let path = folder.join(NAME);
        self.to(File::options().write(true).create_new(true).open(path)?)
    }

    fn to(&self, mut file: File) -> io::Result<()> {
        file.write_all(serde_json::to_string(self)?.as_bytes())?;
        file.sync_all()
    }
}

/// Programs of the image may have put anything there.
fn read(path: &Path) -> Option<Marker> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Gives markers to what an earlier version wrote: the directory and those that were there before it. Its
/// file beside the directory was written last, so what is younger is not its work. That file may name
/// another image than the directory holds, so the digest is not taken over.
pub(super) fn take_over(target: &Target) -> io::Result<()> {
    let file = target.beside(EARLIER);
    if read(&file).is_none_or(|marker| marker.digest.is_none()) {
        return Ok(());
    }
    let written = file.symlink_metadata()?.modified()?;
    let older = |folder: &Path| is_older(folder, written) && Marker::read(folder).is_none();
    if older(target.path()) {
        let before = (1..).map(|n| target.slot(n));
        for folder in before.take_while(|folder| folder.symlink_metadata().is_ok()) {
            if older(&folder) {
                mark(&folder)?;
            }
        }
        mark(target.path())?;
    }
    fs::remove_file(&file)
}

/// Whether it is a directory that was made before a time.
fn is_older(folder: &Path, than: SystemTime) -> bool {
    let found = folder.symlink_metadata();
    found.is_ok_and(|found| found.is_dir() && found.created().is_ok_and(|at| at <= than))
}

/// The same as [`Marker::write`] where a killed process may have left a part.
fn mark(folder: &Path) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o644);
    let file = File::from(openat(CWD, folder.join(NAME), flags, mode)?);
    file.set_len(0)?;
    Marker::of(None).to(file)
}
