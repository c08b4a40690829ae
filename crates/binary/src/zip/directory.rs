//! The directory at an archive's end: the end record, its zip64 form, and the entries.

use super::error::{Fault, Problem, fault};
use super::member::Member;
use crate::source::{self, Forward, Source, u16_at, u32_at, u64_at};

const END: [u8; 4] = *b"PK\x05\x06";
const END_LEN: u64 = 22;
const LOCATOR: [u8; 4] = *b"PK\x06\x07";
const LOCATOR_LEN: u64 = 20;
const END_64: [u8; 4] = *b"PK\x06\x06";
const END_64_LEN: u64 = 56;
const MAX_COMMENT: u64 = u16::MAX as u64;

/// The position of the directory, and its number of entries.
#[derive(Debug, PartialEq, Eq)]
struct Directory {
    offset: u64,
    len: u64,
    count: u64,
}

pub(super) fn read(source: &mut (impl Source + ?Sized)) -> Result<Vec<Member>, Fault> {
    let directory = locate(source)?;
    let mut entries = Forward::new(source, directory.offset, directory.len)?;
    let mut members = Vec::new();
    while entries.left() > 0 {
        members.push(Member::read(&mut entries, directory.offset)?);
    }
    let (expected, found) = (directory.count, members.len() as u64);
    if found != expected {
        return Err(fault(directory.offset, Problem::Count { expected, found }));
    }
    Ok(members)
}

/// Fails if two members have the same name, or if a member is both a file and a directory of another.
pub(super) fn check_names(members: &[Member]) -> Result<(), Fault> {
    let mut order: Vec<&Member> = members.iter().collect();
    // If `/` sorts before everything else, the paths below a name directly follow it.
    let key = |b: u8| if b == b'/' { 0 } else { b };
    order.sort_by(|a, b| (a.name.bytes().map(key)).cmp(b.name.bytes().map(key)));
    for pair in order.windows(2) {
        let (first, next) = (pair[0], pair[1]);
        if first.name == next.name {
            return Err(fault(next.offset, Problem::Duplicate).in_member(&next.name));
        }
        let below = next.name.strip_prefix(&first.name);
        if !first.is_folder() && below.is_some_and(|b| b.starts_with('/')) {
            return Err(fault(next.offset, Problem::BelowFile).in_member(&next.name));
        }
    }
    Ok(())
}

fn locate(source: &mut (impl Source + ?Sized)) -> Result<Directory, Fault> {
    let (at, end) = find_end(source)?;
    if u16_at(&end, 4) != u16_at(&end, 6) || u16_at(&end, 8) != u16_at(&end, 10) {
        return Err(fault(at, Problem::Volumes));
    }
    let short = Directory {
        offset: u32_at(&end, 16).into(),
        len: u32_at(&end, 12).into(),
        count: u16_at(&end, 10).into(),
    };
    let (directory, ends) = match long_end(source, at)? {
        Some((ends, long)) => {
            let agrees = |short: u64, long: u64, full: u64| short == full || short == long;
            if !agrees(short.offset, long.offset, u32::MAX.into())
                || !agrees(short.len, long.len, u32::MAX.into())
                || !agrees(short.count, long.count, u16::MAX.into())
            {
                return Err(fault(at, Problem::Zip64));
            }
            (long, ends)
        }
        None if u16_at(&end, 4) != 0 => return Err(fault(at, Problem::Volumes)),
        None => (short, at),
    };
    if directory.offset.checked_add(directory.len) != Some(ends) {
        return Err(fault(at, Problem::Directory));
    }
    Ok(directory)
}

/// Returns the end record, which ends with the archive, and its offset.
fn find_end(source: &mut (impl Source + ?Sized)) -> Result<(u64, [u8; 22]), Fault> {
    let size = source.size();
    let start = size.saturating_sub(END_LEN + MAX_COMMENT);
    let tail = source::bytes(source, start, size - start)?;
    let mut ends = memchr::memmem::find_iter(&tail, &END).filter_map(|at| {
        let record: [u8; 22] = *tail[at..].first_chunk()?;
        let comment = usize::from(u16_at(&record, 20));
        (at + record.len() + comment == tail.len()).then_some((start + at as u64, record))
    });
    let Some(end) = ends.next() else {
        return Err(fault(start, Problem::NoEnd));
    };
    match ends.next() {
        Some((other, _)) => Err(fault(other, Problem::TwoEnds)),
        None => Ok(end),
    }
}

/// Returns the zip64 record, and the offset at which its directory must end, if there is a locator
/// before the record at `end`.
fn long_end(
    source: &mut (impl Source + ?Sized),
    end: u64,
) -> Result<Option<(u64, Directory)>, Fault> {
    let Some(locator_at) = end.checked_sub(LOCATOR_LEN) else {
        return Ok(None);
    };
    let locator: [u8; 20] = source::array(source, locator_at)?;
    if locator[..4] != LOCATOR {
        return Ok(None);
    }
    let at = u64_at(&locator, 8);
    if at.checked_add(END_64_LEN) != Some(locator_at) || u32_at(&locator, 4) != 0 {
        return Err(fault(locator_at, Problem::Zip64));
    }
    let record: [u8; 56] = source::array(source, at)?;
    let rest = END_64_LEN - 12;
    if record[..4] != END_64
        || u64_at(&record, 4) != rest
        || u64_at(&record, 16) != 0
        || u64_at(&record, 24) != u64_at(&record, 32)
    {
        return Err(fault(at, Problem::Zip64));
    }
    let directory = Directory {
        offset: u64_at(&record, 48),
        len: u64_at(&record, 40),
        count: u64_at(&record, 32),
    };
    Ok(Some((at, directory)))
}
