//! A buffered walk through a range, so that tables of small records need no read for each.

use std::ops::Range;

use super::access::{Source, range};
use super::error::ReadError;

const PIECE: u64 = 64 << 10;

/// Reads records from a range, in order, through a buffer of 64 KiB.
pub struct Forward<'a, S: ?Sized> {
    source: &'a mut S,
    /// The range that is not buffered yet.
    rest: Range<u64>,
    buf: Vec<u8>,
    /// Bytes of `buf` that were taken.
    used: usize,
}

impl<'a, S: Source + ?Sized> Forward<'a, S> {
    /// Starts a walk through the `len` bytes at `offset`.
    ///
    /// # Errors
    /// [`ReadError::PastEnd`] if the range is not within the source.
    pub fn new(source: &'a mut S, offset: u64, len: u64) -> Result<Self, ReadError> {
        let rest = range(offset, len, source.size())?;
        Ok(Self {
            source,
            rest,
            buf: Vec::new(),
            used: 0,
        })
    }

    /// Returns the offset in the source of the next byte.
    pub fn position(&self) -> u64 {
        self.rest.start - (self.buf.len() - self.used) as u64
    }

    /// Returns the number of bytes that are left of the range.
    pub fn left(&self) -> u64 {
        self.rest.end - self.position()
    }

    /// Takes the next `n` bytes.
    ///
    /// # Errors
    /// If the range has fewer bytes, or the source cannot be read.
    pub fn take(&mut self, n: usize) -> Result<&[u8], ReadError> {
        if self.buf.len() - self.used < n {
            self.fill(n)?;
        }
        self.used += n;
        Ok(&self.buf[self.used - n..self.used])
    }

    /// Takes the next `N` bytes as an array.
    ///
    /// # Errors
    /// If the range has fewer bytes, or the source cannot be read.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    fn fill(&mut self, n: usize) -> Result<(), ReadError> {
        range(self.position(), n as u64, self.rest.end)?;
        self.buf.drain(..self.used);
        self.used = 0;
        let have = self.buf.len();
        // The buffer does not exceed the range, so no more is allocated than the source has.
        let more = PIECE
            .max((n - have) as u64)
            .min(self.rest.end - self.rest.start);
        self.buf.resize(have + more as usize, 0);
        self.source
            .read_at(self.rest.start, &mut self.buf[have..])?;
        self.rest.start += more;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_across_pieces_and_stops_at_the_end() {
        let data: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
        let mut source = &data[..];
        let mut forward = Forward::new(&mut source, 3, 199_000).unwrap();
        let mut at = 3;
        for n in [1, 7, 60_000, 100_000, 24, 38_968] {
            assert_eq!(forward.position(), at as u64);
            assert_eq!(forward.take(n).unwrap(), &data[at..at + n]);
            at += n;
        }
        assert_eq!(forward.left(), 0);
        assert!(forward.take(1).is_err());
    }
}
