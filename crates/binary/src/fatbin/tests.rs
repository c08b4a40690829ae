use proptest::prelude::*;

use super::*;
use crate::elf::Object;
use crate::samples::object::Build;
use crate::source::Sparse;

/// An entry of a fatbin: `len` bytes of code, all `7`.
struct Code {
    kind: u16,
    sm: u32,
    flags: u64,
    version: (u16, u16),
    header: usize,
    len: usize,
    compressed: u32,
    uncompressed: u64,
}

impl Code {
    fn sass(sm: u32) -> Self {
        Self {
            kind: 2,
            sm,
            flags: 0x11,
            version: (1, 8),
            header: 64,
            len: 32,
            compressed: 0,
            uncompressed: 0,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.kind.to_le_bytes());
        bytes.extend_from_slice(&0x0101u16.to_le_bytes());
        bytes.extend_from_slice(&(self.header as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.len as u64).to_le_bytes());
        bytes.extend_from_slice(&self.compressed.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.version.1.to_le_bytes());
        bytes.extend_from_slice(&self.version.0.to_le_bytes());
        bytes.extend_from_slice(&self.sm.to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&self.flags.to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&self.uncompressed.to_le_bytes());
        bytes.resize(self.header, 0);
        bytes.resize(self.header + self.len, 7);
        bytes
    }
}

fn container(codes: &[Code]) -> Vec<u8> {
    let body: Vec<u8> = codes.iter().flat_map(Code::bytes).collect();
    let mut bytes = b"\x50\xed\x55\xba\x01\x00\x10\x00".to_vec();
    bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

fn bare(bytes: &[u8]) -> Result<Vec<Entry>, FatbinError> {
    bare_entries("x.fatbin", bytes).collect()
}

fn problem(bytes: &[u8]) -> Problem {
    bare(bytes).unwrap_err().problem
}

fn sample() -> Vec<u8> {
    let mut bytes = container(&[
        Code::sass(75),
        Code {
            flags: 0x10_8011,
            header: 112,
            len: 40,
            compressed: 35,
            uncompressed: 900,
            ..Code::sass(90)
        },
    ]);
    bytes.resize(bytes.len() + 24, 0);
    bytes.extend(container(&[Code {
        kind: 1,
        flags: 0x20_2011,
        version: (9, 0),
        compressed: 32,
        uncompressed: 100,
        ..Code::sass(120)
    }]));
    bytes
}

#[test]
fn entries_in_the_order_of_the_file() {
    let build = Build {
        sections: vec![
            ("__nv_relfatbin", container(&[Code::sass(100)])),
            (".nv_fatbin", sample()),
        ],
        ..Build::default()
    };
    let bytes = build.bytes();
    let object = Object::read("x.so", &mut &bytes[..], &SECTIONS).unwrap();
    let found: Vec<Entry> = entries(&object, &bytes[..]).map(Result::unwrap).collect();
    let brief: Vec<_> = found
        .iter()
        .map(|e| (e.place, e.kind, e.sm.digits(), e.version, e.compression))
        .collect();
    let (linked, relocatable) = (Place::Linked, Place::Relocatable);
    assert_eq!(
        brief,
        [
            (relocatable, CodeKind::Sass, "100".into(), (1, 8), None),
            (linked, CodeKind::Sass, "75".into(), (1, 8), None),
            (
                linked,
                CodeKind::Sass,
                "90a".into(),
                (1, 8),
                Some(Compression::Zstd)
            ),
            (
                linked,
                CodeKind::Ptx,
                "120f".into(),
                (9, 0),
                Some(Compression::Lz4)
            ),
        ]
    );
    assert_eq!((found[2].stored, found[2].uncompressed), (35, 900));
    let sums = bytes_by_sm(&found);
    let family = sums[&"120f".parse().unwrap()];
    assert_eq!((family.sass, family.ptx), (0, 32));
    assert_eq!(sums[&"7.5".parse().unwrap()].sass, 32);
}

#[test]
fn kinds_that_no_driver_runs_keep_their_number() {
    let bytes = container(&[
        Code {
            kind: 8,
            ..Code::sass(90)
        },
        Code {
            kind: 64,
            ..Code::sass(90)
        },
    ]);
    let kinds: Vec<CodeKind> = bare(&bytes).unwrap().iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [CodeKind::Nvvm, CodeKind::Other(64)]);
}

/// The flags of cubins as ptxas 12.8.93 and 13.5.37 write them.
#[test]
fn cubins_name_their_sm() {
    let arch = [2, 2, 1, 0, 4, 11, 4, 0, 2, 9, 1, 0, 2, 9, 1, 0].to_vec();
    let plain = [2, 9, 0, 0].to_vec();
    for (abi_version, flags, compat, sm) in [
        (7, 0x4b_054b, None, "75"),
        (7, 0x5a_0d5a, None, "90a"),
        (8, 0x600_640a, Some(vec![2, 2, 1, 0]), "100a"),
        (8, 0x600_7802, None, "120"),
        (8, 0x600_5a04, Some(plain), "90"),
        (8, 0x600_6e02, Some(arch), "110a"),
    ] {
        let build = Build {
            machine: 190,
            abi_version,
            flags,
            sections: compat.map(|c| (".nv.compat", c)).into_iter().collect(),
            ..Build::default()
        };
        let bytes = build.bytes();
        let object = Object::read("x.cubin", &mut &bytes[..], &SECTIONS).unwrap();
        let found: Vec<Entry> = entries(&object, &bytes[..]).map(Result::unwrap).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].sm.digits().as_str(), found[0].place),
            (sm, Place::Bare)
        );
        assert_eq!(found[0].stored, bytes.len() as u64);
    }
}

#[test]
fn lengths_that_do_not_fit_are_named() {
    let good = sample();
    assert!(matches!(
        problem(&good[..good.len() - 1]),
        Problem::Outside("container")
    ));
    let mut entry = good.clone();
    entry[16 + 8] = 200;
    assert!(matches!(problem(&entry), Problem::Outside("entry")));
    let mut endless = good.clone();
    endless[16 + 8..16 + 16].fill(0xff);
    let error = bare(&endless).unwrap_err();
    assert_eq!(
        error.to_string(),
        "device code of `x.fatbin`, offset 0x10: the entry does not end where what holds it does, or before"
    );
    let short = container(&[Code {
        header: 64,
        compressed: 33,
        flags: 0x2011,
        ..Code::sass(90)
    }]);
    assert!(matches!(problem(&short), Problem::Compressed { .. }));
}

#[test]
fn headers_that_contradict_themselves_are_named() {
    let of = |code: Code| problem(&container(&[code]));
    let with = |flags| Code {
        flags,
        compressed: 8,
        ..Code::sass(90)
    };
    assert!(matches!(of(with(0xa011)), Problem::Flags(_)));
    assert!(matches!(of(with(0x30_2011)), Problem::Flags(_)));
    assert!(matches!(of(with(0x11)), Problem::Compressed { .. }));
    assert!(matches!(of(Code::sass(5)), Problem::Sm(5)));
    assert!(matches!(of(Code::sass(70_000)), Problem::Sm(_)));
    assert!(matches!(problem(b"\0\0\0no fatbin at all"), Problem::Magic));
    let mut version = sample();
    version[4] = 2;
    assert!(matches!(
        problem(&version),
        Problem::Container { version: 2, .. }
    ));
}

#[test]
fn nothing_follows_an_error() {
    let mut bytes = sample();
    bytes[16 + 2] = 9;
    let answers: Vec<bool> = bare_entries("x", &bytes[..]).map(|e| e.is_ok()).collect();
    assert_eq!(answers, [false]);
}

proptest! {
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = bare(&bytes);
    }

    /// The entries lie within the file and do not overlap.
    #[test]
    fn any_damage(edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = sample();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let found: Vec<Entry> = bare_entries("x", &bytes[..]).map_while(Result::ok).collect();
        prop_assert!(found.windows(2).all(|p| p[0].offset + 64 + p[0].stored <= p[1].offset));
        prop_assert!(found.iter().map(|e| e.stored).sum::<u64>() <= bytes.len() as u64);
    }
}

/// Scans the bytes in pieces of `len` and returns what was kept.
fn scanned(bytes: &[u8], len: usize) -> Sparse {
    let mut kept = Sparse::new(bytes.len() as u64);
    let mut scan = Scan::default();
    for piece in bytes.chunks(len) {
        scan.pass(piece, &mut kept);
    }
    kept
}

proptest! {
    #[test]
    fn a_scan_keeps_what_the_walk_reads(
        before in 0usize..70,
        padding in prop::collection::vec(0usize..33, 1..5),
        len in 1usize..300,
    ) {
        let mut section = Vec::new();
        for n in padding {
            section.extend(sample());
            section.resize(section.len() + 8 * n, 0);
        }
        let mut bytes = vec![3; before];
        bytes.extend_from_slice(&section);
        let kept = scanned(&bytes, len);
        let range = before as u64..bytes.len() as u64;
        let window = crate::source::Window::new(kept, range.start, range.end - range.start).unwrap();
        let entries: Result<Vec<Entry>, FatbinError> = bare_entries("x", window).collect();
        prop_assert_eq!(entries.unwrap(), bare(&section).unwrap());
    }

    #[test]
    fn any_bytes_are_scanned(bytes in prop::collection::vec(0u8..8, 0..600), len in 1usize..200) {
        let mut bytes = bytes;
        // Each seven becomes the start of a container; the rest are lengths and noise.
        while let Some(n) = bytes.iter().position(|b| *b == 7) {
            bytes.splice(n..n + 1, *b"\x50\xed\x55\xba\x01\x00\x10\x00");
        }
        prop_assert!(scanned(&bytes, len).kept() <= bytes.len());
    }
}

proptest! {
    /// The remaining code is read in the same way from a stream, however far apart it is now.
    #[test]
    fn an_object_without_some_entries_is_walked_and_scanned(
        stays in prop::collection::vec(any::<bool>(), 1..40),
        long in 0usize..3000,
        len in 1usize..5000,
    ) {
        let mut section = Vec::new();
        let mut of = stays.chunks(3).peekable();
        while let Some(own) = of.next() {
            let code = |n: usize| Code { len: 32 + n * 8 * long, ..Code::sass(75 + 5 * n as u32) };
            section.extend(container(&(0..own.len()).map(code).collect::<Vec<_>>()));
            if of.peek().is_some() {
                section.resize(section.len() + 16, 0);
            }
        }
        let all = bare(&section).unwrap();
        prop_assert_eq!(all.len(), stays.len());
        let edits = without(&all, &stays).unwrap();
        let Some(segments) = edited(edits, section.len() as u64) else {
            prop_assert!(stays.iter().all(|stays| *stays));
            return Ok(());
        };
        let mut new = std::io::Cursor::new(vec![0; section.len()]);
        rewrite(&segments, &mut &section[..], &mut new).unwrap();
        let new = new.into_inner();
        let left = bare(&new).unwrap();
        let brief = |e: &Entry| (e.container, e.sm, e.stored);
        let kept = all.iter().zip(&stays).filter(|(_, stays)| **stays);
        prop_assert_eq!(left.iter().map(brief).collect::<Vec<_>>(), kept.map(|(e, _)| brief(e)).collect::<Vec<_>>());
        let scanned: Result<Vec<Entry>, FatbinError> = bare_entries("x", scanned(&new, len)).collect();
        prop_assert_eq!(scanned.unwrap(), left);
    }
}
