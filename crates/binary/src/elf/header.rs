//! The ELF header and the two tables it points to: segments, which the loader reads, and sections,
//! which it does not.

use std::collections::BTreeSet;
use std::ops::Range;

use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64};
use object::endian::LittleEndian as LE;
use object::pod::{Pod, from_bytes};

use super::error::{ElfError, Fault, Problem, too_many};
use super::machine::{Machine, ObjectType};
use crate::source::{self, Forward, Source};

/// Limit on a section name table, in bytes. The largest of real objects are below 1 MiB.
const MAX_SECTION_NAMES: u64 = 16 << 20;
/// Limit on the number of sections. Shared objects have about forty, relocatable objects one for each
/// function.
const MAX_SECTIONS: u64 = 1 << 20;
/// Limit on the sections of an object in which [`unmapped`] looks for tables.
const MAX_STRIPPED: u64 = 4 << 10;
/// Prefixes of the names of sections with debug information.
const DEBUG: [&[u8]; 2] = [b".debug_", b".zdebug_"];
/// Limit on the sections of one object that are remembered. Real objects have a few.
const MAX_WANTED: usize = 4 << 10;

/// A section that the caller asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Name in the section table, such as `.nv_fatbin`.
    pub name: String,
    /// The section's byte range in the object.
    pub range: Range<u64>,
}

/// A table for linkers, debuggers and profilers, which no loader maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmapped {
    /// Byte range of the table.
    pub content: Range<u64>,
    /// Byte range of the table's type in the section table.
    pub kind: Range<u64>,
}

/// Returns the tables of non-dynamic symbols, their names, and debug information.
///
/// # Errors
/// If the header or the section table is damaged, or `source` cannot be read.
pub fn unmapped(name: &str, mut source: impl Source) -> Result<Vec<Unmapped>, ElfError> {
    let read = |source: &mut dyn Source| {
        let header = Header::read(source)?;
        header.unmapped(source)
    };
    read(&mut source).map_err(|fault| fault.in_object(name))
}

/// Returns the byte range of an object's dynamic table. `None` if `start`, its first bytes, does not
/// contain it.
pub fn dynamic_table(start: &[u8]) -> Option<Range<u64>> {
    ranges(start, elf::PT_DYNAMIC)?.next()
}

/// Returns where the last segment that the loader maps ends in an object. Only symbols, names, debug information and
/// the section table follow. `None` if `start`, its first bytes, does not say.
pub fn loaded_end(start: &[u8]) -> Option<u64> {
    ranges(start, elf::PT_LOAD)?.map(|range| range.end).max()
}

/// Returns the byte ranges of the segments of a type, if an object's first bytes have their table.
fn ranges(start: &[u8], kind: u32) -> Option<impl Iterator<Item = Range<u64>>> {
    let header: &FileHeader64<LE> = structure(start.first_chunk::<64>()?);
    if header.e_phentsize.get(LE) != 56 {
        return None;
    }
    let table = start.get(usize::try_from(header.e_phoff.get(LE)).ok()?..)?;
    let (segments, _) = table.as_chunks::<56>();
    let segments = segments.iter().take(header.e_phnum.get(LE).into());
    let of_kind = segments
        .map(structure::<56, ProgramHeader64<LE>>)
        .filter(move |segment| segment.p_type.get(LE) == kind);
    Some(of_kind.map(|segment| {
        let at = segment.p_offset.get(LE);
        at..at.saturating_add(segment.p_filesz.get(LE))
    }))
}

pub(super) struct Header {
    pub machine: Machine,
    pub kind: ObjectType,
    pub abi_version: u8,
    pub flags: u32,
    segments: (u64, u64),
    sections: (u64, u64),
    names: u64,
}

/// The segments that the loader maps, and the one with the dynamic table.
pub(super) struct Segments {
    loaded: Vec<Loaded>,
    pub dynamic: Option<Range<u64>>,
    /// Whether PT_GNU_STACK asks for an executable stack.
    pub executable_stack: bool,
}

struct Loaded {
    address: u64,
    range: Range<u64>,
}

#[derive(Default)]
pub(super) struct Sections {
    pub wanted: Vec<Section>,
    /// Tables of dynamic symbols.
    pub symbols: Vec<Range<u64>>,
}

/// Views bytes as a structure of `object`. `N` is its size.
pub(super) fn structure<const N: usize, T: Pod>(bytes: &[u8; N]) -> &T {
    const { assert!(size_of::<T>() == N && align_of::<T>() == 1) };
    let (value, _) = from_bytes(bytes).expect("size and alignment are asserted above");
    value
}

impl Header {
    pub(super) fn read(source: &mut (impl Source + ?Sized)) -> Result<Self, Fault> {
        if source.size() < 4 || source::array(source, 0)? != elf::ELFMAG {
            return Fault::err(0, Problem::Magic);
        }
        let bytes: [u8; 64] = source::array(source, 0)?;
        let header: &FileHeader64<LE> = structure(&bytes);
        let ident = header.e_ident;
        if (ident.class, ident.data, ident.version)
            != (elf::ELFCLASS64, elf::ELFDATA2LSB, elf::EV_CURRENT)
        {
            return Fault::err(4, Problem::Class);
        }
        let mut sections = (header.e_shoff.get(LE), u64::from(header.e_shnum.get(LE)));
        let mut names = u64::from(header.e_shstrndx.get(LE));
        if sections.0 == 0 {
            sections.1 = 0;
        } else {
            entry_size("section table", 0x3a, header.e_shentsize.get(LE), 64)?;
            // Counts that do not fit into the header are in the first section.
            let first: [u8; 64] = source::array(source, sections.0)?;
            let first: &SectionHeader64<LE> = structure(&first);
            if sections.1 == 0 {
                sections.1 = first.sh_size.get(LE);
            }
            if names == u64::from(elf::SHN_XINDEX) {
                names = u64::from(first.sh_link.get(LE));
            }
        }
        let segments = (header.e_phoff.get(LE), u64::from(header.e_phnum.get(LE)));
        if segments.1 > 0 {
            entry_size("segment table", 0x36, header.e_phentsize.get(LE), 56)?;
        }
        Ok(Self {
            machine: match header.e_machine.get(LE) {
                elf::EM_X86_64 => Machine::X86_64,
                elf::EM_AARCH64 => Machine::Aarch64,
                elf::EM_CUDA => Machine::Cuda,
                other => Machine::Other(other),
            },
            kind: match header.e_type.get(LE) {
                elf::ET_REL => ObjectType::Relocatable,
                elf::ET_EXEC => ObjectType::Executable,
                elf::ET_DYN => ObjectType::Shared,
                other => ObjectType::Other(other),
            },
            abi_version: ident.abi_version,
            flags: header.e_flags.get(LE),
            segments,
            sections,
            names,
        })
    }

    pub(super) fn segments(&self, source: &mut (impl Source + ?Sized)) -> Result<Segments, Fault> {
        let (offset, count) = self.segments;
        let size = source.size();
        let mut segments = Segments {
            loaded: Vec::new(),
            dynamic: None,
            executable_stack: false,
        };
        if self.machine == Machine::Cuda {
            // The driver loads a cubin, so this loader ignores its segments.
            return Ok(segments);
        }
        let mut table = Forward::new(source, offset, count * 56)?;
        for _ in 0..count {
            let at = table.position();
            let bytes: [u8; 56] = table.array()?;
            let header: &ProgramHeader64<LE> = structure(&bytes);
            let kind = header.p_type.get(LE);
            if kind == elf::PT_GNU_STACK {
                segments.executable_stack = header.p_flags.get(LE) & elf::PF_X != 0;
            }
            if kind != elf::PT_LOAD && kind != elf::PT_DYNAMIC {
                continue;
            }
            let Ok(range) = source::range(header.p_offset.get(LE), header.p_filesz.get(LE), size)
            else {
                return Fault::err(at, Problem::Outside("segment"));
            };
            if kind == elf::PT_DYNAMIC {
                segments.dynamic = Some(range);
            } else {
                segments.loaded.push(Loaded {
                    address: header.p_vaddr.get(LE),
                    range,
                });
            }
        }
        Ok(segments)
    }

    /// Returns the non-empty sections named in `wanted`, and the tables of dynamic symbols.
    pub(super) fn sections(
        &self,
        source: &mut (impl Source + ?Sized),
        wanted: &[&str],
    ) -> Result<Sections, Fault> {
        let (offset, count) = self.sections;
        let size = source.size();
        let mut found = Sections::default();
        if count == 0 {
            return Ok(found);
        }
        if count > MAX_SECTIONS {
            return too_many("sections", MAX_SECTIONS, offset);
        }
        let names = self.section_names(source)?;
        let mut table = Forward::new(source, offset, count * 64)?;
        for _ in 0..count {
            let at = table.position();
            let bytes: [u8; 64] = table.array()?;
            let header: &SectionHeader64<LE> = structure(&bytes);
            let kind = header.sh_type.get(LE);
            if kind == elf::SHT_NULL || kind == elf::SHT_NOBITS || header.sh_size.get(LE) == 0 {
                continue;
            }
            let name = header.sh_name.get(LE) as usize;
            let name = wanted.iter().find(|w| is_named(&names, name, w));
            if name.is_none() && kind != elf::SHT_DYNSYM {
                continue;
            }
            let Ok(range) = source::range(header.sh_offset.get(LE), header.sh_size.get(LE), size)
            else {
                return Fault::err(at, Problem::Outside("section"));
            };
            match name {
                None => found.symbols.push(range),
                Some(name) => found.wanted.push(Section {
                    name: (*name).to_owned(),
                    range,
                }),
            }
            if found.wanted.len() + found.symbols.len() > MAX_WANTED {
                return too_many("tables and fatbins", MAX_WANTED as u64, at);
            }
        }
        found.wanted.sort_by_key(|s| s.range.start);
        for pair in found.wanted.windows(2) {
            if pair[1].range.start < pair[0].range.end {
                return Fault::err(pair[1].range.start, Problem::Overlap(pair[1].name.clone()));
            }
        }
        Ok(found)
    }

    fn unmapped(&self, source: &mut dyn Source) -> Result<Vec<Unmapped>, Fault> {
        let (offset, count) = self.sections;
        if count == 0 || count > MAX_STRIPPED {
            return Ok(Vec::new());
        }
        let size = source.size();
        let names = self.section_names(source)?;
        let mut occupied: Vec<Range<u64>> = self
            .segments(source)?
            .loaded
            .into_iter()
            .map(|l| l.range)
            .collect();
        occupied.extend([0..64, offset..offset + count * 64]);
        occupied.push(self.segments.0..self.segments.0.saturating_add(self.segments.1 * 56));
        let mut table = Forward::new(source, offset, count * 64)?;
        let mut candidates = Vec::new();
        let mut of_symbols = BTreeSet::new();
        for number in 0..count {
            let at = table.position();
            let bytes: [u8; 64] = table.array()?;
            let header: &SectionHeader64<LE> = structure(&bytes);
            let kind = header.sh_type.get(LE);
            if kind == elf::SHT_NULL || kind == elf::SHT_NOBITS {
                continue;
            }
            let start = header.sh_offset.get(LE);
            let content = start..start.saturating_add(header.sh_size.get(LE));
            let name = names.get(header.sh_name.get(LE) as usize..);
            let debug = name.is_some_and(|n| DEBUG.iter().any(|start| n.starts_with(start)));
            let mapped = header.sh_flags.get(LE) & u64::from(elf::SHF_ALLOC) != 0;
            if kind == elf::SHT_SYMTAB {
                of_symbols.insert(u64::from(header.sh_link.get(LE)));
            }
            let candidate = match kind {
                elf::SHT_SYMTAB => true,
                elf::SHT_STRTAB => number != self.names,
                elf::SHT_PROGBITS => debug,
                _ => false,
            };
            if candidate && !mapped && !content.is_empty() && content.end <= size {
                candidates.push((number, kind, content, at + 4..at + 8))
            } else {
                occupied.push(content)
            }
        }
        // A string table that does not belong to these symbols may be in use elsewhere.
        let (found, others): (Vec<_>, Vec<_>) = (candidates.into_iter())
            .partition(|(n, kind, ..)| *kind != elf::SHT_STRTAB || of_symbols.contains(n));
        occupied.extend(others.into_iter().map(|(_, _, content, _)| content));
        let free = |content: &Range<u64>| {
            let apart = |t: &Range<u64>| content.end <= t.start || t.end <= content.start;
            occupied.iter().all(|t| t.is_empty() || apart(t))
        };
        let found = found.into_iter().filter(|(_, _, content, _)| free(content));
        let table = |(_, _, content, kind)| Unmapped { content, kind };
        Ok(found.map(table).collect())
    }

    fn section_names(&self, source: &mut (impl Source + ?Sized)) -> Result<Vec<u8>, Fault> {
        let (offset, count) = self.sections;
        if self.names == u64::from(elf::SHN_UNDEF) {
            return Ok(Vec::new());
        }
        if self.names >= count {
            return Fault::err(0x3e, Problem::Missing("section name table"));
        }
        let at = offset.saturating_add(self.names * 64);
        let header: [u8; 64] = source::array(source, at)?;
        let header: &SectionHeader64<LE> = structure(&header);
        let len = header.sh_size.get(LE);
        if len > MAX_SECTION_NAMES {
            let (what, limit) = ("section name table", MAX_SECTION_NAMES);
            return Fault::err(at, Problem::TooLarge { what, limit });
        }
        Ok(source::bytes(source, header.sh_offset.get(LE), len)?)
    }
}

impl Segments {
    /// Returns the object's bytes from an address of the loaded image to the end of its segment.
    pub(super) fn at(&self, address: u64, what: &'static str) -> Result<Range<u64>, Fault> {
        let inside = self.loaded.iter().find_map(|s| {
            let into = address.checked_sub(s.address)?;
            (into < s.range.end - s.range.start).then(|| s.range.start + into..s.range.end)
        });
        match inside {
            Some(range) => Ok(range),
            None => {
                let named = self.dynamic.as_ref().map_or(0, |d| d.start);
                Fault::err(named, Problem::Unmapped(what, address))
            }
        }
    }
}

fn entry_size(table: &'static str, at: u64, found: u16, expected: u64) -> Result<(), Fault> {
    let found = u64::from(found);
    if found == expected {
        return Ok(());
    }
    Fault::err(
        at,
        Problem::EntrySize {
            table,
            found,
            expected,
        },
    )
}

/// Whether the name at `at` is `wanted`. Looks no further than the length of `wanted`: otherwise, a
/// table without a zero byte would be read again for each section.
fn is_named(names: &[u8], at: usize, wanted: &str) -> bool {
    let name = names.get(at..).and_then(|n| n.get(..=wanted.len()));
    name.is_some_and(|n| n.ends_with(b"\0") && n.starts_with(wanted.as_bytes()))
}
