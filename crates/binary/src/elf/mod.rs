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

/// How an ELF object begins.
pub const MAGIC: [u8; 4] = object::elf::ELFMAG;

/// What an object's code runs on (`e_machine`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
    /// An NVIDIA GPU: the object is a cubin.
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

/// What an object is for (`e_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An object for the linker.
    Relocatable,
    /// A program for one fixed address.
    Executable,
    /// A shared library, or a program for any address.
    Shared,
    /// Another `e_type`.
    Other(u16),
}

/// What an object says of itself.
#[derive(Debug, Clone)]
pub struct Object {
    /// The name that the caller gave it, for messages.
    pub name: String,
    /// In bytes.
    pub size: u64,
    /// What its code runs on.
    pub machine: Machine,
    /// What it is for.
    pub kind: Kind,
    /// `EI_ABIVERSION` and `e_flags`, which say for which SM a cubin is.
    pub abi_version: u8,
    /// `e_flags`.
    pub flags: u32,
    /// SONAME, if it has one.
    pub soname: Option<String>,
    /// NEEDED: SONAMEs in the order in which the loader takes them.
    pub needed: Vec<String>,
    /// Ignored by the loader where there is a `runpath`.
    pub rpath: Option<SearchPath>,
    /// Where the loader looks for `needed` before its own directories.
    pub runpath: Option<SearchPath>,
    /// The loader looks for what it needs neither in the default directories nor in its cache of
    /// them (DF_1_NODEFLIB).
    pub no_default_directories: bool,
    /// It asks for a stack that can be executed (PT_GNU_STACK).
    pub executable_stack: bool,
    /// Versions of symbols that others have to define.
    pub versions: Vec<VersionNeed>,
    /// Versions of symbols that it defines.
    pub defines: Vec<String>,
    /// In the order of the file; they do not overlap.
    pub sections: Vec<Section>,
    symbols: Option<SymbolTable>,
}

impl Object {
    /// Reads the object that `source` is. `sections` are the names of those to remember.
    ///
    /// # Errors
    /// If `source` is not a 64-bit little-endian ELF object, is damaged where the loader or a
    /// wanted section lies, exceeds a bound, or cannot be read.
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
                .map_err(|fault| fault.of(&self.name)),
        }
    }
}
