//! Bytes at an offset: what the readers of ELF objects, fatbins and archives read from.
//!
//! In: a slice, a file, a range of another source, a deflate stream ([`Inflate`]). Out: the bytes
//! that a reader asks for, or an error with the offset. Sources nest: an object in a wheel in a
//! layer is three of them. Nothing is written to disk and no source holds more than a few MiB,
//! whatever the size of what it reads.

mod forward;
mod inflate;
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
pub use once::Once;
pub use sparse::Sparse;

/// Random access to a known number of bytes.
pub trait Source {
    /// In bytes. Of compressed data, what its directory claims; reading past the truth fails.
    fn size(&self) -> u64;

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`ReadError::PastEnd`] if `buf` reaches past [`Source::size`], and what the medium answers:
    /// I/O, a damaged stream, a wrong checksum.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), ReadError>;

    /// How many bytes from `offset` on are zeros as far as is known without reading them.
    fn zeros(&self, _offset: u64) -> u64 {
        0
    }
}

/// Why bytes cannot be had. Offsets and sizes are in bytes of the source that was asked.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// More was asked for than there is.
    #[error("{wanted} bytes at {offset:#x} lie past the end at {size:#x}")]
    PastEnd {
        /// The first byte asked for.
        offset: u64,
        /// How many.
        wanted: u64,
        /// Bytes of the source.
        size: u64,
    },
    /// A [`Sparse`] source did not keep them.
    #[error("{wanted} bytes at {offset:#x} were not kept")]
    Absent {
        /// The first byte asked for.
        offset: u64,
        /// How many.
        wanted: u64,
    },
    /// The operating system failed.
    #[error("the bytes at {offset:#x} cannot be read")]
    Io {
        /// The first byte asked for.
        offset: u64,
        /// Its error.
        source: io::Error,
    },
    /// The bytes are not a deflate stream.
    #[error("the deflate stream is damaged where it has inflated to {offset:#x} bytes")]
    Damaged {
        /// Bytes that inflated before.
        offset: u64,
    },
    /// More comes out than the directory says.
    #[error(
        "the deflate stream inflates to {offset:#x} bytes or more, its directory says {size:#x}"
    )]
    Longer {
        /// Bytes that inflated up to now.
        offset: u64,
        /// Bytes, as the directory says.
        size: u64,
    },
    /// Less comes out than the directory says.
    #[error("the deflate stream inflates to {offset:#x} bytes, its directory says {size:#x}")]
    Shorter {
        /// Bytes that inflated.
        offset: u64,
        /// Bytes, as the directory says.
        size: u64,
    },
    /// The stream ends before its compressed bytes do.
    #[error("the deflate stream ends {left} bytes before its directory says")]
    Trailing {
        /// Bytes that inflated.
        offset: u64,
        /// Compressed bytes behind the end.
        left: u64,
    },
    /// The content is not what was archived.
    #[error("the CRC-32 is {found:08x}, its directory says {expected:08x}")]
    Checksum {
        /// Where the content ends.
        offset: u64,
        /// As the directory says.
        expected: u32,
        /// Of what came out.
        found: u32,
    },
}

impl ReadError {
    /// Where in the source that was asked.
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

/// `offset..offset + len` if it lies within `size`.
///
/// # Errors
/// [`ReadError::PastEnd`] if the range is longer.
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

/// `N` bytes at `offset`.
///
/// # Errors
/// What [`Source::read_at`] fails with.
pub fn array<const N: usize>(
    source: &mut (impl Source + ?Sized),
    offset: u64,
) -> Result<[u8; N], ReadError> {
    let mut bytes = [0; N];
    source.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// `len` bytes at `offset`; nothing is allocated before the source is known to have them.
///
/// # Errors
/// [`ReadError::PastEnd`] before anything is allocated, and what [`Source::read_at`] fails with.
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

/// Little-endian numbers of a header. They panic where it is shorter, so its length is fixed.
pub fn u16_at(header: &[u8], at: usize) -> u16 {
    let mut bytes = [0; 2];
    bytes.copy_from_slice(&header[at..at + 2]);
    u16::from_le_bytes(bytes)
}

/// The same for four bytes.
pub fn u32_at(header: &[u8], at: usize) -> u32 {
    u32::from(u16_at(header, at)) | u32::from(u16_at(header, at + 2)) << 16
}

/// The same for eight bytes.
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

/// A file of the size that it had when it was opened. Clones share the descriptor, no position.
#[derive(Debug, Clone)]
pub struct FileSource {
    file: Arc<File>,
    size: u64,
}

impl FileSource {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// If it cannot be opened, or its size cannot be read.
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
    /// The `len` bytes of `inner` at `offset`.
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
