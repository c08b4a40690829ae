//! Versions of symbols that an object needs from others, and the floors they add up to.

use std::fmt;
use std::ops::Range;

use object::elf::{self, Verdaux, Verdef, Vernaux, Verneed};
use object::endian::LittleEndian as LE;
use object::pod::Pod;
use serde::{Serialize, Serializer};

use super::error::{Fault, Problem, fault};
use super::header::structure;
use crate::source::{self, Source};

const TABLE: &str = "table of needed versions";
const DEFINED: &str = "table of defined versions";
/// Real tables are below 10 KiB.
const MAX_TABLE: u64 = 1 << 20;

/// Of objects with packed relocations; glibc defines it from 2.36 on (its NEWS).
const PACKED: &str = "GLIBC_ABI_DT_RELR";

/// A version that `file` has to define.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VersionNeed {
    /// SONAME of the object that has to define it: `libc.so.6`.
    pub file: String,
    /// The version's name: `GLIBC_2.34`.
    pub version: String,
    /// The loader does without it, so it counts for no floor.
    pub weak: bool,
}

/// Numbers of a symbol version, as in `GLIBC_2.34` and `GLIBCXX_3.4.29`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(Vec<u32>);

impl Version {
    /// `None` for a version without a number, such as `GLIBC_PRIVATE`.
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

/// The newest version of that prefix among names of defined ones: of glibc's `GLIBC_`, 2.36.
pub fn newest(defined: &[String], prefix: &str) -> Option<Version> {
    defined
        .iter()
        .filter_map(|name| Version::parse(name.strip_prefix(prefix)?))
        .max()
}

/// The newest versions that an object needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Floors {
    /// Of `GLIBC_`.
    pub glibc: Option<Version>,
    /// Of `GLIBCXX_`, in libstdc++.
    pub glibcxx: Option<Version>,
    /// Of `CXXABI_`, in libstdc++.
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

/// A need whose names are offsets of the string table.
pub(super) struct Need {
    pub file: u64,
    pub version: u64,
    pub weak: bool,
}

/// Needs of the table that starts where `range` does and has `count` files.
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

/// Offsets of the names that the table of `count` versions which starts where `range` does defines,
/// but for the object's own.
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

/// The entry of `N` bytes at `at`. Each takes one from `budget`, so that a chain ends.
fn entry<'a, T: Pod, const N: usize>(
    table: &'a [u8],
    at: usize,
    start: u64,
    name: &'static str,
    budget: &mut usize,
) -> Result<&'a T, Fault> {
    let offset = start.saturating_add(at as u64);
    let Some(bytes) = table.get(at..).and_then(|rest| rest.first_chunk::<N>()) else {
        return fault(offset, Problem::Outside(name));
    };
    if *budget == 0 {
        return fault(offset, Problem::Cyclic(name));
    }
    *budget -= 1;
    Ok(structure(bytes))
}
