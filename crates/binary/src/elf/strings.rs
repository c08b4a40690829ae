//! Names from a string table, read in the order in which they are stored.
//!
//! A table may have tens of MiB and be a part of a compressed stream. Reading its names in order passes
//! over it once and holds only the piece around the current name.

use std::ops::Range;

use super::error::{Fault, Problem};
use crate::source::Source;

const TABLE: &str = "dynamic string table";
const PIECE: u64 = 64 << 10;
/// Longest name in bytes. The longest of real objects, those of C++ templates, are below 100 KiB.
const MAX_NAME: u64 = 1 << 20;
/// Bounds in bytes on all names that an object keeps: libraries, paths and versions. The limit is the
/// size of its string table between these bounds, because small tables may be used more than once and
/// large ones mostly hold symbols.
const MIN_KEPT: u64 = 64 << 10;
const MAX_KEPT: u64 = 1 << 20;

pub(super) struct Strings<'a, S: ?Sized> {
    source: &'a mut S,
    table: Range<u64>,
    /// The bytes of the source from `start` on.
    buf: Vec<u8>,
    start: u64,
}

impl<'a, S: Source + ?Sized> Strings<'a, S> {
    pub(super) fn new(source: &'a mut S, table: Range<u64>) -> Self {
        let start = table.start;
        Self {
            source,
            table,
            buf: Vec::new(),
            start,
        }
    }

    /// Returns the name at an offset of the table. Offsets must not decrease from call to call.
    pub(super) fn get(&mut self, offset: u64) -> Result<&[u8], Fault> {
        let Some(at) = (self.table.start.checked_add(offset)).filter(|at| *at < self.table.end)
        else {
            return Fault::err(self.table.start, Problem::Outside("name"));
        };
        let mut from = (at - self.start).min(self.buf.len() as u64) as usize;
        let mut seen = from;
        loop {
            if let Some(n) = memchr::memchr(0, &self.buf[seen..]) {
                return Ok(&self.buf[from..seen + n]);
            }
            self.buf.drain(..from);
            self.start = at;
            from = 0;
            seen = self.buf.len();
            let end = self.start + seen as u64;
            if seen as u64 > MAX_NAME || end == self.table.end {
                return Fault::err(at, Problem::Unterminated(TABLE));
            }
            let more = PIECE.min(self.table.end - end);
            self.buf.resize(seen + more as usize, 0);
            self.source.read_at(end, &mut self.buf[seen..])?;
        }
    }
}

/// Returns the names at `offsets`, in that order, whatever the order of the table.
pub(super) fn names_at(
    source: &mut (impl Source + ?Sized),
    table: Range<u64>,
    offsets: &[u64],
) -> Result<Vec<String>, Fault> {
    let mut order: Vec<usize> = (0..offsets.len()).collect();
    order.sort_unstable_by_key(|&i| offsets[i]);
    // Names that are used often or share bytes could add up to more than the object's size.
    let mut budget = (table.end - table.start).clamp(MIN_KEPT, MAX_KEPT);
    let at = table.start;
    let mut strings = Strings::new(source, table);
    let mut names = vec![String::new(); offsets.len()];
    for i in order {
        let name = strings.get(offsets[i])?;
        let Some(left) = budget.checked_sub(name.len() as u64) else {
            let (what, limit) = ("set of names to keep", MAX_KEPT);
            return Fault::err(at, Problem::TooLarge { what, limit });
        };
        budget = left;
        names[i] = match std::str::from_utf8(name) {
            Ok(name) => name.to_owned(),
            Err(_) => return Fault::err(at + offsets[i], Problem::Encoding(TABLE)),
        };
    }
    Ok(names)
}
