//! Device code in an object: the entries of its fatbins, or the cubin that it is.
//!
//! In: an [`Object`] read with [`SECTIONS`], and its [`Source`]; or a file that is a fatbin. Out: [`Entry`] after entry, by
//! headers alone: kind, SM, version, compression, sizes. Nothing is decompressed, so what an entry
//! says of its code is taken as said, by the driver too.
//!
//! A section is containers one after the other, each a 16-byte header and entries. NVIDIA
//! documents neither; the layout was read from files of CUDA 11 to 13.5 and holds against
//! `cuobjdump -all` on every file measured.

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

pub use error::{FatbinError, Problem};
pub use scan::Scan;
pub use walk::Entries;
pub use without::{Edit, Stretch, edited, rewrite, without};

/// Names of the sections to read an object with: fatbins of linked code, fatbins of relocatable
/// code, and what a cubin says of its SM.
pub const SECTIONS: [&str; 3] = [LINKED, RELOCATABLE, cubin::COMPAT];
const LINKED: &str = ".nv_fatbin";
const RELOCATABLE: &str = "__nv_relfatbin";

/// What an entry's code is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Machine code, a cubin.
    Sass,
    /// Text that a driver can compile.
    Ptx,
    /// NVVM IR for link-time optimisation; a driver cannot run it.
    Nvvm,
    /// Another kind, by the number in its header.
    Other(u16),
}

/// How an entry's code is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// Blocks of LZ4.
    Lz4,
    /// Zstandard (RFC 8878).
    Zstd,
}

/// Where an entry was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// `.nv_fatbin`
    Linked,
    /// `__nv_relfatbin`
    Relocatable,
    /// No section: the file is a cubin or a fatbin.
    Bare,
}

/// One piece of device code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// What the code is.
    pub kind: Kind,
    /// What it was compiled for.
    pub sm: Sm,
    /// Of PTX, the ISA: 9.0 needs a driver of CUDA 13.0. Of others, that of their format.
    pub version: (u16, u16),
    /// `None` if the code is stored as it is.
    pub compression: Option<Compression>,
    /// Bytes of code in the object, as compressed.
    pub stored: u64,
    /// Bytes of code as the entry's header says, without a check.
    pub uncompressed: u64,
    /// Where in the object it is.
    pub place: Place,
    /// Of the entry in the object.
    pub offset: u64,
    /// In bytes, from the offset to the next entry.
    pub len: u64,
    /// Of the container that it is in: entries of one container are the same kernels.
    pub container: u64,
}

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

/// Adds up what the entries hold for each SM, lowest SM first.
pub fn bytes_by_sm<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> BTreeMap<Sm, Bytes> {
    let mut sums: BTreeMap<Sm, Bytes> = BTreeMap::new();
    for entry in entries {
        let sum = sums.entry(entry.sm).or_default();
        match entry.kind {
            Kind::Sass => sum.sass += entry.stored,
            Kind::Ptx => sum.ptx += entry.stored,
            Kind::Nvvm | Kind::Other(_) => sum.other += entry.stored,
        }
    }
    sums
}

/// The device code of an object; nothing follows an error. `source` is what it was read from.
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

/// The device code of a file that is a fatbin and no object, as `nvcc -fatbin` writes it.
pub fn bare_entries<S: Source>(name: &str, source: S) -> Entries<'_, S> {
    let all = 0..source.size();
    Entries::of_sections(name, source, [(Place::Bare, all)].into())
}
