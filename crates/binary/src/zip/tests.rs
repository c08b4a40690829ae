use proptest::prelude::*;

use super::*;
use crate::samples::archive::{Build, File};
use crate::source::bytes;

fn read(bytes: &[u8]) -> Result<Archive, ZipError> {
    Archive::read("x.whl", &mut &bytes[..])
}

fn content(bytes_of: &[u8], name: &str) -> Result<Vec<u8>, String> {
    let archive = read(bytes_of).map_err(|e| e.to_string())?;
    let member = archive.members.iter().find(|m| m.name == name).unwrap();
    let mut source = archive.open(member, bytes_of).map_err(|e| e.to_string())?;
    let size = source.size();
    bytes(&mut source, 0, size).map_err(|e| e.to_string())
}

fn problem(bytes: &[u8]) -> Problem {
    read(bytes).unwrap_err().problem
}

/// Returns the problem of the first member's local header.
fn local(bytes: &[u8]) -> Problem {
    let archive = read(bytes).unwrap();
    let answer = archive.locate(&archive.members[0], &mut &bytes[..]);
    answer.unwrap_err().problem
}

fn two() -> Build {
    Build::of(vec![
        File::new("a/b.txt", b"stored"),
        File::deflated("a/c.so", &[7; 5000]),
    ])
}

#[test]
fn members_are_read_by_range() {
    for zip64 in [false, true] {
        let bytes = Build { zip64, ..two() }.bytes();
        let archive = read(&bytes).unwrap();
        let names: Vec<&str> = archive.members.iter().map(|m| m.name.as_str()).collect();
        assert_eq!(names, ["a/b.txt", "a/c.so"]);
        assert_eq!(content(&bytes, "a/b.txt").unwrap(), b"stored");
        assert_eq!(content(&bytes, "a/c.so").unwrap(), [7; 5000]);
        let stored = &archive.members[0];
        let range = archive.locate(stored, &mut &bytes[..]).unwrap();
        assert_eq!(&bytes[range.start as usize..range.end as usize], b"stored");
        assert_eq!(stored.unix_mode, Some(0o100644));
    }
}

#[test]
fn a_comment_may_follow_the_directory() {
    let mut bytes = two().bytes();
    let at = bytes.len() - 2;
    bytes[at..].copy_from_slice(&5u16.to_le_bytes());
    assert!(matches!(problem(&bytes), Problem::NoEnd));
    bytes.extend_from_slice(b"hello");
    assert!(read(&bytes).is_ok());
}

/// Archives from `python3` are read, streamed or not, with zip64 fields or without.
#[test]
fn pythons_archives() {
    let dir = tempfile::tempdir().unwrap();
    let script = "import sys, zipfile\nclass Pipe:\n    def __init__(self, f): self.f = f\n    def write(self, b): return self.f.write(b)\n    def flush(self): self.f.flush()\nwith zipfile.ZipFile('seek.zip', 'w', zipfile.ZIP_DEFLATED) as z:\n    z.writestr('d/é.txt', 'x' * 9999)\n    with z.open('big', 'w', force_zip64=True) as m: m.write(b'y' * 99)\nwith open('pipe.zip', 'wb') as f, zipfile.ZipFile(Pipe(f), 'w', zipfile.ZIP_DEFLATED) as z:\n    z.writestr('d/é.txt', 'x' * 9999)\n    with z.open('big', 'w', force_zip64=True) as m: m.write(b'y' * 99)\n";
    let status = std::process::Command::new("python3")
        .args(["-c", script])
        .current_dir(dir.path())
        .status()
        .unwrap();
    assert!(status.success());
    for name in ["seek.zip", "pipe.zip"] {
        let bytes = std::fs::read(dir.path().join(name)).unwrap();
        assert_eq!(content(&bytes, "d/é.txt").unwrap(), [b'x'; 9999], "{name}");
        assert_eq!(content(&bytes, "big").unwrap(), [b'y'; 99], "{name}");
    }
}

#[test]
fn names_that_escape_or_hide() {
    for (name, expected) in [
        ("/etc/passwd", "absolute"),
        ("../x", "with an empty part, `.` or `..`"),
        ("a/../b", "with an empty part, `.` or `..`"),
        ("a//b", "with an empty part, `.` or `..`"),
        ("./a", "with an empty part, `.` or `..`"),
        ("..", "with an empty part, `.` or `..`"),
        ("", "empty or longer than a path can be"),
        ("a\0b", "with control characters"),
        ("a\\b", "with a `\\`, which some programs take for a `/`"),
        ("ü", "not ASCII and not declared as UTF-8"),
    ] {
        let bytes = Build::of(vec![File::new(name, b"")]).bytes();
        let found = problem(&bytes);
        assert!(
            matches!(found, Problem::Name(n) if n == expected),
            "{name}: {found}"
        );
    }
    let error = read(&Build::of(vec![File::new("../\n", b"")]).bytes()).unwrap_err();
    assert_eq!(error.member.as_deref(), Some("../\n"));
    assert_eq!(
        error.to_string(),
        "archive `x.whl`, member `../\\n`, offset 0x22: its name is with control characters"
    );
}

#[test]
fn one_name_is_one_file() {
    let of = |names: &[&str]| {
        let files = names.iter().map(|n| File::new(n, b"")).collect();
        read(&Build::of(files).bytes()).map_err(|e| e.problem)
    };
    assert!(of(&["a/", "a/b", "a-c", "a.d", "b"]).is_ok());
    assert!(matches!(of(&["a", "b", "a"]), Err(Problem::Duplicate)));
    assert!(matches!(of(&["a/b", "a-c", "a"]), Err(Problem::BelowFile)));
    assert!(matches!(of(&["a/", "a"]), Err(Problem::BelowFile)));
}

#[test]
fn members_may_not_overlap() {
    let mut build = two();
    // The first member claims the second one's header as its content.
    (build.files[0].claimed, build.files[0].size) = (Some(60), 60);
    assert!(matches!(problem(&build.bytes()), Problem::Overlap));
    let mut build = two();
    build.files[1].offset = Some(0);
    assert!(matches!(problem(&build.bytes()), Problem::Overlap));
    // The local header has an extra field that the directory does not show.
    let mut bytes = two().bytes();
    bytes[28] = 30;
    assert!(matches!(local(&bytes), Problem::Overlap | Problem::Entry));
}

#[test]
fn local_headers_that_lie() {
    let good = two().bytes();
    for (at, part) in [
        (0, "signature"),
        (6, "flags"),
        (8, "method"),
        (14, "CRC-32"),
        (18, "sizes"),
        (22, "sizes"),
        (30, "name"),
    ] {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        let found = local(&bytes);
        assert!(
            matches!(found, Problem::Local(p) if p == part),
            "{at}: {found}"
        );
    }
}

#[test]
fn sizes_that_cannot_be() {
    let mut build = Build::of(vec![File::deflated("bomb", &[0; 4000])]);
    build.files[0].size = 1 << 30;
    assert!(matches!(problem(&build.bytes()), Problem::Sizes { .. }));
    build.files[0].size = 4001;
    let error = content(&build.bytes(), "bomb").unwrap_err();
    assert_eq!(
        error,
        "the deflate stream inflates to 0xfa0 bytes, its directory says 0xfa1"
    );
}

#[test]
fn directories_have_one_end() {
    let good = two().bytes();
    assert!(matches!(problem(b""), Problem::NoEnd));
    assert!(matches!(problem(&good[..good.len() - 1]), Problem::NoEnd));
    // There is a second end record inside the first one's comment.
    let mut twice = good.clone();
    let at = twice.len();
    twice[at - 2..].copy_from_slice(&22u16.to_le_bytes());
    twice.extend_from_slice(&good[at - 22..]);
    assert!(matches!(problem(&twice), Problem::TwoEnds));
    // A member's content is an end record with a comment that reaches to the archive's own end.
    let mut inside = good.clone();
    let end = memchr::memmem::rfind(&inside, b"PK\x05\x06").unwrap();
    let directory = memchr::memmem::find(&inside, b"PK\x01\x02").unwrap();
    let mut fake = inside[end..].to_vec();
    let rest = u16::try_from(inside.len() - directory).unwrap();
    fake[20..22].copy_from_slice(&rest.to_le_bytes());
    inside.splice(directory..directory, fake.iter().copied());
    assert!(matches!(problem(&inside), Problem::TwoEnds));
    // There are bytes between the directory and its end.
    let mut gap = good.clone();
    gap.splice(at - 22..at - 22, [0; 4]);
    assert!(matches!(problem(&gap), Problem::Directory));
    let mut count = good.clone();
    count[at - 22 + 8] = 3;
    count[at - 22 + 10] = 3;
    assert!(matches!(
        problem(&count),
        Problem::Count {
            expected: 3,
            found: 2
        }
    ));
    let mut volumes = good.clone();
    volumes[at - 22 + 4] = 1;
    assert!(matches!(problem(&volumes), Problem::Volumes));
    let mut long = Build {
        zip64: true,
        ..two()
    }
    .bytes();
    let at = long.len() - 22 - 20 - 56;
    long[at + 40] ^= 1;
    assert!(matches!(problem(&long), Problem::Directory));
}

#[test]
fn other_methods_are_named() {
    let mut bytes = two().bytes();
    let entry = memchr::memmem::find(&bytes, b"PK\x01\x02").unwrap();
    bytes[entry + 10] = 93;
    assert!(matches!(problem(&bytes), Problem::Method(93)));
    bytes[entry + 8] = 1;
    assert!(matches!(problem(&bytes), Problem::Encrypted));
}

proptest! {
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = read(&bytes);
    }

    /// Contents that are read do not overlap.
    #[test]
    fn any_damage(
        zip64: bool,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = Build { zip64, ..two() }.bytes();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(archive) = read(&bytes) {
            let mut ranges: Vec<_> = archive.members.iter()
                .filter_map(|m| archive.locate(m, &mut &bytes[..]).ok())
                .collect();
            ranges.sort_by_key(|r| r.start);
            prop_assert!(ranges.windows(2).all(|p| p[0].end <= p[1].start));
            for member in &archive.members {
                let _ = content(&bytes, &member.name);
            }
        }
    }
}
