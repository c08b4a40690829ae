//! One entry of a container: 64 bytes that every version of the format has, further fields of newer
//! versions, and the code.

use std::ops::Range;

use serde::Serialize;

use super::error::{Fault, Problem};
use crate::source::{self, Source, u16_at, u32_at, u64_at};
use stackforge_types::{Sm, Suffix};

const HEADER: u64 = 64;
const VERSION: u16 = 0x0101;

const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;
const ARCH: u64 = 0x10_0000;
const FAMILY: u64 = 0x20_0000;

/// The kind of an entry's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CodeKind {
    /// Machine code: a cubin.
    Sass,
    /// PTX: text that a driver can compile.
    Ptx,
    /// NVVM IR for link-time optimisation, which a driver cannot run.
    Nvvm,
    /// Another kind, by its number in the header.
    Other(u16),
}

/// The compression of an entry's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// Blocks of LZ4.
    Lz4,
    /// Zstandard (RFC 8878).
    Zstd,
}

/// The place where an entry was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Section `.nv_fatbin`.
    Linked,
    /// Section `__nv_relfatbin`.
    Relocatable,
    /// No section: the file is a cubin or a fatbin.
    Bare,
}

/// One piece of device code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The kind of the code.
    pub kind: CodeKind,
    /// The SM that the code was compiled for.
    pub sm: Sm,
    /// Version of the code. For PTX it is the ISA (9.0 needs a driver of CUDA 13.0), for others that of
    /// their format.
    pub version: (u16, u16),
    /// Compression of the code. `None` if it is stored as is.
    pub compression: Option<Compression>,
    /// Bytes of code in the object, compressed if [`Entry::compression`] is set.
    pub stored: u64,
    /// Bytes of uncompressed code according to the header, unchecked.
    pub uncompressed: u64,
    /// The place of the entry in the object.
    pub place: Place,
    /// Offset of the entry in the object.
    pub offset: u64,
    /// Length in bytes, from the offset to the next entry.
    pub len: u64,
    /// Offset of the entry's container. Entries of one container have the same kernels.
    pub container: u64,
}

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
            1 => CodeKind::Ptx,
            2 => CodeKind::Sass,
            8 => CodeKind::Nvvm,
            other => CodeKind::Other(other),
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
