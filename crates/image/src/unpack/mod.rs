//! Unpacks one layer into a directory, to be mounted with others; or layers over each other in one directory
//! ([`over`]), to make the root file system itself.
//!
//! In: an untrusted layer's tar, a directory, and the owner of the files. Out: the layer's files as
//! overlayfs wants a lower directory: whiteouts as devices 0:0, opaque directories marked. Every
//! path is opened below the directory without following a symbolic link ([`open_beneath`](stackforge_types::beneath::open_beneath)), so nothing is written
//! outside of it, whatever the layer contains. Devices other than whiteouts are left out: a container has
//! its own. Files written before an error stay for the caller to remove.
//!
//! Sources: OCI's image specification 1.1, layer.md; the kernel's overlayfs.rst, "whiteouts and
//! opaque directories".
//!
//! Only Linux's file systems keep all of it: names as they are, owners, devices, attributes. macOS, for instance, takes
//! `a` and `A` for one name. Elsewhere nothing is unpacked ([`supported`]).

#[cfg(not(target_os = "linux"))]
mod elsewhere;
mod error;
#[cfg(target_os = "linux")]
mod linux;
mod owner;

use std::io::{self, Read};

#[cfg(not(target_os = "linux"))]
use elsewhere as own;
#[cfg(target_os = "linux")]
use linux as own;

pub use error::{DEEPEST, UnpackError};
#[cfg(target_os = "linux")]
pub use linux::{over_listed, update};
pub use own::{over, supported, unpack};
pub use owner::Owner;

/// What was unpacked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Number of names that were created, without directories: files, links and named pipes.
    pub files: u64,
    /// Bytes of the files' content.
    pub content: u64,
    /// Number of names of lower layers that the layer hides or removes.
    pub whiteouts: u64,
    /// Number of devices that were left out.
    pub devices: u64,
}

/// Reads until the buffer is full or the input ends; returns the number of bytes read.
///
/// # Errors
/// What `from` fails with.
pub fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}
