//! Versions of symbols that an object needs from others, and the minimum versions that follow.

use std::fmt;
use std::ops::Range;

use object::elf::{self, Verdaux, Verdef, Vernaux, Verneed};
use object::endian::LittleEndian as LE;
use object::pod::Pod;
use serde::{Serialize, Serializer};

use super::error::{Fault, Problem};
use super::header::structure;
use crate::source::{self, Source};

const TABLE: &str = "table of needed versions";
const DEFINED: &str = "table of defined versions";
/// Limit on a version table, in bytes. Real tables are below 10 KiB.
const MAX_TABLE: u64 = 1 << 20;

/// Version that objects with packed relocations need. glibc defines it from 2.36 on (its NEWS).
const PACKED: &str = "GLIBC_ABI_DT_RELR";

/// A version that `file` has to define.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VersionNeed {
    /// SONAME of the object that must define the version, such as `libc.so.6`.
    pub file: String,
    /// Name of the version, such as `GLIBC_2.34`.
    pub version: String,
    /// Whether the loader tolerates its absence. A weak need does not count for [`Floors`].
    pub weak: bool,
}

/// The numbers of a symbol version, as in `GLIBC_2.34` and `GLIBCXX_3.4.29`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(Vec<u32>);

impl Version {
    /// Parses the numbers of a version. `None` for a version without a number, such as the one of
    /// `GLIBC_PRIVATE`.
    pub fn parse(text: &str) -> Option<Self> {
        let part = |p: &str| {
            let digits = p.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| p.parse().ok()).flatten()
        };
        text.split('.').map(part).collect::<Option<_>>().map(Self)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.0.iter().enumerate() {
            let dot = if i == 0 { "" } else { "." };
            write!(f, "{dot}{part}")?;
        }
        Ok(())
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// Returns the newest defined version with a prefix, such as 2.36 for glibc's `GLIBC_`.
pub fn newest(defined: &[String], prefix: &str) -> Option<Version> {
    defined
        .iter()
        .filter_map(|name| Version::parse(name.strip_prefix(prefix)?))
        .max()
}

/// The newest versions that an object needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Floors {
    /// Newest version of `GLIBC_`.
    pub glibc: Option<Version>,
    /// Newest version of `GLIBCXX_`, in libstdc++.
    pub glibcxx: Option<Version>,
    /// Newest version of `CXXABI_`, in libstdc++.
    pub cxxabi: Option<Version>,
}

impl Floors {
    pub(super) fn of(needs: &[VersionNeed]) -> Self {
        let newest = |prefix: &str| {
            needs
                .iter()
                .filter(|n| !n.weak)
                .filter_map(|n| Version::parse(n.version.strip_prefix(prefix)?))
                .max()
        };
        let packed = needs.iter().any(|n| !n.weak && n.version == PACKED);
        Self {
            glibc: newest("GLIBC_").max(packed.then(|| Version(vec![2, 36]))),
            glibcxx: newest("GLIBCXX_"),
            cxxabi: newest("CXXABI_"),
        }
    }
}

/// A needed version whose names are offsets of the string table.
pub(super) struct Need {
    pub file: u64,
    pub version: u64,
    pub weak: bool,
}

/// Returns the needs of a table that begins at the start of `range` and has `count` files.
pub(super) fn needs(
    source: &mut (impl Source + ?Sized),
    range: Range<u64>,
    count: u64,
) -> Result<Vec<Need>, Fault> {
    let table = source::bytes(
        source,
        range.start,
        (range.end - range.start).min(MAX_TABLE),
    )?;
    // Each entry has 16 bytes of its own unless the table overlaps itself.
    let mut budget = table.len() / 16;
    let mut needs = Vec::new();
    let mut file_at = 0;
    for _ in 0..count {
        let file: Verneed<LE> = *entry::<_, 16>(&table, file_at, range.start, TABLE, &mut budget)?;
        let mut at = file_at.saturating_add(file.vn_aux.get(LE) as usize);
        for _ in 0..file.vn_cnt.get(LE) {
            let need: Vernaux<LE> = *entry::<_, 16>(&table, at, range.start, TABLE, &mut budget)?;
            needs.push(Need {
                file: u64::from(file.vn_file.get(LE)),
                version: u64::from(need.vna_name.get(LE)),
                weak: need.vna_flags.get(LE) & elf::VER_FLG_WEAK != 0,
            });
            match need.vna_next.get(LE) {
                0 => break,
                next => at = at.saturating_add(next as usize),
            }
        }
        match file.vn_next.get(LE) {
            0 => break,
            next => file_at = file_at.saturating_add(next as usize),
        }
    }
    Ok(needs)
}

/// Returns the offsets of the version names that a table defines, except for the object's own name. The
/// table begins at the start of `range` and has `count` versions.
pub(super) fn definitions(
    source: &mut (impl Source + ?Sized),
    range: Range<u64>,
    count: u64,
) -> Result<Vec<u64>, Fault> {
    let len = (range.end - range.start).min(MAX_TABLE);
    let table = source::bytes(source, range.start, len)?;
    let mut budget = table.len() / 8;
    let mut names = Vec::new();
    let mut at = 0;
    for _ in 0..count {
        let version: Verdef<LE> = *entry::<_, 20>(&table, at, range.start, DEFINED, &mut budget)?;
        let name_at = at.saturating_add(version.vd_aux.get(LE) as usize);
        if version.vd_flags.get(LE) & elf::VER_FLG_BASE == 0 && version.vd_cnt.get(LE) > 0 {
            let name: Verdaux<LE> =
                *entry::<_, 8>(&table, name_at, range.start, DEFINED, &mut budget)?;
            names.push(u64::from(name.vda_name.get(LE)));
        }
        match version.vd_next.get(LE) {
            0 => break,
            next => at = at.saturating_add(next as usize),
        }
    }
    Ok(names)
}

/// Returns the entry of `N` bytes at `at`. Each entry takes one from `budget`, so a chain must end.
fn entry<'a, T: Pod, const N: usize>(
    table: &'a [u8],
    at: usize,
    start: u64,
    name: &'static str,
    budget: &mut usize,
) -> Result<&'a T, Fault> {
    let offset = start.saturating_add(at as u64);
    let Some(bytes) = table.get(at..).and_then(|rest| rest.first_chunk::<N>()) else {
        return Fault::err(offset, Problem::Outside(name));
    };
    if *budget == 0 {
        return Fault::err(offset, Problem::Cyclic(name));
    }
    *budget -= 1;
    Ok(structure(bytes))
}
