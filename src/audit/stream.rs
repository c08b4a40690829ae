//! Reads one object from a stream.
//!
//! In: a file's content, forward only. Out: what [`super::inventory`] reads of an object. An object's section
//! table is at its end, so of a large object only these parts are kept: start, end, dynamic table, the names of its
//! sections, and the headers of everything that looks like device code. Its readers need no other part unless the
//! layout is unusual; then they say which parts to keep when the stream is read again.

use super::object::{Item, read};
use memchr::memmem;
use stackforge_binary::elf;
use stackforge_binary::fatbin::Scan;
use stackforge_binary::source::{ReadError, Source, Sparse};
use std::io::{self, Read};
use std::ops::Range;

/// Bytes kept at the start, where symbols and their names are. patchelf moves them to the end (`TAIL`).
const HEAD: u64 = 32 << 20;
const TAIL: u64 = 16 << 20;
const PIECE: usize = 256 << 10;
/// Longest dynamic table, in bytes. It has an entry for each library.
const MOST_DYNAMIC: u64 = 1 << 20;
/// Bytes also kept before and after a requested range, since tables are close together.
const BEFORE: u64 = 8 << 20;
const AFTER: u64 = 16 << 20;
/// Bytes kept before and after the name of the table of section names, which is one of them. The table is a kilobyte
/// or two where sections are not one for each function.
const NAMES: usize = 64 << 10;
/// Most places that are taken for that table.
const MOST_NAMES: usize = 8;
/// Most requested ranges, and so most repetitions.
const MOST_RANGES: usize = 6;

/// Byte ranges of an object to keep besides its start and end.
#[derive(Debug, Default)]
pub struct KeepRanges(Vec<Range<u64>>);

pub enum Passed {
    /// Not an object that a loader or driver loads.
    Other,
    Object(Box<Item>),
    Damaged(String),
    /// The stream has to be read again, keeping these ranges.
    Again(KeepRanges),
}

/// Reads a file of `size` bytes; `content` may have fewer.
pub fn pass(
    path: &str,
    size: u64,
    content: &mut impl Read,
    ranges: KeepRanges,
) -> io::Result<Passed> {
    let Some(mut kept) = object(size, content, &ranges)? else {
        return Ok(Passed::Other);
    };
    Ok(match read(path, &mut kept) {
        Ok(None) => Passed::Other,
        Ok(Some(item)) => Passed::Object(Box::new(item)),
        Err(e) => match e.absent() {
            Some(absent) if ranges.0.len() < MOST_RANGES => Passed::Again(ranges.and(absent, size)),
            _ => Passed::Damaged(e.to_string()),
        },
    })
}

/// Reads an object from a stream and keeps the ranges that its readers need. `None` if it is not ELF.
pub fn object(size: u64, content: &mut impl Read, ranges: &KeepRanges) -> io::Result<Option<Kept>> {
    if size < 4 {
        return Ok(None);
    }
    let mut magic = [0; 4];
    content.read_exact(&mut magic)?;
    if magic != elf::MAGIC {
        return Ok(None);
    }
    read_ranges(size, &magic, content, ranges).map(Some)
}

impl KeepRanges {
    fn and(mut self, absent: Range<u64>, size: u64) -> Self {
        let end = absent.end.max(absent.start.saturating_add(AFTER)).min(size);
        self.0.push(absent.start.saturating_sub(BEFORE)..end);
        self.0.sort_by_key(|r| r.start);
        self
    }
}

/// The kept parts of an object.
pub struct Kept {
    tables: Sparse,
    code: Sparse,
}

fn read_ranges(
    size: u64,
    start: &[u8],
    content: &mut impl Read,
    asked: &KeepRanges,
) -> io::Result<Kept> {
    let mut kept = Kept {
        tables: Sparse::new(size),
        code: Sparse::new(size),
    };
    let whole = size <= HEAD + TAIL;
    let mut ranges = vec![0..HEAD.min(size), size.saturating_sub(TAIL)..size];
    ranges.extend(asked.0.iter().cloned());
    ranges.sort_by_key(|r| r.start);
    let mut scan = Scan::default();
    let mut names = SectionNames::default();
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
        if offset == 0
            && let Some(dynamic) = elf::dynamic_table(piece)
        {
            // Unstripped symbols may be between the dynamic table and the object's end.
            let end = dynamic.end.min(dynamic.start.saturating_add(MOST_DYNAMIC));
            ranges.push(dynamic.start..end.min(size));
            ranges.sort_by_key(|r| r.start);
        }
        if offset == 0 {
            names.from = elf::loaded_end(piece);
        }
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
            names.pass(offset, piece, &mut kept.tables);
        }
        offset += filled as u64;
        if filled < PIECE {
            return Ok(kept);
        }
        filled = 0;
    }
}

/// Finds the table of section names in what follows an object's segments. Linkers write it there before the names of
/// symbols (lld) or after them (ld), and how long those are stands at the object's end.
#[derive(Default)]
struct SectionNames {
    /// Where the segments end. `None` if the object does not say.
    from: Option<u64>,
    /// The last bytes that passed.
    before: Vec<u8>,
    /// Where what is near the last name found ends.
    until: u64,
    found: usize,
}

impl SectionNames {
    const NAME: &[u8] = b"\0.shstrtab\0";

    /// Looks at the piece at `offset` and keeps what is near the name.
    fn pass(&mut self, offset: u64, piece: &[u8], tables: &mut Sparse) {
        let end = offset + piece.len() as u64;
        if self.from.is_none_or(|from| end <= from) {
            return;
        }
        let wanted = self.until.min(end).saturating_sub(offset) as usize;
        tables.keep(offset, &piece[..wanted]);
        let start = offset - self.before.len() as u64;
        // The name may lie across two pieces.
        let mut at = self.before.len().saturating_sub(Self::NAME.len() - 1);
        let mut near = std::mem::take(&mut self.before);
        near.extend_from_slice(piece);
        while self.found < MOST_NAMES
            && let Some(name) = memmem::find(&near[at..], Self::NAME)
        {
            let first = (at + name).saturating_sub(NAMES);
            at += name + Self::NAME.len();
            let last = at + NAMES;
            tables.keep(start + first as u64, &near[first..last.min(near.len())]);
            self.until = start + last as u64;
            self.found += 1;
        }
        near.drain(..near.len().saturating_sub(NAMES));
        self.before = near;
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

    fn zeros(&self, offset: u64) -> u64 {
        self.code.zeros(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stackforge_binary::samples::compiled::Built;
    use std::sync::LazyLock;

    const NEEDS: &[&str] = &["libcudart.so.13", "libc10.so"];

    fn built(between: u64, after: u64) -> Vec<u8> {
        built_with(between, after, 0)
    }

    fn built_with(between: u64, after: u64, unmapped: u64) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.so");
        let built = Built {
            soname: Some("libx.so.1"),
            needs: NEEDS,
            asks: &["_ZN2at3catEv"],
            exports: &["_ZN5torch4thisEv"],
            code: &[(&[80, 90], &[90]), (&[110], &[])],
            glibc: Some("GLIBC_2.31"),
            between,
            after,
            unmapped,
            ..Built::default()
        };
        built.write(&path);
        std::fs::read(path).unwrap()
    }

    /// Returns the result of the reader with random access, as text.
    fn expected(bytes: &[u8]) -> String {
        let item = read("x.so", &mut &bytes[..]).unwrap().unwrap();
        assert_eq!(item.object.needed[..2], *NEEDS);
        format!("{item:?}")
    }

    fn item(passed: Passed) -> String {
        match passed {
            Passed::Object(item) => format!("{item:?}"),
            Passed::Damaged(why) => panic!("damaged: {why}"),
            Passed::Other => panic!("no object"),
            Passed::Again(ranges) => panic!("once more with {ranges:?}"),
        }
    }

    fn passes(bytes: &[u8], ranges: KeepRanges) -> Passed {
        pass("x.so", bytes.len() as u64, &mut &bytes[..], ranges).unwrap()
    }

    /// Reads the stream as often as necessary. Returns the number of times and the last result.
    fn again_and_again(bytes: &[u8]) -> (usize, String) {
        let mut ranges = KeepRanges::default();
        for count in 1.. {
            match passes(bytes, ranges) {
                Passed::Again(more) => ranges = more,
                passed => return (count, item(passed)),
            }
        }
        unreachable!()
    }

    #[test]
    fn an_object_whose_tables_lie_in_its_middle_passes_twice() {
        let bytes = built(60 << 20, 0);
        assert!(bytes.len() as u64 > 2 * (HEAD + TAIL));
        let Passed::Again(ranges) = passes(&bytes, KeepRanges::default()) else {
            panic!("its tables lie where nothing is kept");
        };
        let near = 60u64 << 20;
        assert_eq!(ranges.0.len(), 1);
        assert!(ranges.0[0].contains(&near), "{ranges:?}");
        assert_eq!(again_and_again(&bytes), (2, expected(&bytes)));
    }

    #[test]
    fn a_large_object_of_the_usual_layout_passes_once() {
        let bytes = built(0, 60 << 20);
        assert_eq!(again_and_again(&bytes), (1, expected(&bytes)));
    }

    #[test]
    fn a_large_object_that_was_not_stripped_passes_once() {
        let bytes = built_with(0, 40 << 20, 40 << 20);
        let dynamic = elf::dynamic_table(&bytes).unwrap();
        assert!(dynamic.start > HEAD && dynamic.end < bytes.len() as u64 - TAIL);
        assert_eq!(again_and_again(&bytes), (1, expected(&bytes)));
    }

    /// Moves the names of sections to before the end, as lld does with what has many names of symbols.
    fn with_names_at(bytes: &mut [u8], to: usize) {
        let number =
            |bytes: &[u8], at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
        let sections = number(bytes, 40) as usize;
        let names = u16::from_le_bytes([bytes[62], bytes[63]]) as usize;
        let header = sections + 64 * names;
        let (at, size) = (number(bytes, header + 24), number(bytes, header + 32));
        let (at, size) = (at as usize, size as usize);
        let table = bytes[at..at + size].to_vec();
        bytes[at..at + size].fill(0);
        bytes[to..to + size].copy_from_slice(&table);
        bytes[header + 24..header + 32].copy_from_slice(&(to as u64).to_le_bytes());
    }

    #[test]
    fn a_large_object_passes_once_wherever_the_names_of_its_sections_lie_behind_its_segments() {
        let usual = built_with(0, 40 << 20, 40 << 20);
        let end = elf::loaded_end(&usual).unwrap() as usize;
        let piece = (end + (1 << 20)).next_multiple_of(PIECE);
        for to in [end + 100, piece, piece - 5, piece - 100, piece + 100] {
            let mut bytes = usual.clone();
            with_names_at(&mut bytes, to);
            assert!((to as u64) > HEAD && (to as u64) < bytes.len() as u64 - TAIL);
            assert_eq!(again_and_again(&bytes), (1, expected(&bytes)), "{to}");
        }
    }

    #[test]
    fn an_object_full_of_that_name_takes_little_memory() {
        let mut bytes = built_with(0, 40 << 20, 40 << 20);
        let end = elf::loaded_end(&bytes).unwrap() as usize;
        let size = bytes.len() as u64;
        let few = object(size, &mut &bytes[..], &KeepRanges::default())
            .unwrap()
            .unwrap();
        let last = bytes.len() - (TAIL as usize) - 100;
        for chunk in bytes[end + 100..last].chunks_exact_mut(SectionNames::NAME.len()) {
            chunk.copy_from_slice(SectionNames::NAME);
        }
        let many = object(size, &mut &bytes[..], &KeepRanges::default())
            .unwrap()
            .unwrap();
        assert!(many.tables.kept() - few.tables.kept() <= MOST_NAMES * 2 * (NAMES + 20));
    }

    #[test]
    fn what_asks_too_often_is_damaged() {
        let bytes = built(60 << 20, 0);
        let ranges = KeepRanges(vec![0..1; MOST_RANGES]);
        assert!(matches!(passes(&bytes, ranges), Passed::Damaged(_)));
    }

    #[test]
    fn other_files_are_passed_over() {
        for other in [&b""[..], b"\x7fEL", b"#!/bin/sh\n"] {
            assert!(matches!(
                passes(other, KeepRanges::default()),
                Passed::Other
            ));
        }
        let cut = &built(0, 0)[..200];
        assert!(matches!(
            passes(cut, KeepRanges::default()),
            Passed::Damaged(_)
        ));
    }

    #[test]
    fn content_that_ends_early_is_no_object() {
        let bytes = built(0, 0);
        let (cut, size) = (&bytes[..bytes.len() / 2], bytes.len() as u64);
        let passed = pass("x.so", size, &mut &cut[..], KeepRanges::default()).unwrap();
        assert!(matches!(passed, Passed::Again(_) | Passed::Damaged(_)));
        let none = pass("x.so", size, &mut &cut[..2], KeepRanges::default());
        assert_eq!(none.err().unwrap().kind(), io::ErrorKind::UnexpectedEof);
    }

    /// A reader that returns a few bytes at a time and is interrupted now and then.
    struct Slow<'a>(&'a [u8], std::iter::Cycle<std::slice::Iter<'a, usize>>);

    impl Read for Slow<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let most = *self.1.next().unwrap();
            if most == 0 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let most = most.min(buf.len());
            self.0.read(&mut buf[..most])
        }
    }

    static SMALL: LazyLock<Vec<u8>> = LazyLock::new(|| built(0, 0));

    proptest! {
        #[test]
        fn pieces_of_any_size_are_the_same_object(
            mut sizes in prop::collection::vec(0usize..5000, 1..6),
        ) {
            sizes.push(700);
            let mut slow = Slow(&SMALL, sizes.iter().cycle());
            let passed = pass("x.so", SMALL.len() as u64, &mut slow, KeepRanges::default()).unwrap();
            prop_assert_eq!(item(passed), expected(&SMALL));
        }

        #[test]
        fn wishes_grow_around_what_was_absent(
            (size, start, len) in (1u64..1 << 40)
                .prop_flat_map(|size| (Just(size), 0..size))
                .prop_flat_map(|(size, start)| (Just(size), Just(start), 0..=size - start)),
        ) {
            let ranges = KeepRanges::default().and(start..start + len, size);
            let range = ranges.0[0].clone();
            prop_assert!(range.start <= start && range.end >= start + len && range.end <= size);
        }
    }
}
