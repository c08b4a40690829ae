//! Linux: `openat2`, `O_PATH`, `O_TMPFILE`, `syncfs` and `/proc`.

use crate::within::Within;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Result;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// Opens a directory as a place for names and no more: it need not be readable.
pub const PLACE: OFlags = OFlags::PATH;

/// An unnamed file is linked through this directory.
const DESCRIPTORS: &str = "/proc/self/fd";

impl Within {
    pub(crate) fn resolve(self) -> ResolveFlags {
        let folders = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match self {
            Self::Folders => folders,
            Self::OneMount => folders | ResolveFlags::NO_XDEV,
            Self::Root => ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
        }
    }
}

/// Opens a path below a directory in one call. `NOSYS` or `PERM` if the kernel or a filter does not know the call.
pub(crate) fn open_whole(
    folder: BorrowedFd<'_>,
    path: &CStr,
    flags: OFlags,
    mode: Mode,
    within: Within,
) -> Result<OwnedFd> {
    openat2(folder, path, flags, mode, within.resolve())
}

/// The number of the mount that a file is on, or of its device where /proc is not there.
pub(crate) fn mount(file: BorrowedFd<'_>) -> Result<u64> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()));
    let about = about.unwrap_or_default();
    let mut fields = about.lines().filter_map(|line| line.split_once(':'));
    let number = fields.find(|(name, _)| *name == "mnt_id");
    match number.and_then(|(_, number)| number.trim().parse().ok()) {
        Some(number) => Ok(number),
        None => Ok(fstat(file)?.st_dev),
    }
}

/// Waits until everything below a directory is on disk, and what else its file system has.
///
/// # Errors
/// If the file system cannot write what it holds in memory.
pub fn sync(folder: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::syncfs(folder)?)
}

/// Asks the kernel to begin to write a part of a file to disk, so that a later sync has less to wait for. Does nothing
/// where that cannot be asked for.
#[allow(unsafe_code, reason = "no crate here has the call")]
pub fn begin_to_write(file: &File, bytes: Range<u64>) {
    let (Ok(offset), Ok(length)) = (
        i64::try_from(bytes.start),
        i64::try_from(bytes.end.saturating_sub(bytes.start)),
    ) else {
        return;
    };
    // SAFETY: the descriptor is open, and the call takes numbers.
    unsafe {
        libc::sync_file_range(
            file.as_raw_fd(),
            offset,
            length,
            libc::SYNC_FILE_RANGE_WRITE,
        );
    }
}

/// Makes a file without a name in a directory, which vanishes with this process unless it is [`linked`]. `mode` is
/// its mode before the umask.
///
/// # Errors
/// If the file system has no such files, or `/proc` is not mounted.
pub fn unnamed(folder: &Path, mode: u32) -> io::Result<File> {
    if !Path::new(DESCRIPTORS).is_dir() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(folder, flags, Mode::from_raw_mode(mode))?.into())
}

/// Gives an [`unnamed`] file a name.
///
/// # Errors
/// `AlreadyExists` if something has the name, and others if the file system does not link such files.
pub fn linked(file: &File, path: &Path) -> io::Result<()> {
    let unnamed = Path::new(DESCRIPTORS).join(file.as_raw_fd().to_string());
    Ok(rustix::fs::linkat(
        CWD,
        &unnamed,
        CWD,
        path,
        AtFlags::SYMLINK_FOLLOW,
    )?)
}

/// Whether the files in a directory, given without links in its path, are the open descriptors of a process.
pub fn holds_descriptors(folder: &Path) -> bool {
    folder.starts_with("/proc") && folder.ends_with("fd")
}

/// Whether they are those of this process.
pub fn holds_own_descriptors(folder: &Path) -> bool {
    folder == Path::new("/proc").join(format!("{}/fd", std::process::id()))
}

/// Returns a path by which this program can be started again, even if a newer one has replaced its file.
pub fn program() -> PathBuf {
    "/proc/self/exe".into()
}

/// Whether SIGHUP was ignored when this process started. Listening for the signal would end that.
pub fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

/// Returns the bytes of memory that programs of an image can have on this machine. `None` if that is not known.
pub fn memory() -> Option<u64> {
    let info = rustix::system::sysinfo();
    let bytes = info.totalram.checked_mul(info.mem_unit.into())?;
    (bytes > 0).then_some(bytes)
}
