//! Bytes at an offset: the inputs of the readers of ELF objects, fatbins and archives.
//!
//! In: a slice, a file, a range of another source, a deflate stream ([`Inflate`]). Out: the bytes that
//! a reader asks for, or an error with the offset. Sources nest: an object in a wheel in a layer is
//! three of them. Nothing is written to disk, and no source holds more than a few MiB, whatever the
//! size of what it reads.

mod access;
mod error;
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

pub use access::{Source, array, bytes, range, u16_at, u32_at, u64_at};
pub use error::ReadError;
pub use forward::Forward;
pub use inflate::Inflate;
pub use located::Located;
pub use once::Once;
pub use sparse::Sparse;

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
        Self::of(File::open(path)?)
    }

    /// Reads a file that is open.
    ///
    /// # Errors
    /// If its size cannot be read.
    pub fn of(file: File) -> io::Result<Self> {
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
