//! Why bytes cannot be read, and the check of an inflated stream at its end.

use std::io;

/// Why bytes cannot be read. Offsets and sizes are in bytes of the source that was read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The range exceeds the source.
    #[error("{wanted} bytes at {offset:#x} lie past the end at {size:#x}")]
    PastEnd {
        /// Offset of the first requested byte.
        offset: u64,
        /// Number of requested bytes.
        wanted: u64,
        /// Size of the source in bytes.
        size: u64,
    },
    /// A [`Sparse`](super::Sparse) source did not keep the bytes.
    #[error("{wanted} bytes at {offset:#x} were not kept")]
    Absent {
        /// Offset of the first requested byte.
        offset: u64,
        /// Number of requested bytes.
        wanted: u64,
    },
    /// The operating system reported an error.
    #[error("the bytes at {offset:#x} cannot be read")]
    Io {
        /// Offset of the first requested byte.
        offset: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// The bytes are not a deflate stream.
    #[error("the deflate stream is damaged where it has inflated to {offset:#x} bytes")]
    Damaged {
        /// Number of bytes that were inflated before.
        offset: u64,
    },
    /// The stream inflates to more than the directory says.
    #[error(
        "the deflate stream inflates to {offset:#x} bytes or more, its directory says {size:#x}"
    )]
    Longer {
        /// Number of bytes that were inflated so far.
        offset: u64,
        /// Size in bytes according to the directory.
        size: u64,
    },
    /// The stream inflates to less than the directory says.
    #[error("the deflate stream inflates to {offset:#x} bytes, its directory says {size:#x}")]
    Shorter {
        /// Number of bytes that were inflated.
        offset: u64,
        /// Size in bytes according to the directory.
        size: u64,
    },
    /// The stream ends before its compressed bytes do.
    #[error("the deflate stream ends {left} bytes before its directory says")]
    Trailing {
        /// Number of bytes that were inflated.
        offset: u64,
        /// Number of compressed bytes after the end.
        left: u64,
    },
    /// The content does not have the directory's CRC-32.
    #[error("the CRC-32 is {found:08x}, its directory says {expected:08x}")]
    Checksum {
        /// Offset of the content's end.
        offset: u64,
        /// CRC-32 according to the directory.
        expected: u32,
        /// CRC-32 of the inflated content.
        found: u32,
    },
}

impl ReadError {
    /// Returns the offset of the error in the source.
    pub fn offset(&self) -> u64 {
        match self {
            Self::PastEnd { offset, .. }
            | Self::Absent { offset, .. }
            | Self::Io { offset, .. }
            | Self::Damaged { offset }
            | Self::Longer { offset, .. }
            | Self::Shorter { offset, .. }
            | Self::Trailing { offset, .. }
            | Self::Checksum { offset, .. } => *offset,
        }
    }
}

/// Checks an inflated stream at its end: it made `made` bytes of the `size` that the archive's directory states,
/// `left` bytes of input follow it, and the checksum that was `found` has to be the one `expected`.
pub(super) fn check_end(
    made: u64,
    size: u64,
    left: u64,
    found: u32,
    expected: u32,
) -> Result<(), ReadError> {
    let offset = made;
    if made < size {
        Err(ReadError::Shorter { offset, size })
    } else if left > 0 {
        Err(ReadError::Trailing { offset, left })
    } else if found != expected {
        Err(ReadError::Checksum {
            offset,
            expected,
            found,
        })
    } else {
        Ok(())
    }
}
