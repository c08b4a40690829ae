//! Tells whether a program can still write to a file through a descriptor that it opened before.

#![allow(unsafe_code, reason = "each block says why it is sound")]

use libc::{F_RDLCK, F_SETLEASE, F_UNLCK, SIGURG, c_int, fcntl};
use std::fs::File;
use std::os::fd::AsRawFd as _;

/// Chooses the signal for a broken lease; <asm-generic/fcntl.h>.
const F_SETSIG: c_int = 10;

/// Whether a file that was opened for reading is open for writing elsewhere. Also true if the file system or
/// the user cannot find out. A writable mapping counts as an open file.
pub(super) fn has_writer(file: &File) -> bool {
    let fd = file.as_raw_fd();
    // SAFETY: the descriptor is open, and these commands take numbers. SIGURG is ignored by default, whereas
    // the default signal for a broken lease, SIGIO, would end the process.
    unsafe {
        if fcntl(fd, F_SETSIG, SIGURG) != 0 || fcntl(fd, F_SETLEASE, F_RDLCK) != 0 {
            return true;
        }
        fcntl(fd, F_SETLEASE, F_UNLCK);
    }
    false
}
