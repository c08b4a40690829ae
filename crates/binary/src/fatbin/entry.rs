//! One entry of a container: 64 bytes that every version of the format has, further fields of newer
//! versions, and the code.

use std::ops::Range;

use super::error::{Fault, Problem};
use super::{Compression, Entry, Kind, Place};
use crate::source::{self, Source, u16_at, u32_at, u64_at};
use stackforge_types::{Sm, Suffix};

const HEADER: u64 = 64;
const VERSION: u16 = 0x0101;

const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;
const ARCH: u64 = 0x10_0000;
const FAMILY: u64 = 0x20_0000;

/// Returns the entry at the start of `range`, which ends with its container, and the entry's length.
pub(super) fn read(
    source: &mut impl Source,
    range: Range<u64>,
    place: Place,
    container: u64,
) -> Result<(Entry, u64), Fault> {
    let at = range.start;
    let left = range.end - at;
    if left < HEADER {
        return Fault::err(at, Problem::Outside("entry"));
    }
    let header: [u8; 64] = source::array(source, at)?;
    let (version, len) = (u16_at(&header, 2), u32_at(&header, 4));
    if version != VERSION || u64::from(len) < HEADER {
        return Fault::err(at, Problem::Entry { version, len });
    }
    let stored = u64_at(&header, 8);
    let Some(total) = stored.checked_add(len.into()).filter(|t| *t <= left) else {
        return Fault::err(at, Problem::Outside("entry"));
    };

    let flags = u64_at(&header, 40);
    let compression = match (flags & LZ4 != 0, flags & ZSTD != 0) {
        (false, false) => None,
        (true, false) => Some(Compression::Lz4),
        (false, true) => Some(Compression::Zstd),
        (true, true) => return Fault::err(at, Problem::Flags(flags)),
    };
    // Uncompressed code has only a stored length, including padding.
    let compressed = u64::from(u32_at(&header, 16));
    if compressed > stored || compression.is_some() != (compressed > 0) {
        return Fault::err(at, Problem::Compressed { compressed, stored });
    }
    let entry = Entry {
        kind: match u16_at(&header, 0) {
            1 => Kind::Ptx,
            2 => Kind::Sass,
            8 => Kind::Nvvm,
            other => Kind::Other(other),
        },
        sm: sm(u32_at(&header, 28), flags, at)?,
        version: (u16_at(&header, 26), u16_at(&header, 24)),
        compression,
        stored: compression.map_or(stored, |_| compressed),
        uncompressed: compression.map_or(stored, |_| u64_at(&header, 56)),
        place,
        offset: at,
        len: total,
        container,
    };
    Ok((entry, total))
}

fn sm(number: u32, flags: u64, at: u64) -> Result<Sm, Fault> {
    let suffix = match (flags & ARCH != 0, flags & FAMILY != 0) {
        (false, false) => None,
        (true, false) => Some(Suffix::Arch),
        (false, true) => Some(Suffix::Family),
        (true, true) => return Fault::err(at, Problem::Flags(flags)),
    };
    Ok(Sm {
        suffix,
        ..numbered(number, at)?
    })
}

/// Converts NVIDIA's number of an SM, such as 90 or 110.
pub(super) fn numbered(number: u32, at: u64) -> Result<Sm, Fault> {
    match (u8::try_from(number / 10), number % 10) {
        (Ok(major @ 1..=99), minor) => Ok(Sm::new(major, minor as u8)),
        _ => Fault::err(at, Problem::Sm(number)),
    }
}
