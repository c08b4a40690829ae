//! ELF objects: what one asks of the loader and offers to others, read from its headers.
//!
//! In: a name for messages and a [`Source`]. Out: an [`Object`] — machine, NEEDED, SONAME, RPATH,
//! RUNPATH, version needs, the sections that were asked for — and, on request, a walk over its
//! dynamic symbols. Everything comes from where the loader looks (program headers and the dynamic
//! table); section headers, which a loader ignores, only find device code and count symbols.
//!
//! `object` gives the structures; its own reader holds every table that it touches, this one holds
//! none: symbols and their names pass by in the order of the file. Never runs, maps or unpacks the
//! object. Only 64-bit little-endian objects: no CUDA platform has others.

mod dynamic;
mod error;
mod header;
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
pub use header::{Section, Unmapped, dynamic_table, unmapped};
pub use symbols::{Linkage, Symbol, mentions};
pub use version::{Floors, Version, VersionNeed, newest};

pub const MAGIC: [u8; 4] = object::elf::ELFMAG;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    X86_64,
    Aarch64,
    Cuda,
    /// By its number in the ELF registry.
    Other(u16),
}

impl Machine {
    /// As in `x86_64-linux-gnu`.
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
            Self::Cuda => "cuda",
            Self::Other(_) => "other",
        }
    }

    /// `e_machine`
    pub fn number(self) -> u16 {
        match self {
            Self::X86_64 => object::elf::EM_X86_64,
            Self::Aarch64 => object::elf::EM_AARCH64,
            Self::Cuda => object::elf::EM_CUDA,
            Self::Other(number) => number,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Relocatable,
    Executable,
    Shared,
    Other(u16),
}

#[derive(Debug, Clone)]
pub struct Object {
    pub name: String,
    /// In bytes.
    pub size: u64,
    pub machine: Machine,
    pub kind: Kind,
    /// `EI_ABIVERSION` and `e_flags`, which say for which SM a cubin is.
    pub abi_version: u8,
    pub flags: u32,
    pub soname: Option<String>,
    pub needed: Vec<String>,
    /// Ignored by the loader where there is a `runpath`.
    pub rpath: Option<SearchPath>,
    pub runpath: Option<SearchPath>,
    /// The loader looks for what it needs neither in the default directories nor in its cache of
    /// them (DF_1_NODEFLIB).
    pub no_default_directories: bool,
    /// It asks for a stack that can be executed (PT_GNU_STACK).
    pub executable_stack: bool,
    pub versions: Vec<VersionNeed>,
    /// Versions of symbols that it defines.
    pub defines: Vec<String>,
    /// In the order of the file; they do not overlap.
    pub sections: Vec<Section>,
    symbols: Option<SymbolTable>,
}

impl Object {
    /// Reads the object that `source` is. `sections` are the names of those to remember.
    pub fn read(
        name: &str,
        source: &mut (impl Source + ?Sized),
        sections: &[&str],
    ) -> Result<Self, ElfError> {
        Self::parse(name, source, sections).map_err(|fault| fault.of(name))
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

    /// The newest GLIBC, GLIBCXX and CXXABI that the loader insists on.
    pub fn floors(&self) -> Floors {
        Floors::of(&self.versions)
    }

    /// Shows every global symbol of the dynamic table, by where its name lies, and once where its
    /// versions share a name. `source` is what the object was read from. Holds eight bytes for each
    /// symbol.
    pub fn symbols(
        &self,
        source: &mut (impl Source + ?Sized),
        visit: impl FnMut(Symbol<'_>),
    ) -> Result<(), ElfError> {
        match &self.symbols {
            None => Ok(()),
            Some(table) => table
                .visit(source, visit)
                .map_err(|fault| fault.of(&self.name)),
        }
    }
}
