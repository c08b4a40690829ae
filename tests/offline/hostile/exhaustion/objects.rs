//! ELF objects.

use stackforge_binary::elf;

use super::{Counted, put, read};
use crate::hostile::objects::Build;
use crate::hostile::{allowed, peak, with_section};

/// An object whose dynamic table, symbols and strings are as given and lie one behind the other.
fn dynamic(tags: &[(u64, u64)], symbols: &[u32], strings: &[u8]) -> Vec<u8> {
    let build = Build {
        sections: Vec::new(),
        ..Build::default()
    };
    let mut out = build.bytes()[..64 + 2 * 56].to_vec();
    let symbols_at = out.len();
    for name in symbols {
        out.extend(name.to_le_bytes());
        // A global function that is defined elsewhere.
        out.extend([0x12, 0, 0, 0]);
        out.extend([0; 16]);
    }
    let strings_at = out.len();
    out.extend(strings);
    // DT_HASH: no buckets, and how many symbols there are.
    let hash_at = out.len();
    out.extend(0u32.to_le_bytes());
    out.extend((symbols.len() as u32).to_le_bytes());
    let table_at = out.len();
    let own = [
        (5, strings_at),
        (10, strings.len()),
        (6, symbols_at),
        (4, hash_at),
    ];
    let own = own.map(|(tag, value)| (tag, value as u64));
    for (tag, value) in tags.iter().copied().chain(own).chain([(0, 0)]) {
        out.extend(tag.to_le_bytes());
        out.extend(value.to_le_bytes());
    }
    let size = out.len() as u64;
    // No sections; one segment of everything at address 0, and the dynamic table.
    put(&mut out, 0x28, [0], 8);
    put(&mut out, 0x3c, [0, 0], 2);
    put(&mut out, 64 + 8, [0, 0, 0, size, size], 8);
    let table = table_at as u64;
    put(&mut out, 120 + 8, [table, table, table, size - table], 8);
    out
}

const NEEDED: u64 = 1;

const RPATH: u64 = 15;

#[test]
fn four_billion_sections() {
    let mut object = Build::default().bytes();
    // The count stands in the first section where the header's is zero.
    let table = object.len() as u64;
    put(&mut object, 0x28, [table], 8);
    put(&mut object, 0x3c, [0, 1], 2);
    object.extend([0; 64]);
    put(&mut object, table as usize + 32, [1 << 32], 8);
    let mut source = Counted::sparse(&object, 1 << 50);
    let answer = read(&mut source);
    assert!(matches!(answer, Err(elf::Problem::TooMany { .. })));
    assert!(source.read < 1 << 20, "{} bytes", source.read);
}

/// With a scan to its end for each section this would take hours.
#[test]
fn section_names_that_never_end() {
    let names = 8 << 20;
    let count = 1 << 18;
    let mut object = with_section(b"");
    let table = object.len() as u64;
    object.resize(table as usize + count * 64, 0);
    for n in 0..count {
        let at = table as usize + n * 64;
        put(&mut object, at, [0, 1], 4);
        put(&mut object, at + 24, [0, 64], 8);
    }
    let names_at = object.len() as u64;
    object.resize(object.len() + names, b'x');
    put(
        &mut object,
        table as usize + 24,
        [names_at, names as u64],
        8,
    );
    put(&mut object, 0x28, [table], 8);
    // The first section has the count, the second is the names'.
    put(&mut object, table as usize + 32, [count as u64], 8);
    put(
        &mut object,
        table as usize + 64 + 24,
        [names_at, names as u64],
        8,
    );
    put(&mut object, 0x3c, [0, 1], 2);
    let mut source = Counted::new(&object);
    let held = peak(|| assert!(read(&mut source).unwrap().sections.is_empty()));
    assert!(source.read < 2 * object.len() as u64);
    assert!(held < 2 * names, "{held} bytes");
}

#[test]
fn needed_libraries_without_a_name() {
    let object = dynamic(&[(NEEDED, 0); 1 << 20], &[], b"\0");
    let held = peak(|| {
        let answer = read(&mut &object[..]);
        assert!(matches!(answer, Err(elf::Problem::TooMany { .. })));
    });
    assert!(held < 1 << 20, "{held} bytes");
}

#[test]
fn a_search_path_of_nothing_but_colons() {
    let mut strings = vec![b':'; 1 << 20];
    strings.push(0);
    let object = dynamic(&[(RPATH, 0)], &[], &strings);
    let held = peak(|| {
        let answer = read(&mut &object[..]);
        assert!(matches!(answer, Err(elf::Problem::TooMany { .. })));
    });
    assert!(held <= allowed(object.len()) / 4, "{held} bytes");
}

#[test]
fn names_that_are_used_again_and_again() {
    let mut strings = vec![b'a'; 1 << 20];
    strings[..4].copy_from_slice(b"\0_Z1");
    strings.push(0);
    let lib = dynamic(&[(NEEDED, 1); 1 << 10], &[], &strings);
    assert!(matches!(
        read(&mut &lib[..]),
        Err(elf::Problem::TooLarge { .. })
    ));

    let visited = |symbols: &[u32]| {
        let bytes = dynamic(&[], symbols, &strings);
        let mut source = Counted::new(&bytes);
        let object = read(&mut source).unwrap();
        let (mut count, mut total) = (0, 0);
        let answer = object.symbols(&mut source, |symbol| {
            count += 1;
            total += symbol.name.len();
        });
        assert!(source.read < 4 * bytes.len() as u64);
        assert!(total <= 8 * strings.len(), "{total} bytes of names");
        (count, answer.is_ok())
    };
    // One name, many symbols: shown once.
    assert_eq!(visited(&[1; 1 << 16]), (1, true));
    // Each name is the tail of the one before.
    let tails: Vec<u32> = (1..1 << 16).collect();
    assert_eq!(visited(&tails), (8, false));
}

#[test]
fn four_billion_symbols() {
    let mut object = dynamic(&[], &[1], b"\0x\0");
    // The hash table stands before five tags.
    let hash = object.len() - 5 * 16 - 8;
    assert_eq!(object[hash + 4], 1);
    put(&mut object, hash + 4, [u32::MAX.into()], 4);
    let size = 1 << 50;
    put(&mut object, 64 + 32, [size, size], 8);
    let mut source = Counted::sparse(&object, size);
    let answer = read(&mut source);
    assert!(matches!(answer, Err(elf::Problem::TooMany { .. })));
    assert!(source.read < 1 << 20, "{} bytes", source.read);
}

#[test]
fn versions_whose_chains_cross() {
    let build = Build {
        versions: vec![("libc.so.6", vec!["GLIBC_2.2"; 2000]); 20],
        ..Build::default()
    };
    let built = build.built();
    let mut object = built.bytes;
    let end = object.len();
    // Each file's chain starts in the first one's and walks it to its end.
    let mut at = built.versions;
    for n in 0..20 {
        let next = 16 + 16 * 2000;
        put(&mut object, at + 2, [u64::from(u16::MAX)], 2);
        let back = (built.versions + 16).wrapping_sub(at) as u64;
        put(&mut object, at + 8, [back], 4);
        assert!(n == 19 || object[at + 12] != 0);
        at += next;
    }
    let mut source = Counted::new(&object[..end]);
    let held = peak(|| assert!(read(&mut source).is_err()));
    assert!(source.read < 4 * end as u64);
    assert!(held <= allowed(end), "{held} bytes");
}
