//! macOS and other systems of Unix's kind: what POSIX has.

use crate::within::Within;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Dir, FileType, Mode, OFlags, fstat, openat};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Opens a directory as a place for names. It has to be readable.
pub const PLACE: OFlags = OFlags::RDONLY;

/// Directory with the open descriptors of the process that looks into it.
const DESCRIPTORS: &str = "/dev/fd";

/// There is no such call.
pub(crate) fn open_whole(
    _: BorrowedFd<'_>,
    _: &CStr,
    _: OFlags,
    _: Mode,
    _: Within,
) -> Result<OwnedFd> {
    Err(Errno::NOSYS)
}

/// The number of the device that a file is on: there are no bind mounts, so it tells mounts apart.
pub(crate) fn mount(file: BorrowedFd<'_>) -> Result<u64> {
    #[allow(clippy::unnecessary_cast, reason = "its width differs between systems")]
    Ok(fstat(file)?.st_dev as u64)
}

/// Waits until everything below a directory is on disk.
///
/// # Errors
/// If a file cannot be opened, or the file system cannot write what it holds in memory.
pub fn sync(folder: impl AsFd) -> io::Result<()> {
    let folder = folder.as_fd();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match openat(folder, name, flags, Mode::empty()) {
            // A symbolic link is part of its directory.
            Err(Errno::LOOP) => continue,
            opened => opened?,
        };
        match FileType::from_raw_mode(fstat(&opened)?.st_mode) {
            FileType::Directory => sync(&opened)?,
            FileType::RegularFile => File::from(opened).sync_all()?,
            _ => {}
        }
    }
    File::from(folder.try_clone_to_owned()?).sync_all()
}

/// That cannot be asked for.
pub fn begin_to_write(_: &File, _: Range<u64>) {}

/// There are no files without a name.
///
/// # Errors
/// Always.
pub fn unnamed(_: &Path, _: u32) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// There are no files without a name.
///
/// # Errors
/// Always.
pub fn linked(_: &File, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether the files in a directory, given without links in its path, are the open descriptors of a process.
pub fn holds_descriptors(folder: &Path) -> bool {
    folder == Path::new(DESCRIPTORS)
}

/// Whether they are those of this process.
pub fn holds_own_descriptors(folder: &Path) -> bool {
    holds_descriptors(folder)
}

/// Returns the path of this program.
pub fn program() -> PathBuf {
    std::env::current_exe()
        .ok()
        .or_else(|| Some(std::env::args_os().next()?.into()))
        .unwrap_or_default()
}

/// Whether SIGHUP was ignored when this process started. Listening for the signal would end that.
pub fn ignores_hangup() -> bool {
    // SAFETY: all zeros are a `sigaction`, and without a new action the call only writes the present one into it.
    unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &raw mut present) == 0
            && present.sa_sigaction == libc::SIG_IGN
    }
}

/// Programs of an image run in the engine's virtual machine, whose memory only the engine knows.
pub fn memory() -> Option<u64> {
    None
}
