//! The dynamic table: which objects the loader must load, from where, and in which versions.

use std::collections::BTreeMap;
use std::ops::Range;

use object::elf::{self, Dyn64};
use object::endian::LittleEndian as LE;
use serde::Serialize;

use super::error::{Fault, Problem, too_many};
use super::header::{Segments, structure};
use super::strings;
use super::version::{self, VersionNeed};
use crate::source::{Forward, Source};

/// Limit on the NEEDED entries of an object. The largest programs have a few hundred.
const MAX_NEEDED: usize = 4 << 10;
/// Limit on the directories of an RPATH or RUNPATH. Real ones have about ten.
const MAX_DIRECTORIES: usize = 1 << 10;
const NODEFLIB: u64 = elf::DF_1_NODEFLIB as u64;

/// Directories of an RPATH or RUNPATH, as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SearchPath(Vec<String>);

impl SearchPath {
    /// Parses the path at offset `at` of the string table.
    fn parse(text: &str, at: u64) -> Result<Self, Fault> {
        let mut directories = text.split(':').map(str::to_owned);
        let path = Self(directories.by_ref().take(MAX_DIRECTORIES).collect());
        match directories.next() {
            None => Ok(path),
            Some(_) => too_many("directories in a path", MAX_DIRECTORIES as u64, at),
        }
    }

    /// Returns the directories as written, with `$ORIGIN` in them, in the order of the search.
    pub fn directories(&self) -> &[String] {
        &self.0
    }

    /// Returns the directories with `$ORIGIN` replaced by the object's directory.
    pub fn resolved(&self, origin: &str) -> impl Iterator<Item = String> {
        self.0
            .iter()
            .map(move |d| d.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))
    }
}

#[derive(Default)]
pub(super) struct Dynamic {
    pub soname: Option<String>,
    pub needed: Vec<String>,
    pub rpath: Option<SearchPath>,
    pub runpath: Option<SearchPath>,
    pub versions: Vec<VersionNeed>,
    pub defines: Vec<String>,
    /// Whether DF_1_NODEFLIB is set.
    pub no_default_directories: bool,
    /// Addresses of the tables.
    pub symbols: Option<u64>,
    pub hash: Option<u64>,
    pub gnu_hash: Option<u64>,
    pub strings: Range<u64>,
}

/// Values by tag. If a tag that may occur once is repeated, the last value counts, as for the loader.
#[derive(Default)]
struct Tags {
    once: BTreeMap<i64, u64>,
    needed: Vec<u64>,
}

impl Tags {
    fn get(&self, tag: i64) -> Option<u64> {
        self.once.get(&tag).copied()
    }
}

pub(super) fn read(
    source: &mut (impl Source + ?Sized),
    segments: &Segments,
) -> Result<Dynamic, Fault> {
    let Some(range) = segments.dynamic.clone() else {
        return Ok(Dynamic::default());
    };
    let tags = tags(source, range)?;
    let strings = strings(&tags, segments)?;
    let needs = match tags.get(elf::DT_VERNEED) {
        None => Vec::new(),
        Some(address) => {
            let range = segments.at(address, "table of needed versions")?;
            let count = tags.get(elf::DT_VERNEEDNUM).unwrap_or(0);
            version::needs(source, range, count)?
        }
    };

    let defined = match tags.get(elf::DT_VERDEF) {
        None => Vec::new(),
        Some(address) => {
            let range = segments.at(address, "table of defined versions")?;
            let count = tags.get(elf::DT_VERDEFNUM).unwrap_or(0);
            version::definitions(source, range, count)?
        }
    };

    let single = [elf::DT_SONAME, elf::DT_RPATH, elf::DT_RUNPATH].map(|tag| tags.get(tag));
    let mut offsets = tags.needed.clone();
    offsets.extend(single.iter().flatten());
    offsets.extend(needs.iter().flat_map(|n| [n.file, n.version]));
    offsets.extend(&defined);
    let mut names = strings::names_at(source, strings.clone(), &offsets)?.into_iter();
    let needed = names.by_ref().take(tags.needed.len()).collect();
    let [soname, rpath, runpath] = single.map(|tag| tag.and_then(|_| names.next()));
    let versions = needs.iter().map_while(|need| {
        Some(VersionNeed {
            file: names.next()?,
            version: names.next()?,
            weak: need.weak,
        })
    });
    let versions = versions.collect();
    let path = |text: &str| SearchPath::parse(text, strings.start);
    Ok(Dynamic {
        soname,
        needed,
        rpath: rpath.as_deref().map(path).transpose()?,
        runpath: runpath.as_deref().map(path).transpose()?,
        versions,
        defines: names.collect(),
        no_default_directories: tags.get(elf::DT_FLAGS_1).unwrap_or(0) & NODEFLIB != 0,
        symbols: tags.get(elf::DT_SYMTAB),
        hash: tags.get(elf::DT_HASH),
        gnu_hash: tags.get(elf::DT_GNU_HASH),
        strings,
    })
}

fn tags(source: &mut (impl Source + ?Sized), range: Range<u64>) -> Result<Tags, Fault> {
    let mut table = Forward::new(source, range.start, range.end - range.start)?;
    let mut tags = Tags::default();
    while table.left() >= 16 {
        let bytes: [u8; 16] = table.array()?;
        let entry: &Dyn64<LE> = structure(&bytes);
        let value = entry.d_val.get(LE);
        match entry.d_tag.get(LE) {
            elf::DT_NULL => break,
            elf::DT_NEEDED if tags.needed.len() == MAX_NEEDED => {
                return too_many("needed libraries", MAX_NEEDED as u64, range.start);
            }
            elf::DT_NEEDED => tags.needed.push(value),
            tag @ (elf::DT_SONAME
            | elf::DT_RPATH
            | elf::DT_RUNPATH
            | elf::DT_STRTAB
            | elf::DT_STRSZ
            | elf::DT_SYMTAB
            | elf::DT_HASH
            | elf::DT_FLAGS_1
            | elf::DT_GNU_HASH
            | elf::DT_VERNEED
            | elf::DT_VERNEEDNUM
            | elf::DT_VERDEF
            | elf::DT_VERDEFNUM) => {
                tags.once.insert(tag, value);
            }
            _ => {}
        }
    }
    Ok(tags)
}

fn strings(tags: &Tags, segments: &Segments) -> Result<Range<u64>, Fault> {
    let Some(address) = tags.get(elf::DT_STRTAB) else {
        return Fault::err(0, Problem::Missing("dynamic string table"));
    };
    let inside = segments.at(address, "dynamic string table")?;
    let len = tags.get(elf::DT_STRSZ).unwrap_or(0);
    if len > inside.end - inside.start {
        return Fault::err(inside.start, Problem::Outside("dynamic string table"));
    }
    Ok(inside.start..inside.start + len)
}
