//! A bare cubin: an ELF object for one SM, which the flags in its header name.
//!
//! Up to CUDA 12 (ABI version 7) the SM is the flags' low byte, and 0x800 is the suffix `a`. Since
//! Blackwell and CUDA 13 (ABI version 8) the SM is the second byte. There the suffix `a` is 0x8 in
//! files of CUDA 12.8 and 12.9, and an attribute of `.nv.compat` in those of CUDA 13. Neither marks the
//! suffix `f`: such a cubin runs wherever one without a suffix does. Checked with ptxas 12.8.93 and
//! 13.5.37, and with cuobjdump 13.5.37, which reads both in the same way.

use super::entry::{CodeKind, Entry, Place, numbered};
use super::error::{Fault, Problem};
use crate::elf::{Object, Section};
use crate::source::{Forward, Source, u16_at};
use stackforge_types::Suffix;

pub(super) const COMPAT: &str = ".nv.compat";
/// Offset of the flags in an ELF header.
const FLAGS_AT: u64 = 0x30;
const ARCH_ABI_7: u32 = 0x800;
const ARCH_ABI_8: u32 = 0x8;
/// Attribute of `.nv.compat`. Its value is 1 if the code runs only on its own SM.
const ARCH_ATTRIBUTE: u8 = 9;
/// Format of an attribute with a value of variable length.
const SIZED: u8 = 4;

pub(super) fn entry(object: &Object, source: &mut impl Source) -> Result<Entry, Fault> {
    let flags = object.flags;
    let (number, arch) = match object.abi_version {
        ..=7 => (flags & 0xff, flags & ARCH_ABI_7 != 0),
        8 => {
            let compat = object.sections.iter().find(|s| s.name == COMPAT);
            let attribute = compat.map(|c| arch_attribute(c, source)).transpose()?;
            let by_flag = flags & ARCH_ABI_8 != 0;
            (flags >> 8 & 0xff, attribute.flatten().unwrap_or(by_flag))
        }
        other => return Fault::err(8, Problem::Abi(other)),
    };
    let mut sm = numbered(number, FLAGS_AT)?;
    sm.suffix = arch.then_some(Suffix::Arch);
    Ok(Entry {
        kind: CodeKind::Sass,
        sm,
        // A fatbin entry's header has the same version: cubins have no other than their ABI's.
        version: (1, u16::from(object.abi_version)),
        compression: None,
        stored: object.size,
        uncompressed: object.size,
        place: Place::Bare,
        offset: 0,
        len: object.size,
        container: 0,
    })
}

/// Returns whether the section says that the SM has the suffix `a`. `None` if the section does not say.
/// An attribute is a byte of format, a byte of kind and a 16-bit value, which for a sized attribute is
/// the number of bytes that follow.
fn arch_attribute(section: &Section, source: &mut impl Source) -> Result<Option<bool>, Fault> {
    let range = &section.range;
    let mut table = Forward::new(source, range.start, range.end - range.start)?;
    while table.left() > 0 {
        let at = table.position();
        let Ok([format, kind, value @ ..]) = table.array::<4>() else {
            return Fault::err(at, Problem::Compat);
        };
        let value = u16_at(&value, 0);
        if kind == ARCH_ATTRIBUTE && format != SIZED {
            return Ok(Some(value == 1));
        }
        if format == SIZED && table.take(value.into()).is_err() {
            return Fault::err(at, Problem::Compat);
        }
    }
    Ok(None)
}
