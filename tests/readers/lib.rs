//! Everything that the readers of foreign bytes can be asked about some bytes, and what has to
//! hold of any answer. Tests and the fuzz targets share it.

mod bytecode;
mod debian;
mod documents;
mod foreign;
mod images;
mod imports;
mod inflated;
mod layers;
mod names;
mod signatures;
mod tars;
mod variants;
mod web;
mod wheels;

use stackforge_binary::elf::{self, Object};
use stackforge_binary::fatbin::{self, Edit, Entry, Scan};
use stackforge_binary::source::{Source, Sparse, array, bytes};
use stackforge_binary::zip::{Archive, Passing};
use std::io::Read as _;

/// A reader by the name of its corpus.
pub struct Target {
    pub name: &'static str,
    pub read: fn(&[u8]),
    /// Bytes that decoders of its formats hold whatever the input's size.
    pub buffers: usize,
}

pub const TARGETS: [Target; 28] = [
    target("cdi", documents::cdi),
    target("control", debian::control),
    // xz and zstd say themselves how large a window they want.
    Target {
        buffers: 96 << 20,
        ..target("deb", debian::deb)
    },
    target("elf", elf),
    target("fatbin", fatbin),
    // The catalog, and expressions.
    Target {
        buffers: 64 << 20,
        ..target("foreign", foreign::foreign)
    },
    target("headers", web::headers),
    // Buffers of blobs on their way, and of their verification.
    Target {
        buffers: 4 << 20,
        ..target("import", imports::import)
    },
    target("inflate", inflated::inflate),
    target("key", signatures::key),
    target("lock", documents::lock),
    target("manifest", images::manifest),
    target("names", names::names),
    target("packages", debian::packages),
    target("page", web::page),
    // Elements of sets are compared by their bytes.
    Target {
        buffers: 8 << 20,
        ..target("pyc", bytecode::pyc)
    },
    Target {
        buffers: 4 << 20,
        ..target("records", imports::records)
    },
    target("release", debian::release),
    target("signature", signatures::signature),
    target("signed", debian::signed),
    target("stack", documents::stack),
    target("tar", tars::tar),
    // What a table inflates to may be read.
    Target {
        buffers: 128 << 20,
        ..target("toc", layers::toc)
    },
    target("unpack", layers::unpacked),
    target("variants", variants::variants),
    target("wheel", wheels::wheel),
    target("zip", zip),
    Target {
        buffers: 16 << 20,
        ..target("zstd", layers::zstd)
    },
];

const fn target(name: &'static str, read: fn(&[u8])) -> Target {
    Target {
        name,
        read,
        buffers: 0,
    }
}

/// An empty directory for readers of files; a fuzzer names one in memory by `FUZZ_SCRATCH`.
fn scratch() -> tempfile::TempDir {
    let made = match std::env::var_os("FUZZ_SCRATCH") {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    };
    made.expect("a directory for files can be made")
}

/// Content of a member that is read, so that a bomb does not stop the fuzzer.
const MAX_CONTENT: u64 = 4 << 20;

fn elf(bytes: &[u8]) {
    assert!(elf::dynamic_table(bytes).is_none_or(|d| d.start <= d.end));
    object(&mut &bytes[..]);
    let tables = elf::unmapped("x", bytes).unwrap_or_default();
    let size = bytes.len() as u64;
    assert!(
        tables
            .iter()
            .all(|t| t.content.end <= size && t.kind.end <= size)
    );
    let ranges = tables.into_iter().flat_map(|t| [t.content, t.kind]);
    let edits: Vec<Edit> = ranges.map(Edit::zeros).collect();
    if let Some(stretches) = fatbin::edited(edits, size) {
        rewritten(bytes, &stretches);
    }
}

fn object(source: &mut impl Source) {
    let size = source.size();
    let Ok(object) = Object::read("x", source, &fatbin::SECTIONS) else {
        return;
    };
    let mut end = 0;
    for section in &object.sections {
        assert!(end <= section.range.start && section.range.end <= size);
        end = section.range.end;
    }
    let needs = object.versions.iter().map(|v| v.version.len());
    let defines = object.defines.iter().map(String::len);
    let kept: usize = needs.chain(defines).sum();
    assert!(kept as u64 <= size.max(64 << 10));
    elf::newest(&object.defines, "GLIBC_");
    object.floors();
    let mut names = 0;
    let _ = object.symbols(source, |symbol| {
        elf::mentions(symbol.name, &["c10", "at", "torch"]);
        names += symbol.name.len() as u64;
    });
    assert!(names <= 8 * size);
    entries(fatbin::entries(&object, source), size);
}

fn fatbin(bytes: &[u8]) {
    entries(fatbin::bare_entries("x", bytes), bytes.len() as u64);
    // Few pieces, so that a fuzzer is not slow, and of many lengths.
    let piece = 1 + bytes.len() / 48 + bytes.len() % 13;
    let kept = scanned(bytes, piece);
    assert!(kept.kept() <= bytes.len());
    let passed = fatbin::bare_entries("x", kept).map_while(Result::ok);
    let read = fatbin::bare_entries("x", bytes).map_while(Result::ok);
    assert!(passed.zip(read).all(|(passed, read)| passed == read));
    without(bytes);
}

/// Some entries less are those entries less, and nothing else.
fn without(bytes: &[u8]) {
    let all: Result<Vec<Entry>, _> = fatbin::bare_entries("x", bytes).collect();
    let Ok(all) = all else { return };
    let stays: Vec<bool> = all.iter().map(|e| (e.offset >> 3) % 3 != 0).collect();
    let edits = fatbin::without(&all, &stays).unwrap_or_default();
    let Some(stretches) = fatbin::edited(edits, bytes.len() as u64) else {
        return;
    };
    let new = rewritten(bytes, &stretches);
    let left = fatbin::bare_entries("x", &new[..]).map(|entry| code(&new, &entry.unwrap()));
    let kept = all.iter().zip(&stays).filter(|(_, stays)| **stays);
    assert!(left.eq(kept.map(|(entry, _)| code(bytes, entry))));
}

/// An entry's bytes, and the container that they are in.
fn code<'a>(bytes: &'a [u8], entry: &Entry) -> (u64, &'a [u8]) {
    let range = entry.offset as usize..(entry.offset + entry.len) as usize;
    (entry.container, &bytes[range])
}

fn rewritten(old: &[u8], stretches: &[fatbin::Segment]) -> Vec<u8> {
    let mut new = std::io::Cursor::new(vec![0; old.len()]);
    fatbin::rewrite(stretches, &mut &old[..], &mut new).unwrap();
    let new = new.into_inner();
    assert_eq!(new.len(), old.len());
    new
}

/// What a scan keeps of bytes that pass in pieces.
fn scanned(bytes: &[u8], piece: usize) -> Sparse {
    let mut kept = Sparse::new(bytes.len() as u64);
    let mut scan = Scan::default();
    for piece in bytes.chunks(piece) {
        scan.pass(piece, &mut kept);
    }
    kept
}

fn entries<E>(entries: impl Iterator<Item = Result<Entry, E>>, size: u64) {
    let mut end = 0;
    for entry in entries.map_while(Result::ok) {
        assert!(end <= entry.offset, "entries do not overlap");
        end = entry.offset + entry.stored;
        assert!(end <= size);
    }
}

fn zip(archive: &[u8]) {
    nested(&mut &archive[..], 1);
    passing(archive);
}

/// The members as they pass: each gives what its header says or an error, and all of them no more
/// than their bytes can hold.
fn passing(archive: &[u8]) {
    let mut members = Passing::new("x", archive);
    let mut budget = MAX_CONTENT;
    while let Ok(Some(mut part)) = members.part() {
        let size = part.size;
        let most = size.saturating_add(1).min(budget);
        let read = std::io::copy(&mut part.by_ref().take(most), &mut std::io::sink());
        match read {
            Ok(read) if read < most => assert_eq!(read, size, "the end is told at the end"),
            Ok(read) => budget -= read.min(budget),
            Err(_) => {}
        }
        if budget == 0 {
            return;
        }
    }
}

fn nested(source: &mut dyn Source, depth: u32) {
    let size = source.size();
    let Ok(archive) = Archive::read("x", source) else {
        return;
    };
    let mut ranges = Vec::new();
    let mut budget = MAX_CONTENT;
    for member in &archive.members {
        let Ok(range) = archive.locate(member, source) else {
            continue;
        };
        assert!(range.end <= size);
        ranges.push(range);
        let Ok(mut content) = archive.open(member, &mut *source) else {
            continue;
        };
        if content.size() > budget {
            continue;
        }
        budget -= content.size();
        let Ok(whole) = bytes(&mut content, 0, member.size) else {
            continue;
        };
        for at in [whole.len() / 2, 0, whole.len().saturating_sub(1)] {
            if let Ok(byte) = array::<1>(&mut content, at as u64) {
                assert_eq!(byte[0], whole[at], "a second read finds the same");
            }
        }
        object(&mut content);
        if depth > 0 {
            nested(&mut content, depth - 1);
        }
    }
    ranges.sort_by_key(|r| r.start);
    assert!(ranges.windows(2).all(|p| p[0].end <= p[1].start));
}
