//! `/etc/ld.so.cache` and the links that ldconfig(8) makes.
//!
//! The input is the shared objects that were written, with their SONAMEs, and the cache of the system
//! below, whose entries stay. The output is a cache in the format `glibc-ld.so.cache1.1` (glibc's
//! `elf/cache.c`), byte for byte as ldconfig writes it for 64-bit objects of one architecture.

use std::collections::BTreeMap;

use super::super::tree::Node;
use super::FinishError;
use super::system::System;

const CACHE: &str = "/etc/ld.so.cache";
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER: usize = 48;
const ENTRY: usize = 24;
const LITTLE_ENDIAN: u8 = 2;
const EXTENSION_MAGIC: u32 = 0xeaa4_2174;
/// Tag of the extension that names the generator.
const GENERATOR: u32 = 0;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    flags: u32,
    soname: String,
    path: String,
    hwcap: u64,
}

/// Shared objects by real path: the machine's flags in the cache, and the SONAME.
pub(super) type Libraries = BTreeMap<String, (u32, Option<String>)>;

/// Returns what the cache needs to know of an object. `None` if a loader could not read it.
pub(super) fn identify(path: &str, mut content: &[u8]) -> Option<(u32, Option<String>)> {
    if !content.starts_with(&stackforge_binary::elf::MAGIC) {
        return None;
    }
    let object = stackforge_binary::elf::Object::read(path, &mut content, &[]).ok()?;
    let flags = flags(object.machine)?;
    (object.kind == stackforge_binary::elf::ObjectType::Shared).then_some((flags, object.soname))
}

/// Returns glibc's flags for an ELF machine's 64-bit libraries (`sysdeps/generic/ldconfig.h`).
fn flags(machine: stackforge_binary::elf::Machine) -> Option<u32> {
    match machine {
        stackforge_binary::elf::Machine::X86_64 => Some(0x0303),
        stackforge_binary::elf::Machine::Aarch64 => Some(0x0a03),
        _ => None,
    }
}

/// Whether ldconfig considers a file of this name.
pub(super) fn is_library(name: &str) -> bool {
    (name.starts_with("lib") || name.starts_with("ld-"))
        && name.contains(".so")
        && !name.ends_with("-gdb.py")
        && !name.ends_with(".dpkg-new")
        && !name.ends_with(".dpkg-tmp")
}

/// Writes the cache and the links. `generator` is the name that ldconfig writes of itself. If it is
/// `None`, the name in the existing cache is kept.
pub(super) fn update(
    system: &mut System<'_>,
    libraries: &Libraries,
    triplet: Option<&str>,
    generator: Option<String>,
) -> Result<(), FinishError> {
    let (mut entries, mut named) = match system.read(CACHE)? {
        Some(bytes) => read(&bytes).ok_or(FinishError::Damaged {
            path: CACHE.to_owned(),
        })?,
        None => (Vec::new(), None),
    };
    named = generator.or(named);
    let mut directories = configured(system, "/etc/ld.so.conf", 0)?;
    if let Some(triplet) = triplet {
        directories.extend([format!("/lib/{triplet}"), format!("/usr/lib/{triplet}")]);
    }
    directories.extend(["/lib".to_owned(), "/usr/lib".to_owned()]);
    let mut seen = Vec::new();
    for directory in directories {
        let Some(real) = system.tree.follow(&directory) else {
            continue;
        };
        if seen.contains(&real) {
            continue;
        }
        for (soname, (flags, file)) in in_directory(system, &real, libraries)? {
            let path = format!("{directory}/{soname}");
            if system.tree.node(&format!("{real}/{soname}")).is_none() {
                system.link(&path, &file)?;
            }
            entries.retain(|entry| entry.path != path);
            entries.push(Entry {
                flags,
                soname,
                path,
                hwcap: 0,
            });
        }
        seen.push(real);
    }
    entries.sort_by(|a, b| {
        compare(b.soname.as_bytes(), a.soname.as_bytes()).then(b.flags.cmp(&a.flags))
    });
    system.file(CACHE, 0o644, 0, write(&entries, named.as_deref()))
}

/// Returns the directories of ld.so.conf(5) in order.
fn configured(system: &System<'_>, file: &str, depth: u32) -> Result<Vec<String>, FinishError> {
    let mut directories = Vec::new();
    for line in system.text(file)?.unwrap_or_default().lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(pattern) = line.strip_prefix("include").map(str::trim) {
            let Some((folder, suffix)) = pattern.split_once("/*").filter(|_| depth < 3) else {
                continue;
            };
            for name in system.names(folder) {
                if name.ends_with(suffix) {
                    directories.extend(configured(system, &format!("{folder}/{name}"), depth + 1)?);
                }
            }
        } else if line.starts_with('/') {
            directories.push(line.trim_end_matches('/').to_owned());
        }
    }
    Ok(directories)
}

/// Returns the libraries of one directory: by SONAME, the flags and the file to link to. Among several
/// files, a regular file wins over a link, then the newer name.
fn in_directory(
    system: &System<'_>,
    directory: &str,
    libraries: &Libraries,
) -> Result<BTreeMap<String, (u32, String)>, FinishError> {
    let laid = system.tree.names(directory);
    let mut best: BTreeMap<String, (u32, String, bool)> = BTreeMap::new();
    for name in system.names(directory) {
        if !is_library(&name) {
            continue;
        }
        let path = format!("{directory}/{name}");
        let Some(real) = system.tree.follow(&path) else {
            continue;
        };
        let (flags, soname) = match libraries.get(&real) {
            Some(library) => library.clone(),
            // This is a new name for a library of the system below.
            None if laid.contains(&name.as_str()) => {
                match system
                    .read(&real)?
                    .and_then(|content| identify(&real, &content))
                {
                    Some(library) => library,
                    None => continue,
                }
            }
            None => continue,
        };
        let soname = soname.unwrap_or_else(|| name.clone());
        // A link for the linker, `libx.so`, is listed under its own name.
        let is_link = matches!(system.tree.node(&path), Some(Node::Symlink(_)))
            && name.ends_with(".so")
            && soname.starts_with(&name);
        let soname = if is_link { name.clone() } else { soname };
        match best.get(&soname) {
            Some((_, existing, existing_is_link))
                if !((!is_link && *existing_is_link)
                    || (is_link == *existing_is_link
                        && compare(existing.as_bytes(), name.as_bytes()).is_lt())) => {}
            _ => {
                best.insert(soname, (flags, name, is_link));
            }
        }
    }
    Ok(best
        .into_iter()
        .map(|(soname, (flags, name, _))| (soname, (flags, name)))
        .collect())
}

/// Compares like glibc's `_dl_cache_libcmp`: runs of digits by their value, and after everything else.
fn compare(mut a: &[u8], mut b: &[u8]) -> std::cmp::Ordering {
    fn number(text: &mut &[u8]) -> u64 {
        let mut value = 0u64;
        while let Some((digit, rest)) = text.split_first().filter(|(d, _)| d.is_ascii_digit()) {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            *text = rest;
        }
        value
    }
    while let Some(first) = a.first() {
        let second = b.first().copied().unwrap_or(0);
        match (first.is_ascii_digit(), second.is_ascii_digit()) {
            (true, true) => {
                let order = number(&mut a).cmp(&number(&mut b));
                if order.is_ne() {
                    return order;
                }
            }
            (true, false) => return std::cmp::Ordering::Greater,
            (false, true) => return std::cmp::Ordering::Less,
            (false, false) if *first != second => return first.cmp(&second),
            _ => (a, b) = (&a[1..], &b[1..]),
        }
    }
    0.cmp(&b.first().copied().unwrap_or(0))
}

fn write(entries: &[Entry], generator: Option<&str>) -> Vec<u8> {
    let (strings, offsets) = strings(entries);
    let base = HEADER + ENTRY * entries.len();
    let at = |text: &str| (base + offsets.get(text).copied().unwrap_or_default()) as u32;
    let extension = (base + strings.len()).next_multiple_of(4);
    let mut out = MAGIC.to_vec();
    out.extend((entries.len() as u32).to_le_bytes());
    out.extend((strings.len() as u32).to_le_bytes());
    out.extend([LITTLE_ENDIAN, 0, 0, 0]);
    let offset = generator.map_or(0, |_| extension as u32);
    out.extend(offset.to_le_bytes());
    out.resize(HEADER, 0);
    for entry in entries {
        out.extend(entry.flags.to_le_bytes());
        out.extend(at(&entry.soname).to_le_bytes());
        out.extend(at(&entry.path).to_le_bytes());
        out.extend(0u32.to_le_bytes());
        out.extend(entry.hwcap.to_le_bytes());
    }
    out.extend(strings);
    if let Some(generator) = generator {
        out.resize(extension, 0);
        let text = extension + 24;
        for word in [
            EXTENSION_MAGIC,
            1,
            GENERATOR,
            0,
            text as u32,
            generator.len() as u32,
        ] {
            out.extend(word.to_le_bytes());
        }
        out.extend(generator.as_bytes());
    }
    out
}

/// Returns the strings, each with a final zero. A string that is the end of another is a part of it:
/// they are sorted from their ends, the longer first (glibc's `elf/stringtable.c`).
fn strings(entries: &[Entry]) -> (Vec<u8>, BTreeMap<String, usize>) {
    let mut all: Vec<&str> = entries
        .iter()
        .flat_map(|entry| [entry.soname.as_str(), entry.path.as_str()])
        .collect();
    all.sort_unstable_by(|a, b| b.bytes().rev().cmp(a.bytes().rev()));
    all.dedup();
    let (mut table, mut offsets) = (Vec::new(), BTreeMap::new());
    let mut last: Option<(&str, usize)> = None;
    for text in all {
        match last {
            Some((longer, at)) if longer.ends_with(text) => {
                offsets.insert(text.to_owned(), at + longer.len() - text.len());
            }
            _ => {
                offsets.insert(text.to_owned(), table.len());
                last = Some((text, table.len()));
                table.extend(text.as_bytes());
                table.push(0);
            }
        }
    }
    (table, offsets)
}

fn read(bytes: &[u8]) -> Option<(Vec<Entry>, Option<String>)> {
    let word = |at: usize| {
        let four = bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(four.try_into().ok()?))
    };
    let text = |at: u32| {
        let rest = bytes.get(at as usize..)?;
        let end = rest.iter().position(|b| *b == 0)?;
        std::str::from_utf8(&rest[..end]).ok().map(str::to_owned)
    };
    if !bytes.starts_with(MAGIC) {
        return None;
    }
    let mut entries = Vec::new();
    for index in 0..word(20)? as usize {
        let at = index.checked_mul(ENTRY)?.checked_add(HEADER)?;
        entries.push(Entry {
            flags: word(at)?,
            soname: text(word(at + 4)?)?,
            path: text(word(at + 8)?)?,
            hwcap: u64::from(word(at + 16)?) | u64::from(word(at + 20)?) << 32,
        });
    }
    let extension = word(32)? as usize;
    let generator = (extension != 0)
        .then(|| {
            let count = word(extension + 4)?.min(16) as usize;
            (0..count).find_map(|i| {
                let at = extension + 8 + 16 * i;
                let (start, length) = (word(at + 8)? as usize, word(at + 12)? as usize);
                let text = bytes.get(start..start.checked_add(length)?)?;
                (word(at)? == GENERATOR).then(|| String::from_utf8_lossy(text).into_owned())
            })
        })
        .flatten();
    Some((entries, generator))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn orders_as_the_loader_does() {
        use std::cmp::Ordering::{Equal, Greater, Less};
        for (a, b, order) in [
            ("libx.so.9", "libx.so.10", Less),
            ("libx.so.1", "libx.so", Greater),
            ("liba1", "liba.so", Greater),
            ("liba", "liba", Equal),
        ] {
            assert_eq!(compare(a.as_bytes(), b.as_bytes()), order, "{a} {b}");
        }
    }

    proptest! {
        #[test]
        fn reads_what_it_writes(names in proptest::collection::btree_set("lib[a-c]{1,3}\\.so\\.[0-9]", 0..8)) {
            let entries: Vec<Entry> = names.iter().map(|soname| Entry {
                flags: 0x303, soname: soname.clone(), path: format!("/lib/{soname}"), hwcap: 0,
            }).collect();
            let bytes = write(&entries, Some("ldconfig"));
            prop_assert_eq!(read(&bytes), Some((entries, Some("ldconfig".to_owned()))));
        }

        #[test]
        fn never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
            bytes.splice(0..0, MAGIC.iter().copied());
            let _ = read(&bytes);
        }
    }
}
