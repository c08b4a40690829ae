//! Bytes at an offset: the inputs of the readers of ELF objects, fatbins and archives.
//!
//! In: a slice, a file, a range of another source, a deflate stream ([`Inflate`]). Out: the bytes that
//! a reader asks for, or an error with the offset. Sources nest: an object in a wheel in a layer is
//! three of them. Nothing is written to disk, and no source holds more than a few MiB, whatever the
//! size of what it reads.

mod forward;
mod inflate;
mod located;
mod once;
mod sparse;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

pub use forward::Forward;
pub use inflate::Inflate;
pub use located::Located;
pub use once::Once;
pub use sparse::Sparse;

/// Random access to a known number of bytes.
pub trait Source {
    /// Returns the size in bytes. For compressed data it is the directory's claim; reading past the
    /// real end fails.
    fn size(&self) -> u64;

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`ReadError::PastEnd`] if `buf` reaches past [`Source::size`]. Otherwise errors of the medium:
    /// I/O, a damaged stream, a wrong checksum.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), ReadError>;

    /// Returns how many bytes from `offset` on are known to be zeros without reading them.
    fn zeros(&self, _offset: u64) -> u64 {
        0
    }
}

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
    /// A [`Sparse`] source did not keep the bytes.
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

/// Returns `offset..offset + len` if it is within `size`.
///
/// # Errors
/// [`ReadError::PastEnd`] if the range exceeds `size`.
pub fn range(offset: u64, len: u64, size: u64) -> Result<Range<u64>, ReadError> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(offset..end),
        _ => Err(ReadError::PastEnd {
            offset,
            wanted: len,
            size,
        }),
    }
}

/// Reads `N` bytes at `offset`.
///
/// # Errors
/// The same as for [`Source::read_at`].
pub fn array<const N: usize>(
    source: &mut (impl Source + ?Sized),
    offset: u64,
) -> Result<[u8; N], ReadError> {
    let mut bytes = [0; N];
    source.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// Reads `len` bytes at `offset`. Nothing is allocated unless the source is large enough.
///
/// # Errors
/// [`ReadError::PastEnd`] before anything is allocated, and those of [`Source::read_at`].
pub fn bytes(
    source: &mut (impl Source + ?Sized),
    offset: u64,
    len: u64,
) -> Result<Vec<u8>, ReadError> {
    range(offset, len, source.size())?;
    let mut bytes = vec![0; len as usize];
    source.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// Reads a little-endian 16-bit number of a header. Panics if the header is shorter, so pass one of
/// fixed length.
pub fn u16_at(header: &[u8], at: usize) -> u16 {
    let mut bytes = [0; 2];
    bytes.copy_from_slice(&header[at..at + 2]);
    u16::from_le_bytes(bytes)
}

/// Reads a little-endian 32-bit number, like [`u16_at`].
pub fn u32_at(header: &[u8], at: usize) -> u32 {
    u32::from(u16_at(header, at)) | u32::from(u16_at(header, at + 2)) << 16
}

/// Reads a little-endian 64-bit number, like [`u16_at`].
pub fn u64_at(header: &[u8], at: usize) -> u64 {
    u64::from(u32_at(header, at)) | u64::from(u32_at(header, at + 4)) << 32
}

impl<S: Source + ?Sized> Source for &mut S {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        (**self).read_at(offset, buf)
    }

    fn zeros(&self, offset: u64) -> u64 {
        (**self).zeros(offset)
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        (**self).read_at(offset, buf)
    }

    fn zeros(&self, offset: u64) -> u64 {
        (**self).zeros(offset)
    }
}

impl Source for &[u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        let range = range(offset, buf.len() as u64, self.size())?;
        buf.copy_from_slice(&self[range.start as usize..range.end as usize]);
        Ok(())
    }
}

/// A file with the size that it had when it was opened. Clones share the descriptor but not a position.
#[derive(Debug, Clone)]
pub struct FileSource {
    file: Arc<File>,
    size: u64,
}

impl FileSource {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// If the file cannot be opened, or its size cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        Ok(Self {
            file: Arc::new(file),
            size,
        })
    }
}

impl Source for FileSource {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        range(offset, buf.len() as u64, self.size)?;
        self.file
            .read_exact_at(buf, offset)
            .map_err(|source| ReadError::Io { offset, source })
    }
}

/// A range of another source: a stored member of an archive, a file of a tar.
#[derive(Debug, Clone)]
pub struct Window<S> {
    inner: S,
    range: Range<u64>,
}

impl<S: Source> Window<S> {
    /// Creates a window on the `len` bytes of `inner` at `offset`.
    ///
    /// # Errors
    /// [`ReadError::PastEnd`] if the range is not within `inner`.
    pub fn new(inner: S, offset: u64, len: u64) -> Result<Self, ReadError> {
        let range = range(offset, len, inner.size())?;
        Ok(Self { inner, range })
    }
}

impl<S: Source> Source for Window<S> {
    fn size(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        range(offset, buf.len() as u64, self.size())?;
        self.inner.read_at(self.range.start + offset, buf)
    }

    fn zeros(&self, offset: u64) -> u64 {
        let left = self.size().saturating_sub(offset);
        let at = self.range.start.saturating_add(offset);
        self.inner.zeros(at).min(left)
    }
}

/// Checks an inflated stream at its end: it made `made` bytes of the `size` that the archive's directory states,
/// `left` bytes of input follow it, and the checksum that was `found` has to be the one `expected`.
fn check_end(made: u64, size: u64, left: u64, found: u32, expected: u32) -> Result<(), ReadError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_end_where_they_end() {
        let mut window = Window::new(&b"0123456789"[..], 2, 5).unwrap();
        assert_eq!(array(&mut window, 0).unwrap(), *b"23456");
        assert!(array::<2>(&mut window, 4).is_err());
        assert!(bytes(&mut window, u64::MAX, 2).is_err());
        assert!(Window::new(window, 1, 5).is_err());
    }

    #[test]
    fn files_and_slices_read_the_same() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        io::Write::write_all(&mut file, b"0123456789").unwrap();
        let mut source = FileSource::open(file.path()).unwrap();
        assert_eq!(source.size(), 10);
        assert_eq!(array(&mut source, 7).unwrap(), *b"789");
        let error = array::<4>(&mut source, 7).unwrap_err();
        assert_eq!(error.to_string(), "4 bytes at 0x7 lie past the end at 0xa");
    }
}
