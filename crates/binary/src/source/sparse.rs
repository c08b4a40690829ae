//! Parts of something that was streamed once.
//!
//! In: pieces of a stream, in order. Out: a [`Source`] of the whole's size that has those pieces and
//! returns [`ReadError::Absent`] for the rest. So its reader learns what to keep when the stream is
//! read again.

use std::ops::Range;

use super::access::{Source, range};
use super::error::ReadError;

/// Pieces of a stream, and which of its bytes are zeros.
#[derive(Debug, Default)]
pub struct Sparse {
    size: u64,
    bytes: Vec<u8>,
    /// The starts of pieces in the whole and in `bytes`. Adjacent pieces are merged.
    starts: Vec<(u64, usize)>,
    /// End of the last piece.
    end: u64,
    /// Ranges that are known to be zeros, in order.
    zeros: Vec<Range<u64>>,
}

impl Sparse {
    /// Creates an empty source for a whole of `size` bytes.
    pub fn new(size: u64) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    /// Keeps the piece at `offset`, except for the part before the end of the last piece.
    pub fn keep(&mut self, offset: u64, piece: &[u8]) {
        let skip = self.end.saturating_sub(offset);
        let Some(piece) = usize::try_from(skip).ok().and_then(|s| piece.get(s..)) else {
            return;
        };
        if piece.is_empty() {
            return;
        }
        let offset = offset + skip;
        if offset != self.end || self.starts.is_empty() {
            self.starts.push((offset, self.bytes.len()));
        }
        self.bytes.extend_from_slice(piece);
        self.end = offset + piece.len() as u64;
    }

    /// Records that a range, which must not be before the last one, is zeros. It takes no memory per
    /// byte.
    pub fn keep_zeros(&mut self, range: Range<u64>) {
        match self.zeros.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => self.zeros.push(range),
        }
    }

    /// Returns the number of bytes that are kept.
    pub fn kept(&self) -> usize {
        self.bytes.len()
    }

    fn find(&self, wanted: &Range<u64>) -> Option<&[u8]> {
        let next = self
            .starts
            .partition_point(|(start, _)| *start <= wanted.start);
        let (start, at) = *self.starts.get(next.checked_sub(1)?)?;
        let end = self
            .starts
            .get(next)
            .map_or(self.bytes.len(), |(_, at)| *at);
        let from = at + usize::try_from(wanted.start - start).ok()?;
        let to = from.checked_add(usize::try_from(wanted.end - wanted.start).ok()?)?;
        (to <= end).then(|| &self.bytes[from..to])
    }
}

impl Source for Sparse {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        let wanted = range(offset, buf.len() as u64, self.size)?;
        if buf.is_empty() {
            return Ok(());
        }
        match self.find(&wanted) {
            Some(bytes) => buf.copy_from_slice(bytes),
            None => {
                return Err(ReadError::Absent {
                    offset,
                    wanted: buf.len() as u64,
                });
            }
        }
        Ok(())
    }

    fn zeros(&self, offset: u64) -> u64 {
        let next = self.zeros.partition_point(|zeros| zeros.start <= offset);
        let range = next.checked_sub(1).and_then(|at| self.zeros.get(at));
        range.map_or(0, |zeros| zeros.end.saturating_sub(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::bytes;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_kept_is_read_and_nothing_else(
            pieces in prop::collection::vec((0u64..40, 0usize..9), 0..8),
            asked in (0u64..50, 0u64..20),
        ) {
            let whole: Vec<u8> = (0..50).collect();
            let mut pieces = pieces;
            pieces.sort_unstable();
            let mut sparse = Sparse::new(50);
            let mut kept = [false; 50];
            for (offset, len) in pieces {
                let range = offset as usize..(offset as usize + len).min(50);
                sparse.keep(offset, &whole[range.clone()]);
                kept[range].fill(true);
            }
            let (offset, len) = asked;
            let range = offset as usize..(offset + len) as usize;
            match bytes(&mut sparse, offset, len) {
                Ok(found) => prop_assert_eq!(&found[..], &whole[range]),
                Err(ReadError::PastEnd { .. }) => prop_assert!(range.end > 50),
                Err(e) => {
                    prop_assert!(matches!(e, ReadError::Absent { .. }), "{e}");
                    prop_assert!(!kept[range].iter().all(|k| *k));
                }
            }
        }
    }
}
