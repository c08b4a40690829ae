use std::io::{Cursor, Read as _};

use proptest::prelude::*;

use super::*;

/// Creates a member's header with a correct checksum.
fn block(name: &[u8], flag: u8, size: u64, link: &[u8]) -> [u8; 512] {
    let mut b = [0; 512];
    b[..name.len()].copy_from_slice(name);
    b[100..107].copy_from_slice(b"0000644");
    b[108..115].copy_from_slice(b"0000000");
    b[116..123].copy_from_slice(b"0000000");
    b[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    b[136..147].copy_from_slice(b"00000000001");
    b[156] = flag;
    b[157..157 + link.len()].copy_from_slice(link);
    b[257..265].copy_from_slice(b"ustar\x0000");
    sum(&mut b);
    b
}

fn sum(b: &mut [u8; 512]) {
    b[148..156].copy_from_slice(b"        ");
    let sum: u32 = b.iter().map(|b| u32::from(*b)).sum();
    b[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
}

fn member(name: &[u8], flag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = block(name, flag, content.len() as u64, b"").to_vec();
    out.extend(content);
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

fn link(name: &[u8], flag: u8, to: &[u8]) -> Vec<u8> {
    block(name, flag, 0, to).to_vec()
}

fn pax(records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        out.extend(format!("{length} {key}=").as_bytes());
        out.extend(*value);
        out.push(b'\n');
    }
    out
}

fn read(archive: &[u8]) -> Result<Vec<(Header, Vec<u8>)>, TarError> {
    let mut reader = Reader::new(archive);
    let mut out = Vec::new();
    while let Some(mut entry) = reader.next()? {
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        out.push((entry.header, content));
    }
    Ok(out)
}

fn problem(archive: &[u8]) -> String {
    read(archive).unwrap_err().to_string()
}

const END: [u8; 1024] = [0; 1024];

#[test]
fn paths_have_one_spelling() {
    let archive = [
        member(b"./", b'5', b""),
        member(b"./usr//lib/./x", b'0', b"abc"),
        member(b"/etc/passwd", b'0', b""),
        link(b"hard", b'1', b"./usr/lib/x"),
        link(b"soft", b'2', b"../../x"),
        member(b"old/", 0, b""),
    ]
    .concat();
    let read = read(&archive).unwrap();
    let paths: Vec<&str> = read.iter().map(|(h, _)| h.path.as_str()).collect();
    assert_eq!(
        paths,
        ["", "usr/lib/x", "etc/passwd", "hard", "soft", "old"]
    );
    assert_eq!(read[1].1, b"abc");
    assert_eq!(read[3].0.link.as_deref(), Some("usr/lib/x"));
    assert_eq!(read[4].0.link.as_deref(), Some("../../x"));
    assert_eq!(read[5].0.kind, MemberKind::Directory);
}

#[test]
fn both_ends_are_ends_and_the_rest_is_read() {
    let one = member(b"a", b'0', b"x");
    for end in [&b""[..], &END[..512], &END] {
        assert_eq!(read(&[&one[..], end].concat()).unwrap().len(), 1);
    }
    let archive = [&one[..], &END, b"what follows"].concat();
    let mut reader = Reader::new(&archive[..]);
    while reader.next().unwrap().is_some() {}
    assert!(reader.inner.is_empty());
    assert!(reader.next().unwrap().is_none());
}

#[test]
fn what_programs_read_differently_is_refused() {
    let a = member(b"a", b'0', b"");
    let long = member(b"././@LongLink", b'L', b"name\0");
    let x = |records: &[(&str, &[u8])]| member(b"x", b'x', &pax(records));
    for (archive, expected) in [
        ([&a[..], &END[..512], &a].concat(), "a single zero block"),
        (member(b"d", b'5', b"content"), "a Directory with content"),
        ([&long[..], &long, &a].concat(), "more than one long name"),
        (
            [&long[..], &x(&[("path", b"b")]), &a].concat(),
            "more than one path",
        ),
        (
            [&x(&[("path", b"b")])[..], &x(&[]), &a].concat(),
            "more than one extended",
        ),
        ([&a[..], &long].concat(), "describes another member"),
        ([&a[..], &long, &END].concat(), "describes another member"),
        (member(b"../x", b'0', b""), "`../x` leads out"),
        (member(b"a/..", b'5', b""), "`a/..` leads out"),
        (member(b"./", b'0', b""), "is empty"),
        (link(b"l", b'1', b"../../etc/passwd"), "leads out"),
        (link(b"l", b'2', b""), "without a target"),
        (member(b"a", b'S', b""), "sparse"),
        (
            [x(&[("GNU.sparse.major", b"1")]), a.clone()].concat(),
            "sparse",
        ),
        (member(b"a", b'M', b""), "another volume"),
        (member(b"a", b'?', b""), "type `?` is unknown"),
        ([x(&[("path", b"a\0b")]), a.clone()].concat(), "zero byte"),
        (
            [x(&[("size", b"-1")]), a.clone()].concat(),
            "its size is not a number",
        ),
        (
            [x(&[("size", b"9223372036854775808")]), a.clone()].concat(),
            "its size",
        ),
        (member(b"x", b'x', b"5 a=b"), "a record's length"),
        (member(b"x", b'x', b"99 a=b\n"), "a record's length"),
        (member(b"x", b'x', b"+6 a=b\n"), "a record's length"),
        (member(b"x", b'x', b"5 =b\n"), "no key"),
    ] {
        let found = problem(&archive);
        assert!(found.contains(expected), "{found}");
    }
    let mut damaged = a.clone();
    damaged[0] = b'b';
    assert_eq!(
        problem(&damaged),
        "tar stream, offset 0x0: this is not a tar header: its checksum is wrong"
    );
}

#[test]
fn short_streams_say_where() {
    let archive = member(b"a", b'0', &[7; 600]);
    assert!(problem(&archive[..300]).contains("offset 0x12c: it is cut short: 212 more"));
    for end in [512, 700, 1111] {
        let mut reader = Reader::new(&archive[..end]);
        let mut entry = reader.next().unwrap().unwrap();
        let error = entry.read_to_end(&mut Vec::new()).unwrap_err();
        assert!(
            error.to_string().contains(&format!("offset {end:#x}")),
            "{error}"
        );
        // The content is skipped instead of read, and also skipped by seeking.
        let mut reader = Reader::new(&archive[..end]);
        reader.next().unwrap();
        assert!(reader.next().is_err());
        assert!(reader.next().is_err(), "an error is not an end");
        let mut reader = Reader::seeking(Cursor::new(&archive[..end]));
        reader.next().unwrap();
        let error = reader.next().err().unwrap().to_string();
        assert!(error.contains(&format!("offset {end:#x}")), "{error}");
    }
    // Complete content without the zeros that fill its block is accepted.
    assert_eq!(read(&archive[..1112]).unwrap().len(), 1);
}

#[test]
fn names_and_records_are_bounded() {
    let mut bomb = block(b"././@LongLink", b'L', 0, b"").to_vec();
    // This is 1 << 33 in base 256.
    bomb[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
    let mut header: [u8; 512] = bomb.try_into().unwrap();
    sum(&mut header);
    assert!(problem(&header).contains("8589934592 bytes, more than 16384"));
    let big = vec![b'v'; 128 << 10];
    let records = pax(&[("SCHILY.xattr.user.a", &big)]);
    assert!(problem(&member(b"x", b'x', &records)).contains("more than 131072"));
    let records = pax(&[("SCHILY.xattr.user.a", &big[..3 << 10])]);
    let global = member(b"g", b'g', &records);
    assert!(problem(&[&global[..], &global].concat()).contains("more than 4096"));
    let keys: Vec<String> = (0..1025).map(|i| format!("SCHILY.xattr.{i}")).collect();
    let records: Vec<(&str, &[u8])> = keys.iter().map(|k| (&k[..], &b""[..])).collect();
    assert!(problem(&member(b"x", b'x', &pax(&records))).contains("1024 extended"));
}

#[test]
fn records_go_over_the_header_and_global_ones_under_both() {
    let archive = [
        member(
            b"g",
            b'g',
            &pax(&[("uid", b"7"), ("SCHILY.xattr.user.g", b"1")]),
        ),
        member(
            b"x",
            b'x',
            &pax(&[
                ("path", "ü/long".as_bytes()),
                ("uid", b"4294967296"),
                ("gid", b"9"),
                ("mtime", b"-1.5"),
                ("SCHILY.xattr.security.capability", b"\x01\0\xff"),
                ("comment", b"ignored"),
            ]),
        ),
        member(b"short", b'0', b"c"),
        member(b"next", b'0', b""),
    ]
    .concat();
    let read = read(&archive).unwrap();
    let (first, content) = &read[0];
    assert_eq!(
        (&first.path[..], first.uid, first.gid),
        ("ü/long", 1 << 32, 9)
    );
    assert_eq!((first.mtime, &content[..]), (-2, &b"c"[..]));
    assert_eq!(
        first.xattrs,
        [
            ("security.capability".to_owned(), b"\x01\0\xff".to_vec()),
            ("user.g".to_owned(), b"1".to_vec())
        ]
    );
    let next = &read[1].0;
    assert_eq!(
        (&next.path[..], next.uid, next.gid, next.mtime),
        ("next", 7, 0, 1)
    );
}

#[test]
fn names_of_any_bytes_stay_apart() {
    for (bytes, text) in [
        (&b"caf\xe9"[..], "caf\\xe9"),
        (b"caf\\xe9", "caf\\x5cxe9"),
        (b"a\\x2db", "a\\x2db"),
        ("é".as_bytes(), "é"),
    ] {
        assert_eq!(name::text(bytes), text);
    }
}

fn untext(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = (*first == b'\\')
            .then(|| after.strip_prefix(b"x"))
            .flatten()
            .and_then(|d| std::str::from_utf8(d.get(..2)?).ok())
            .filter(|d| *d == "5c" || (d.as_bytes()[0] >= b'8' && *d == d.to_lowercase()))
            .and_then(|d| u8::from_str_radix(d, 16).ok());
        match digits {
            Some(b) => {
                out.push(b);
                rest = &after[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

fn walk(archive: &[u8]) {
    let mut reader = Reader::new(archive);
    while let Ok(Some(mut entry)) = reader.next() {
        let _ = entry.read_to_end(&mut Vec::new());
    }
    let mut reader = Reader::seeking(Cursor::new(archive));
    while let Ok(Some(_)) = reader.next() {}
}

proptest! {
    #[test]
    fn any_bytes_of_a_name_come_back(parts in proptest::collection::vec(
        prop_oneof![Just(b"\\".to_vec()), Just(b"x".to_vec()), Just(b"5c".to_vec()),
            Just(b"e9".to_vec()), Just(vec![0xe9]), Just("é".as_bytes().to_vec()),
            proptest::collection::vec(any::<u8>(), 0..4)], 0..8)
    ) {
        let bytes = parts.concat();
        prop_assert_eq!(untext(&name::text(&bytes)), bytes);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        walk(&bytes);
    }

    #[test]
    fn no_damage_makes_it_panic(
        at in 0usize..4096,
        with in any::<[u8; 12]>(),
        name in "[a-z./\\\\]{1,20}",
    ) {
        let mut archive = [
            member(b"g", b'g', &pax(&[("uid", b"1")])),
            member(b"x", b'x', &pax(&[("path", name.as_bytes())])),
            member(b"a", b'0', &[1; 700]),
            link(b"b", b'1', b"a"),
        ]
        .concat();
        let at = at % (archive.len() - 12);
        archive[at..at + 12].copy_from_slice(&with);
        // The checksum of the damaged block is corrected, or nothing behind it would be reached.
        let start = at / 512 * 512;
        let mut header: [u8; 512] = archive[start..start + 512].try_into().unwrap();
        walk(&archive);
        sum(&mut header);
        archive[start..start + 512].copy_from_slice(&header);
        walk(&archive);
    }

    #[test]
    fn files_come_back(files in proptest::collection::vec(
        ("[a-zé]{1,30}(/[a-z]{1,90}){0,3}", proptest::collection::vec(any::<u8>(), 0..1500)), 0..6)
    ) {
        let archive: Vec<u8> = files
            .iter()
            .flat_map(|(path, content)| [
                member(b"x", b'x', &pax(&[("path", path.as_bytes())])),
                member(b"short", b'0', content),
            ].concat())
            .collect();
        let found: Vec<(String, Vec<u8>)> =
            read(&archive).unwrap().into_iter().map(|(h, c)| (h.path, c)).collect();
        prop_assert_eq!(found, files);
    }
}
