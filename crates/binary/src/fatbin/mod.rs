//! Device code in an object: the entries of its fatbins, or the object itself if it is a cubin.
//!
//! In: an [`Object`] read with [`SECTIONS`], and its [`Source`]; or a file that is a fatbin. Out: one
//! [`Entry`] after another, read from headers alone: kind, SM, version, compression, sizes. Nothing is
//! decompressed, so an entry's statements about its code are not checked. The driver does not check
//! them either.
//!
//! A section is a series of containers, each with a 16-byte header and entries. NVIDIA documents
//! neither. The layout was derived from files of CUDA 11 to 13.5 and agrees with `cuobjdump -all` on
//! every file measured.

mod cubin;
mod entry;
mod error;
mod scan;
#[cfg(test)]
mod tests;
mod walk;
mod without;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::elf::{Machine, Object};
use crate::source::Source;
use stackforge_types::Sm;

pub use entry::{CodeKind, Compression, Entry, Place};
pub use error::{FatbinError, Problem};
pub use scan::Scan;
pub use walk::Entries;
pub use without::{Edit, Segment, edited, rewrite, without};

/// Names of the sections to read an object with: fatbins of linked code, fatbins of relocatable code,
/// and the section with a cubin's SM attribute.
pub const SECTIONS: [&str; 3] = [LINKED, RELOCATABLE, cubin::COMPAT];
const LINKED: &str = ".nv_fatbin";
const RELOCATABLE: &str = "__nv_relfatbin";

/// Bytes of an object for one SM, as stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Bytes of machine code.
    pub sass: u64,
    /// Bytes of PTX.
    pub ptx: u64,
    /// Bytes of NVVM IR and of unknown kinds.
    pub other: u64,
}

/// Adds up the stored bytes of the entries for each SM, lowest SM first.
pub fn bytes_by_sm<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> BTreeMap<Sm, Bytes> {
    let mut sums: BTreeMap<Sm, Bytes> = BTreeMap::new();
    for entry in entries {
        let sum = sums.entry(entry.sm).or_default();
        match entry.kind {
            CodeKind::Sass => sum.sass += entry.stored,
            CodeKind::Ptx => sum.ptx += entry.stored,
            CodeKind::Nvvm | CodeKind::Other(_) => sum.other += entry.stored,
        }
    }
    sums
}

/// Returns the device code of an object. `source` is what the object was read from. The iterator ends
/// after an error.
pub fn entries<S: Source>(object: &Object, source: S) -> Entries<'_, S> {
    if object.machine == Machine::Cuda {
        return Entries::of_cubin(object, source);
    }
    let sections = object.sections.iter().filter_map(|section| {
        let place = match section.name.as_str() {
            LINKED => Place::Linked,
            RELOCATABLE => Place::Relocatable,
            _ => return None,
        };
        Some((place, section.range.clone()))
    });
    Entries::of_sections(&object.name, source, sections.collect())
}

/// Returns the device code of a file that is a fatbin and not an object, as `nvcc -fatbin` writes it.
pub fn bare_entries<S: Source>(name: &str, source: S) -> Entries<'_, S> {
    let all = 0..source.size();
    Entries::of_sections(name, source, [(Place::Bare, all)].into())
}
