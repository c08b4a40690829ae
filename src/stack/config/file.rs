//! Reads files of settings that a person or a service names.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Longest file of settings, in bytes.
const MOST: u64 = 1 << 20;

/// Reads a small file without waiting: a pipe would block a service forever, and a device may be endless.
///
/// # Errors
/// `InvalidInput` for a pipe or socket, and for more than 1 MiB.
pub fn read(path: &Path) -> io::Result<String> {
    let no = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    let file = File::options()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32)
        .open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_fifo() || kind.is_socket() {
        return Err(no("it is a pipe or a socket, and settings are a file"));
    }
    let mut text = String::new();
    file.take(MOST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST {
        return Err(no("it has more than 1 MiB"));
    }
    Ok(text)
}
