//! Removes some of an object's device code: the object keeps its size, and everything else its place.
//!
//! In: the entries of an object, and which of them stay. Out: [`Edit`]s, and with them [`Segment`]es of
//! the new object, in the order of both the new and the old object, so that either may be a stream.
//! Host code points at containers: each stays in its place, gets shorter, and is followed by zeros. A
//! container that loses all its entries stays as a header. Its kernels then fail as they would without
//! code for the device, with `cudaErrorNoKernelImageForDevice` (seen with the driver 580.159 on an
//! H200, loading lazily and eagerly).

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;

use super::entry::Entry;
use super::walk::HEADER;

/// Alignment in bytes of containers, and of the entries in them.
const ALIGNMENT: u64 = 8;

/// A piece of the new object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment {
    /// Bytes of the old object.
    Copy {
        /// Offset in the old object.
        from: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Length of a container, as eight bytes.
    Length(u64),
    /// Number of zero bytes.
    Zeros(u64),
}

/// A replacement of a range by content of the same length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The bytes of the old object that are replaced.
    pub range: Range<u64>,
    /// The new content. Its lengths add up to that of `range`.
    pub segments: Vec<Segment>,
}

impl Edit {
    /// Creates an edit that replaces `range` with zeros.
    pub fn zeros(range: Range<u64>) -> Self {
        let segments = vec![Segment::Zeros(range.end - range.start)];
        Self { range, segments }
    }
}

/// Returns the edits that remove the entries whose `stays` is false. `None` if that would move
/// something out of its alignment. `entries` must be all entries of the object.
pub fn without(entries: &[Entry], stays: &[bool]) -> Option<Vec<Edit>> {
    let mut edits = Vec::new();
    let mut stays = stays.iter();
    for container in entries.chunk_by(|a, b| a.container == b.container) {
        let (kept, gone): (Vec<_>, Vec<_>) = container
            .iter()
            .zip(stays.by_ref())
            .partition(|(_, stays)| **stays);
        if gone.is_empty() {
            continue;
        }
        if gone.iter().any(|(entry, _)| entry.len % ALIGNMENT != 0) {
            return None;
        }
        let length = |all: &[(&Entry, &bool)]| all.iter().map(|(entry, _)| entry.len).sum::<u64>();
        let (after, less) = (length(&kept), length(&gone));
        let start = container[0].container + HEADER;
        let copy = |(entry, _): &(&Entry, &bool)| Segment::Copy {
            from: entry.offset,
            len: entry.len,
        };
        // Magic, version and the header's own length precede the container's length.
        let head = std::iter::once(Segment::Length(after));
        let tail = std::iter::once(Segment::Zeros(less));
        edits.push(Edit {
            range: start - 8..start + after + less,
            segments: head.chain(kept.iter().map(copy)).chain(tail).collect(),
        });
    }
    Some(edits)
}

/// Returns the whole object of `size` bytes with its edits. `None` if there are no edits, or they
/// overlap or exceed the object.
pub fn edited(mut edits: Vec<Edit>, size: u64) -> Option<Vec<Segment>> {
    edits.sort_by_key(|edit| edit.range.start);
    let last = edits.last()?.range.end;
    let overlap = |pair: &[Edit]| pair[1].range.start < pair[0].range.end;
    if edits.windows(2).any(overlap) || last > size {
        return None;
    }
    let mut all = Vec::new();
    let mut at = 0;
    for edit in edits {
        let (from, len) = (at, edit.range.start - at);
        all.push(Segment::Copy { from, len });
        all.extend(edit.segments);
        at = edit.range.end;
    }
    let len = size - at;
    all.push(Segment::Copy { from: at, len });
    Some(all)
}

/// Writes the new object while the old one is read to its end. Zeros become a hole.
///
/// # Errors
/// If reading or writing fails, or the old object ends early.
pub fn rewrite(
    segments: &[Segment],
    old: &mut impl Read,
    new: &mut (impl Write + Seek),
) -> io::Result<()> {
    let mut at = 0;
    for segment in segments {
        match *segment {
            Segment::Copy { from, len } => {
                pass(old, from - at, &mut io::sink())?;
                pass(old, len, new)?;
                at = from + len;
            }
            Segment::Length(len) => new.write_all(&len.to_le_bytes())?,
            Segment::Zeros(len) => {
                let len = i64::try_from(len).map_err(io::Error::other)?;
                new.seek(SeekFrom::Current(len))?;
            }
        }
    }
    io::copy(old, &mut io::sink())?;
    Ok(())
}

fn pass(from: &mut impl Read, len: u64, to: &mut (impl Write + ?Sized)) -> io::Result<()> {
    if io::copy(&mut from.take(len), to)? < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}
