//! Names from a string table, taken in the order in which they lie there.
//!
//! A table may be tens of MiB and part of a compressed stream: reading its names in order passes
//! over it once and holds no more than the piece around the current one.

use std::ops::Range;

use super::error::{Fault, Problem, fault};
use crate::source::Source;

const TABLE: &str = "dynamic string table";
const PIECE: u64 = 64 << 10;
/// The longest names of real objects, of C++ templates, are below 100 KiB.
const MAX_NAME: u64 = 1 << 20;
/// Bytes of all names that an object keeps, libraries, paths and versions: what its table has, but
/// small tables may be used more often and large ones hold symbols above all.
const MIN_KEPT: u64 = 64 << 10;
const MAX_KEPT: u64 = 1 << 20;

pub(super) struct Strings<'a, S: ?Sized> {
    source: &'a mut S,
    table: Range<u64>,
    /// Bytes of the source from `start` on.
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

    /// The name at an offset of the table, which is no smaller than the one before.
    pub(super) fn get(&mut self, offset: u64) -> Result<&[u8], Fault> {
        let Some(at) = (self.table.start.checked_add(offset)).filter(|at| *at < self.table.end)
        else {
            return fault(self.table.start, Problem::Outside("name"));
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
                return fault(at, Problem::Unterminated(TABLE));
            }
            let more = PIECE.min(self.table.end - end);
            self.buf.resize(seen + more as usize, 0);
            self.source.read_at(end, &mut self.buf[seen..])?;
        }
    }
}

/// The names at `offsets`, in that order, whatever the order of the table.
pub(super) fn kept(
    source: &mut (impl Source + ?Sized),
    table: Range<u64>,
    offsets: &[u64],
) -> Result<Vec<String>, Fault> {
    let mut order: Vec<usize> = (0..offsets.len()).collect();
    order.sort_unstable_by_key(|&i| offsets[i]);
    // Names that are used often or share their bytes could add up to more than the object has.
    let mut budget = (table.end - table.start).clamp(MIN_KEPT, MAX_KEPT);
    let at = table.start;
    let mut strings = Strings::new(source, table);
    let mut names = vec![String::new(); offsets.len()];
    for i in order {
        let name = strings.get(offsets[i])?;
        let Some(left) = budget.checked_sub(name.len() as u64) else {
            let (what, limit) = ("set of names to keep", MAX_KEPT);
            return fault(at, Problem::TooLarge { what, limit });
        };
        budget = left;
        names[i] = match std::str::from_utf8(name) {
            Ok(name) => name.to_owned(),
            Err(_) => return fault(at + offsets[i], Problem::Encoding(TABLE)),
        };
    }
    Ok(names)
}
