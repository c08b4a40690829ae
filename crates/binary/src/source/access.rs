//! Random access: the trait, and what every reader does with it.

use std::ops::Range;

use super::error::ReadError;

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
