//! Directories that an earlier version wrote, whose marker lay beside them.

use super::marker::{Marker, NAME, read};
use super::target::Target;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// Suffix of the file beside a directory.
const EARLIER: &str = ".stackforge.json";

/// Writes markers into directories of an earlier version: the target and its previous images. That version
/// wrote its file beside the directory last, so a younger directory is not its work. The file may name
/// another image than the directory holds, so its digest is not taken over.
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

/// Whether it is a directory that was made before `than`.
fn is_older(folder: &Path, than: SystemTime) -> bool {
    let found = folder.symlink_metadata();
    found.is_ok_and(|found| found.is_dir() && found.created().is_ok_and(|at| at <= than))
}

/// As [`Marker::write`], but replaces a partial marker that a killed process left.
fn mark(folder: &Path) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o644);
    let file = File::from(openat(CWD, folder.join(NAME), flags, mode)?);
    file.set_len(0)?;
    Marker::of(None).to(file)
}
