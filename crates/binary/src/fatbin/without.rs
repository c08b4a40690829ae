//! An object without some of its device code: of the same size, and everything else where it was.
//!
//! In: the entries of an object, and which of them stay. Out: [`Edit`]s, and with them [`Stretch`]es of
//! the new object, in its order and in that of the old one, so that either may be a stream. Host code
//! points at containers: each stays where it is, gets shorter, and zeros follow it. One that loses all its entries stays as
//! a header; kernels in it then fail as before, with `cudaErrorNoKernelImageForDevice` (seen with the
//! driver 580.159 on an H200, loading lazily and eagerly).

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;

use super::Entry;
use super::walk::HEADER;

/// Containers lie at multiples of it, and so do the entries in them.
const ALIGNMENT: u64 = 8;

/// A piece of the new object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stretch {
    /// So many bytes of the old one, from an offset on.
    Copy {
        /// The offset in the old object.
        from: u64,
        /// How many bytes.
        len: u64,
    },
    /// Length of a container.
    Length(u64),
    /// So many zero bytes.
    Zeros(u64),
}

/// What takes the place of a range, and is as long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The bytes of the old object that are replaced.
    pub range: Range<u64>,
    /// What takes their place; the lengths add up to that of `range`.
    pub stretches: Vec<Stretch>,
}

impl Edit {
    /// Replaces `range` with zeros.
    pub fn zeros(range: Range<u64>) -> Self {
        let stretches = vec![Stretch::Zeros(range.end - range.start)];
        Self { range, stretches }
    }
}

/// The edits that leave out the entries for which `stays` does not say so; none where that would move
/// what has to be aligned. `entries` are all of the object's.
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
        let copy = |(entry, _): &(&Entry, &bool)| Stretch::Copy {
            from: entry.offset,
            len: entry.len,
        };
        // Before its length a header has magic, version and its own length.
        let head = std::iter::once(Stretch::Length(after));
        let tail = std::iter::once(Stretch::Zeros(less));
        edits.push(Edit {
            range: start - 8..start + after + less,
            stretches: head.chain(kept.iter().map(copy)).chain(tail).collect(),
        });
    }
    Some(edits)
}

/// The whole object of `size` bytes with its edits; none where they overlap, or there are none.
pub fn edited(mut edits: Vec<Edit>, size: u64) -> Option<Vec<Stretch>> {
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
        all.push(Stretch::Copy { from, len });
        all.extend(edit.stretches);
        at = edit.range.end;
    }
    let len = size - at;
    all.push(Stretch::Copy { from: at, len });
    Some(all)
}

/// Writes the new object as the old one passes by, which is read to its end; zeros become a hole.
///
/// # Errors
/// If reading or writing fails, or the old object ends early.
pub fn rewrite(
    stretches: &[Stretch],
    old: &mut impl Read,
    new: &mut (impl Write + Seek),
) -> io::Result<()> {
    let mut at = 0;
    for stretch in stretches {
        match *stretch {
            Stretch::Copy { from, len } => {
                pass(old, from - at, &mut io::sink())?;
                pass(old, len, new)?;
                at = from + len;
            }
            Stretch::Length(len) => new.write_all(&len.to_le_bytes())?,
            Stretch::Zeros(len) => {
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
