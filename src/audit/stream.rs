//! One object of a stream, read as it passes.
//!
//! In: a file's content, forward only. Out: what [`super::inventory`] reads of an object. An object
//! names its tables in a table at its end, so of one too large to hold only its start, its end and
//! the headers of what looks like device code are kept; that is what its readers ask for unless it
//! was laid out oddly, and then they say what to keep when the stream passes again.

use super::inventory::{Item, read};
use crate::elf;
use crate::fatbin::Scan;
use crate::source::{ReadError, Source, Sparse};
use std::io::{self, Read};
use std::ops::Range;

/// Symbols and their names lie at the start; patchelf moves them to the end.
const HEAD: u64 = 32 << 20;
const TAIL: u64 = 16 << 20;
const PIECE: usize = 256 << 10;
/// What else is kept around bytes that were asked for.
const AROUND: u64 = 16 << 20;
/// Each time at most as much is kept again.
const MOST_WISHES: usize = 6;

/// Ranges of one object to keep beside its start and end.
#[derive(Debug, Default)]
pub struct Wishes(Vec<Range<u64>>);

pub enum Passed {
    /// No object that a loader or driver loads.
    Other,
    Object(Box<Item>),
    Damaged(String),
    /// It has to pass again, and these have to be kept.
    Again(Wishes),
}

/// Reads the file at `path` of `size` bytes, of which `content` are those that are there.
pub fn pass(path: &str, size: u64, content: &mut impl Read, wishes: Wishes) -> io::Result<Passed> {
    if size < 4 {
        return Ok(Passed::Other);
    }
    let mut magic = [0; 4];
    content.read_exact(&mut magic)?;
    if magic != elf::MAGIC {
        return Ok(Passed::Other);
    }
    let mut kept = keep(size, &magic, content, &wishes)?;
    Ok(match read(path, &mut kept) {
        Ok(None) => Passed::Other,
        Ok(Some(item)) => Passed::Object(Box::new(item)),
        Err(e) => match e.absent() {
            Some(absent) if wishes.0.len() < MOST_WISHES => Passed::Again(wishes.and(absent, size)),
            _ => Passed::Damaged(e.to_string()),
        },
    })
}

impl Wishes {
    fn and(mut self, absent: Range<u64>, size: u64) -> Self {
        let end = absent
            .end
            .max(absent.start.saturating_add(AROUND))
            .min(size);
        self.0.push(absent.start..end);
        self.0.sort_by_key(|r| r.start);
        self
    }
}

/// What is kept of an object.
struct Kept {
    tables: Sparse,
    code: Sparse,
}

fn keep(size: u64, start: &[u8], content: &mut impl Read, wishes: &Wishes) -> io::Result<Kept> {
    let mut kept = Kept {
        tables: Sparse::new(size),
        code: Sparse::new(size),
    };
    let whole = size <= HEAD + TAIL;
    let mut ranges = vec![0..HEAD.min(size), size.saturating_sub(TAIL)..size];
    ranges.extend(wishes.0.iter().cloned());
    ranges.sort_by_key(|r| r.start);
    let mut scan = Scan::default();
    let mut buf = vec![0; PIECE];
    buf[..start.len()].copy_from_slice(start);
    let mut filled = start.len();
    let mut offset = 0;
    loop {
        while filled < PIECE {
            match content.read(&mut buf[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let piece = &buf[..filled];
        if whole {
            kept.tables.keep(offset, piece);
        } else {
            scan.pass(piece, &mut kept.code);
            for range in &ranges {
                let within = |at: u64| at.saturating_sub(offset).min(filled as u64) as usize;
                let (from, to) = (within(range.start), within(range.end));
                kept.tables
                    .keep(offset + from as u64, &piece[from..to.max(from)]);
            }
        }
        offset += filled as u64;
        if filled < PIECE {
            return Ok(kept);
        }
        filled = 0;
    }
}

impl Source for Kept {
    fn size(&self) -> u64 {
        self.tables.size()
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        match self.tables.read_at(offset, buf) {
            Err(ReadError::Absent { .. }) => self.code.read_at(offset, buf),
            answer => answer,
        }
    }
}
