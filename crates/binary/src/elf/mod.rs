//! ELF objects: what an object requires of the loader and offers to others, read from its headers.
//!
//! In: a name for messages and a [`Source`]. Out: an [`Object`] with machine, NEEDED, SONAME, RPATH,
//! RUNPATH, version needs and the requested sections, and, on request, a walk over its dynamic symbols.
//! Everything is read where the loader reads it (program headers and the dynamic table). Section
//! headers, which a loader ignores, are only used to find device code and to count symbols.
//!
//! The `object` crate provides the structures. Its own reader holds every table that it touches; this
//! one holds none, and reads symbols and their names in the order of the file. Never runs, maps or
//! unpacks the object. Only 64-bit little-endian objects are read: no CUDA platform has others.

mod dynamic;
mod error;
mod header;
mod machine;
mod strings;
mod symbols;
#[cfg(test)]
mod tests;
mod version;

use crate::source::Source;
use error::Fault;
use header::Header;
use symbols::SymbolTable;

pub use dynamic::SearchPath;
pub use error::{ElfError, Problem};
pub use header::{Section, Unmapped, dynamic_table, loaded_end, unmapped};
pub use machine::{Machine, ObjectType};
pub use symbols::{Linkage, Symbol, mentions};
pub use version::{Floors, Version, VersionNeed, newest};

/// First four bytes of an ELF object.
pub const MAGIC: [u8; 4] = object::elf::ELFMAG;

/// The headers of an object.
#[derive(Debug, Clone)]
pub struct Object {
    /// The name that the caller gave the object, for messages.
    pub name: String,
    /// Size of the object in bytes.
    pub size: u64,
    /// The machine that its code runs on.
    pub machine: Machine,
    /// The type of the object.
    pub kind: ObjectType,
    /// `EI_ABIVERSION`. With `flags` it tells a cubin's SM.
    pub abi_version: u8,
    /// `e_flags`.
    pub flags: u32,
    /// SONAME, if it has one.
    pub soname: Option<String>,
    /// NEEDED: SONAMEs in the order in which the loader takes them.
    pub needed: Vec<String>,
    /// RPATH. The loader ignores it if there is a `runpath`.
    pub rpath: Option<SearchPath>,
    /// RUNPATH: where the loader looks for `needed` before its own directories.
    pub runpath: Option<SearchPath>,
    /// Whether the loader must not look for dependencies in the default directories or in its cache of
    /// them (DF_1_NODEFLIB).
    pub no_default_directories: bool,
    /// Whether the object asks for an executable stack (PT_GNU_STACK).
    pub executable_stack: bool,
    /// Versions of symbols that other objects must define.
    pub versions: Vec<VersionNeed>,
    /// Versions of symbols that the object defines.
    pub defines: Vec<String>,
    /// The requested sections in the order of the file. They do not overlap.
    pub sections: Vec<Section>,
    symbols: Option<SymbolTable>,
}

impl Object {
    /// Reads the object in `source`. `sections` are the names of the sections to remember.
    ///
    /// # Errors
    /// If `source` is not a 64-bit little-endian ELF object, is damaged in a part that the loader or a
    /// requested section needs, exceeds a limit, or cannot be read.
    pub fn read(
        name: &str,
        source: &mut (impl Source + ?Sized),
        sections: &[&str],
    ) -> Result<Self, ElfError> {
        Self::parse(name, source, sections).map_err(|fault| fault.in_object(name))
    }

    fn parse(
        name: &str,
        source: &mut (impl Source + ?Sized),
        sections: &[&str],
    ) -> Result<Self, Fault> {
        let header = Header::read(source)?;
        let segments = header.segments(source)?;
        let table = header.sections(source, sections)?;
        let dynamic = dynamic::read(source, &segments)?;
        let symbols = SymbolTable::locate(source, &segments, &dynamic, &table.symbols)?;
        Ok(Self {
            name: name.to_owned(),
            size: source.size(),
            machine: header.machine,
            kind: header.kind,
            abi_version: header.abi_version,
            flags: header.flags,
            soname: dynamic.soname,
            needed: dynamic.needed,
            rpath: dynamic.rpath,
            runpath: dynamic.runpath,
            no_default_directories: dynamic.no_default_directories,
            executable_stack: segments.executable_stack,
            versions: dynamic.versions,
            defines: dynamic.defines,
            sections: table.wanted,
            symbols,
        })
    }

    /// Returns the newest GLIBC, GLIBCXX and CXXABI that the loader requires.
    pub fn floors(&self) -> Floors {
        Floors::of(&self.versions)
    }

    /// Calls `visit` with every global symbol of the dynamic table, in the order in which their names
    /// are stored, and once for all versions of a name. `source` is what the object was read from.
    /// Needs eight bytes of memory for each symbol.
    ///
    /// # Errors
    /// If the symbol table or its names are damaged, or `source` cannot be read.
    pub fn symbols(
        &self,
        source: &mut (impl Source + ?Sized),
        visit: impl FnMut(Symbol<'_>),
    ) -> Result<(), ElfError> {
        match &self.symbols {
            None => Ok(()),
            Some(table) => table
                .visit(source, visit)
                .map_err(|fault| fault.in_object(&self.name)),
        }
    }
}
