//! One member: its entry in the directory, and its local header, which must agree with the entry.

use std::ops::Range;

use super::error::{Fault, Problem, fault};
use super::names;
use crate::source::{self, Forward, Source, u16_at, u32_at, u64_at};

const ENTRY: [u8; 4] = *b"PK\x01\x02";
const LOCAL: [u8; 4] = *b"PK\x03\x04";
const LOCAL_LEN: u64 = 30;

const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;
/// Flag: sizes and CRC-32 follow the content.
const DESCRIPTOR: u16 = 1 << 3;
const UTF8: u16 = 1 << 11;

const EXTRA_ZIP64: u16 = 0x0001;
/// ID of the extra field with a second name, which some programs prefer.
const EXTRA_UNICODE_PATH: u16 = 0x7075;
/// Marks a number whose value is in the zip64 field.
const FULL: u32 = u32::MAX;

/// Most output bytes for a byte of deflate: a match of 258 bytes needs at least two bits.
const MAX_RATIO: u64 = 1032;

/// The compression of a member's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The content is not compressed.
    Stored,
    /// Deflate (RFC 1951).
    Deflate,
}

impl Method {
    fn of(number: u16) -> Result<Self, Problem> {
        match number {
            0 => Ok(Self::Stored),
            8 => Ok(Self::Deflate),
            other => Err(Problem::Method(other)),
        }
    }
}

/// A member according to the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Relative path without `.`, `..` or empty parts. A directory's path ends in `/`.
    pub name: String,
    /// Compression of the content.
    pub method: Method,
    /// CRC-32 of the content.
    pub crc32: u32,
    /// Size of the content in the archive, in bytes.
    pub compressed: u64,
    /// Size of the content according to the directory, in bytes.
    pub size: u64,
    /// Permissions and file type, if the archive was made on Unix.
    pub unix_mode: Option<u16>,
    /// Offset of the local header.
    pub offset: u64,
    /// Offset of the next local header or of the directory.
    limit: u64,
    descriptor: bool,
}

impl Member {
    /// Offset of what comes after the member: the next local header, or the directory.
    pub fn end(&self) -> u64 {
        self.limit
    }

    /// Whether the member is a directory, which has no content.
    pub fn is_folder(&self) -> bool {
        self.name.ends_with('/')
    }

    /// Reads the next entry of a directory that starts at `directory`.
    pub(super) fn read(
        entries: &mut Forward<'_, impl Source + ?Sized>,
        directory: u64,
    ) -> Result<Self, Fault> {
        let at = entries.position();
        let entry: [u8; 46] = match entries.array() {
            Ok(entry) if entry[..4] == ENTRY => entry,
            _ => return Err(fault(at, Problem::Entry)),
        };
        let cut = |_| fault(at, Problem::Entry);
        let name = (entries.take(u16_at(&entry, 28).into()))
            .map_err(cut)?
            .to_vec();
        let extra = (entries.take(u16_at(&entry, 30).into()))
            .map_err(cut)?
            .to_vec();
        entries.take(u16_at(&entry, 32).into()).map_err(cut)?;
        let wrong = |problem| fault(at, problem).in_member(String::from_utf8_lossy(&name));

        let flags = u16_at(&entry, 8);
        if flags & ENCRYPTED != 0 {
            return Err(wrong(Problem::Encrypted));
        }
        let numbers = Numbers::read(&entry, &extra).map_err(wrong)?;
        let member = Self {
            name: names::parse(&name, flags & UTF8 != 0).map_err(wrong)?,
            method: Method::of(u16_at(&entry, 10)).map_err(wrong)?,
            crc32: u32_at(&entry, 16),
            compressed: numbers.compressed,
            size: numbers.size,
            unix_mode: (entry[5] == 3).then(|| u16_at(&entry, 40)),
            offset: numbers.offset,
            limit: directory,
            descriptor: flags & DESCRIPTOR != 0,
        };
        member.check_sizes().map_err(wrong)?;
        Ok(member)
    }

    fn check_sizes(&self) -> Result<(), Problem> {
        let possible = match self.method {
            Method::Stored => self.size == self.compressed,
            Method::Deflate => self.size <= self.compressed.saturating_mul(MAX_RATIO),
        };
        if possible && (self.size == 0 || !self.is_folder()) {
            return Ok(());
        }
        Err(Problem::Sizes {
            size: self.size,
            compressed: self.compressed,
        })
    }

    /// Returns the byte range of the content, if the local header agrees with the directory.
    pub(super) fn locate(&self, source: &mut (impl Source + ?Sized)) -> Result<Range<u64>, Fault> {
        let wrong = |problem| fault(self.offset, problem).in_member(&self.name);
        let read = |e| Fault::from(e).in_member(&self.name);
        let local: [u8; 30] = source::array(source, self.offset).map_err(read)?;
        if local[..4] != LOCAL {
            return Err(wrong(Problem::Local("signature")));
        }
        let name_len = u64::from(u16_at(&local, 26));
        let extra_len = u64::from(u16_at(&local, 28));
        // A local name or field may claim 64 KiB, which are not read if they cannot exist.
        if name_len != self.name.len() as u64 {
            return Err(wrong(Problem::Local("name")));
        }
        let start = self.offset + LOCAL_LEN + name_len + extra_len;
        let range = match start.checked_add(self.compressed) {
            Some(end) if end <= self.limit => start..end,
            _ => return Err(wrong(Problem::Overlap)),
        };
        let names =
            source::bytes(source, self.offset + LOCAL_LEN, name_len + extra_len).map_err(read)?;
        let (name, extra) = names.split_at(name_len as usize);
        if name != self.name.as_bytes() {
            return Err(wrong(Problem::Local("name")));
        }
        if Method::of(u16_at(&local, 8)).ok() != Some(self.method) {
            return Err(wrong(Problem::Local("method")));
        }
        let flags = u16_at(&local, 6);
        if flags & ENCRYPTED != 0 || (flags & DESCRIPTOR != 0) != self.descriptor {
            return Err(wrong(Problem::Local("flags")));
        }
        self.check_numbers(&local, extra).map_err(wrong)?;
        Ok(range)
    }

    fn check_numbers(&self, local: &[u8; 30], extra: &[u8]) -> Result<(), Problem> {
        let extra = Extra::read(extra)?;
        let mut long = extra.zip64.chunks_exact(8).map(|n| u64_at(n, 0));
        // A header before a data descriptor may leave numbers out.
        let agrees =
            |found: u64, expected: u64| found == expected || (self.descriptor && found == 0);
        let mut number = |at: usize| match u32_at(local, at) {
            FULL => long.next().ok_or(Problem::Zip64),
            short => Ok(short.into()),
        };
        let (size, compressed) = (number(22)?, number(18)?);
        if !agrees(u32_at(local, 14).into(), self.crc32.into()) {
            Err(Problem::Local("CRC-32"))
        } else if !agrees(size, self.size) || !agrees(compressed, self.compressed) {
            Err(Problem::Local("sizes"))
        } else {
            Ok(())
        }
    }
}

/// A local header without a directory entry, because the directory has not been reached yet.
pub(super) struct Local {
    pub name: String,
    pub method: Method,
    pub crc32: u32,
    pub compressed: u64,
    pub size: u64,
}

impl Local {
    pub(super) const LEN: usize = LOCAL_LEN as usize;

    /// Returns the size in bytes of the name and the fields that follow a header.
    pub(super) fn names(header: &[u8; Self::LEN]) -> usize {
        usize::from(u16_at(header, 26)) + usize::from(u16_at(header, 28))
    }

    /// Parses the header at `at`, and the name and fields that follow it.
    pub(super) fn read(at: u64, header: &[u8; Self::LEN], names: &[u8]) -> Result<Self, Fault> {
        let (name, extra) = names.split_at(u16_at(header, 26).into());
        let wrong = |problem| fault(at, problem).in_member(String::from_utf8_lossy(name));
        if header[..4] != LOCAL {
            return Err(fault(at, Problem::Local("signature")));
        }
        let flags = u16_at(header, 6);
        if flags & ENCRYPTED != 0 {
            return Err(wrong(Problem::Encrypted));
        }
        if flags & DESCRIPTOR != 0 {
            return Err(wrong(Problem::Streamed));
        }
        let extra = Extra::read(extra).map_err(wrong)?;
        let mut long = extra.zip64.chunks_exact(8).map(|n| u64_at(n, 0));
        let mut number = |at: usize| match u32_at(header, at) {
            FULL => long.next().ok_or(wrong(Problem::Zip64)),
            short => Ok(short.into()),
        };
        let (size, compressed) = (number(22)?, number(18)?);
        Ok(Self {
            name: names::parse(name, flags & UTF8 != 0).map_err(wrong)?,
            method: Method::of(u16_at(header, 8)).map_err(wrong)?,
            crc32: u32_at(header, 14),
            compressed,
            size,
        })
    }
}

/// Sets the end that each member's content must not pass. Fails if a member already passes it according
/// to the directory.
pub(super) fn bound(members: &mut [Member]) -> Result<(), Fault> {
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_unstable_by_key(|&i| members[i].offset);
    for (n, &i) in order.iter().enumerate() {
        if let Some(&next) = order.get(n + 1) {
            members[i].limit = members[next].offset;
        }
        let member = &members[i];
        let least = (member.offset)
            .checked_add(LOCAL_LEN + member.name.len() as u64)
            .and_then(|start| start.checked_add(member.compressed));
        if least.is_none_or(|end| end > member.limit) {
            return Err(fault(member.offset, Problem::Overlap).in_member(&member.name));
        }
    }
    Ok(())
}

/// An entry's numbers, from its 32-bit fields or, if those are full, from its zip64 field, in this
/// order.
struct Numbers {
    size: u64,
    compressed: u64,
    offset: u64,
}

impl Numbers {
    fn read(entry: &[u8; 46], extra: &[u8]) -> Result<Self, Problem> {
        let extra = Extra::read(extra)?;
        let mut long = extra.zip64.chunks_exact(8).map(|n| u64_at(n, 0));
        let mut number = |at: usize| match u32_at(entry, at) {
            FULL => long.next().ok_or(Problem::Zip64),
            short => Ok(short.into()),
        };
        let numbers = Self {
            size: number(24)?,
            compressed: number(20)?,
            offset: number(42)?,
        };
        match u16_at(entry, 34) {
            0 => Ok(numbers),
            _ => Err(Problem::Volumes),
        }
    }
}

#[derive(Default)]
struct Extra<'a> {
    zip64: &'a [u8],
}

impl<'a> Extra<'a> {
    fn read(mut bytes: &'a [u8]) -> Result<Self, Problem> {
        let mut extra = Self::default();
        while let Some((header, rest)) = bytes.split_first_chunk::<4>() {
            let len = usize::from(u16_at(header, 2));
            let Some((value, rest)) = rest.split_at_checked(len) else {
                return Err(Problem::Entry);
            };
            match u16_at(header, 0) {
                EXTRA_ZIP64 if !extra.zip64.is_empty() => return Err(Problem::Zip64),
                EXTRA_ZIP64 => extra.zip64 = value,
                EXTRA_UNICODE_PATH => return Err(Problem::Name("given a second time")),
                _ => {}
            }
            bytes = rest;
        }
        Ok(extra)
    }
}
