//! Dynamic symbols: the ones an object needs from others and the ones it exports.

use std::ops::Range;

use object::elf::{self, Sym64};
use object::endian::LittleEndian as LE;

use super::dynamic::Dynamic;
use super::error::{Fault, Problem, too_many};
use super::header::{Segments, structure};
use super::strings::Strings;
use crate::source::{self, Forward, Source, u32_at};

const ENTRY: u64 = 24;
/// Limit on the number of symbols. The largest library measured, torch's, has below half a million.
const MAX_SYMBOLS: u64 = 4 << 20;

/// The role of a dynamic symbol in linking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Linkage {
    /// Another object must define the symbol.
    Undefined,
    /// Another object may define the symbol.
    WeakUndefined,
    /// This object defines the symbol, and others may use it.
    Exported,
}

/// A global symbol of the dynamic table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// The mangled name, without its version.
    pub name: &'a [u8],
    /// Whether the symbol is needed or exported.
    pub linkage: Linkage,
}

/// Whether a mangled C++ name contains one of `names` as an identifier: `_ZN3c104cuda…` mentions `c10`,
/// and `_Z16THPVariable_WrapN2at10TensorBaseE` mentions `at`. Mangling writes an identifier out, with
/// its length in front, at its first occurrence (Itanium C++ ABI 5.1.3).
pub fn mentions(mangled: &[u8], names: &[&str]) -> bool {
    mangled.starts_with(b"_Z")
        && names.iter().any(|name| {
            let identifier = format!("{}{name}", name.len());
            memchr::memmem::find_iter(mangled, identifier.as_bytes())
                .any(|at| !mangled[at - 1].is_ascii_digit())
        })
}

#[derive(Debug, Clone)]
pub(super) struct SymbolTable {
    offset: u64,
    count: u64,
    strings: Range<u64>,
}

impl SymbolTable {
    /// Finds the symbol table. The loader looks symbols up by hash and never counts them. `tables` are
    /// the sections that state the number of symbols; if they were stripped, it is derived from the
    /// hash table.
    pub(super) fn locate(
        source: &mut (impl Source + ?Sized),
        segments: &Segments,
        dynamic: &Dynamic,
        tables: &[Range<u64>],
    ) -> Result<Option<Self>, Fault> {
        let Some(address) = dynamic.symbols else {
            return Ok(None);
        };
        let inside = segments.at(address, "symbol table")?;
        let count = if let Some(table) = tables.iter().find(|t| t.start == inside.start) {
            (table.end - table.start) / ENTRY
        } else if let Some(address) = dynamic.hash {
            let header: [u8; 8] = source::array(source, segments.at(address, "hash table")?.start)?;
            u64::from(u32_at(&header, 4))
        } else if let Some(address) = dynamic.gnu_hash {
            hashed(source, segments.at(address, "hash table")?)?
        } else {
            0
        };
        if count > MAX_SYMBOLS {
            return too_many("symbols", MAX_SYMBOLS, inside.start);
        }
        if count * ENTRY > source.size() - inside.start {
            return Fault::err(inside.start, Problem::Outside("symbol table"));
        }
        Ok(Some(Self {
            offset: inside.start,
            count,
            strings: dynamic.strings.clone(),
        }))
    }

    pub(super) fn visit(
        &self,
        source: &mut (impl Source + ?Sized),
        mut visit: impl FnMut(Symbol<'_>),
    ) -> Result<(), Fault> {
        let mut names = self.names(source)?;
        names.sort_unstable();
        // Versions of a symbol share its name, and so may a million symbols.
        names.dedup();
        // Real names share endings a few times at most; more would read the table over and over.
        let mut budget = 8 * (self.strings.end - self.strings.start);
        let mut strings = Strings::new(source, self.strings.clone());
        for (offset, linkage) in names {
            let name = strings.get(u64::from(offset))?;
            let Some(left) = budget.checked_sub(name.len() as u64) else {
                return Fault::err(self.strings.start, Problem::Cyclic("dynamic string table"));
            };
            budget = left;
            visit(Symbol { name, linkage });
        }
        Ok(())
    }

    /// Returns the name offsets of the symbols that link to other objects.
    fn names(&self, source: &mut (impl Source + ?Sized)) -> Result<Vec<(u32, Linkage)>, Fault> {
        let mut table = Forward::new(source, self.offset, self.count * ENTRY)?;
        let mut names = Vec::new();
        for _ in 0..self.count {
            let bytes: [u8; 24] = table.array()?;
            let symbol: &Sym64<LE> = structure(&bytes);
            let linkage = match (symbol.st_bind(), symbol.st_shndx.get(LE)) {
                (elf::STB_LOCAL, _) => continue,
                (elf::STB_WEAK, elf::SHN_UNDEF) => Linkage::WeakUndefined,
                (_, elf::SHN_UNDEF) => Linkage::Undefined,
                _ => match symbol.st_visibility() {
                    elf::STV_DEFAULT | elf::STV_PROTECTED => Linkage::Exported,
                    _ => continue,
                },
            };
            let name = symbol.st_name.get(LE);
            if name != 0 {
                names.push((name, linkage));
            }
        }
        Ok(names)
    }
}

/// Returns the number of symbols in a GNU hash table: one more than the last symbol of its longest
/// chain.
fn hashed(source: &mut (impl Source + ?Sized), range: Range<u64>) -> Result<u64, Fault> {
    let mut table = Forward::new(source, range.start, range.end - range.start)?;
    let header: [u8; 16] = table.array()?;
    let [buckets, first, filters] = [0, 4, 8].map(|at| u64::from(u32_at(&header, at)));
    if buckets > MAX_SYMBOLS {
        return too_many("symbols", MAX_SYMBOLS, range.start);
    }
    let skip = 16 + filters * 8;
    if skip > range.end - range.start {
        return Fault::err(range.start, Problem::Outside("hash table"));
    }
    let mut table = Forward::new(source, range.start + skip, range.end - range.start - skip)?;
    let mut last = 0;
    for _ in 0..buckets {
        last = last.max(u64::from(u32::from_le_bytes(table.array()?)));
    }
    let Some(chain) = last.checked_sub(first).filter(|_| last > 0) else {
        return Ok(first);
    };
    let chains = table.position();
    if chain * 4 >= table.left() {
        return Fault::err(chains, Problem::Outside("hash table"));
    }
    let mut table = Forward::new(source, chains + chain * 4, range.end - chains - chain * 4)?;
    loop {
        last += 1;
        if u32::from_le_bytes(table.array()?) & 1 == 1 || last > MAX_SYMBOLS {
            return Ok(last);
        }
    }
}
