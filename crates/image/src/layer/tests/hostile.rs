//! Hostile wheels: with false digests, paths that escape, or colliding files.

use proptest::prelude::*;

use super::*;
use stackforge_binary::source::ReadError;

fn refused(wheels: &[(&str, &[u8])]) -> LayerError {
    layer_of(&spec(), wheels, &[]).unwrap_err()
}

fn fault(wheels: &[(&str, &[u8])]) -> WheelFault {
    match refused(wheels) {
        LayerError::Wheel { fault, .. } => fault,
        other => panic!("{other}"),
    }
}

fn damage(file: File) -> ReadError {
    match refused(&[("a", &wheel("a", &[], vec![file]))]) {
        LayerError::Content { source, .. } => source,
        other => panic!("{other}"),
    }
}

/// A wheel with these files beside `WHEEL`, and this RECORD.
fn with_record(files: &[(&str, &[u8])], record: &str) -> Vec<u8> {
    let files = files
        .iter()
        .map(|(name, content)| File::deflated(name, content));
    let metadata = [("WHEEL", WHEEL), ("RECORD", record.as_bytes())];
    let metadata = metadata.map(|(f, content)| File::new(&format!("a-1.dist-info/{f}"), content));
    Build::of(files.chain(metadata).collect()).bytes()
}

#[test]
fn a_record_that_lies_is_an_error() {
    let row = record::digest("sha256", &record::sha256(b"other"));
    let lies = with_record(&[("a.py", b"x")], &format!("a.py,{row},1\n"));
    let message = refused(&[("a", &lies)]).to_string();
    assert!(
        message.contains("`a.py`") && message.contains(&row),
        "{message}"
    );
    // The same for a script, whose first line changes.
    let script = ("a-1.data/scripts/t", &b"#!python\n"[..]);
    let lies = with_record(&[script], &format!("{},{row},1\n", script.0));
    assert!(matches!(fault(&[("a", &lies)]), WheelFault::Lies { .. }));
    // In a wheel that is vouched for, it is a mistake, which is corrected.
    let lies = with_record(&[("a.py", b"x")], &format!("a.py,{row},1\n"));
    let vouched = open("a", &lies).unwrap().vouched();
    let install = Install {
        wheel: &vouched,
        requested: false,
        drop: &[],
        changed: &BTreeMap::new(),
    };
    let mut layer = Vec::new();
    let written = write(&spec(), &[install], &mut layer).unwrap();
    assert_eq!(written.misstated, [format!("{}: a.py", vouched.file)]);
    let files = files(&layer);
    let record = files.iter().find(|(path, _)| path.ends_with("RECORD"));
    let record = String::from_utf8(record.unwrap().1.1.clone()).unwrap();
    let right = record::digest("sha256", &record::sha256(b"x"));
    assert!(
        record.contains(&right) && !record.contains(&row),
        "{record}"
    );
    // The same for an empty file.
    let lies = with_record(&[("a.py", b"")], &format!("a.py,{row},0\n"));
    assert!(matches!(fault(&[("a", &lies)]), WheelFault::Lies { .. }));
}

#[test]
fn better_digests_are_checked_and_worse_refused() {
    use sha2::Digest as _;
    let row = |name, digest: &[u8]| format!("a.py,{},1\n", record::digest(name, digest));
    let right = row("sha512", &sha2::Sha512::digest(b"x"));
    assert!(
        layer_of(
            &spec(),
            &[("a", &with_record(&[("a.py", b"x")], &right))],
            &[]
        )
        .is_ok()
    );
    let wrong = with_record(&[("a.py", b"y")], &right);
    assert!(matches!(fault(&[("a", &wrong)]), WheelFault::Lies { .. }));
    let right = row("sha384", &sha2::Sha384::digest(b"x"));
    assert!(
        layer_of(
            &spec(),
            &[("a", &with_record(&[("a.py", b"x")], &right))],
            &[]
        )
        .is_ok()
    );
    let weak = with_record(&[("a.py", b"x")], &row("md5", b"0123456789abcdef"));
    assert!(matches!(fault(&[("a", &weak)]), WheelFault::Weak { .. }));
}

#[test]
fn a_file_that_no_record_lists_is_told() {
    let bytes = with_record(&[("a.py", b"x"), ("a-1.dist-info/RECORD.jws", b"{}")], "");
    let (layer, _) = layer_of(&spec(), &[("a", &bytes)], &[]).unwrap();
    let file = |name: &str| format!("a-1-py3-none-any.whl: {name}");
    assert_eq!(layer.unlisted, [file("a-1.dist-info/WHEEL"), file("a.py")]);
}

#[test]
fn checksums_lengths_and_ends_must_be_true() {
    let content = vec![7; 600_000];
    let good = File::deflated("a/x.so", &content);
    let crc32 = good.crc32 ^ 1;
    assert!(matches!(
        damage(File {
            crc32,
            ..good.clone()
        }),
        ReadError::Checksum { .. }
    ));
    let stored = File::new("a/x.so", &vec![7; 3 << 20]);
    let crc32 = stored.crc32 ^ 1;
    assert!(matches!(
        damage(File { crc32, ..stored }),
        ReadError::Checksum { .. }
    ));
    for (size, longer) in [(599_999, true), (600_001, false), (1, true)] {
        let error = damage(File {
            size,
            ..good.clone()
        });
        assert_eq!(matches!(error, ReadError::Longer { .. }), longer, "{error}");
        assert_eq!(
            matches!(error, ReadError::Shorter { .. }),
            !longer,
            "{error}"
        );
    }
    let mut trailing = good.clone();
    trailing.content.push(0);
    assert!(matches!(
        damage(trailing),
        ReadError::Trailing { left: 1, .. }
    ));
    let mut cut = good.clone();
    cut.content.pop();
    assert!(matches!(damage(cut), ReadError::Damaged { .. }));
    let mut noise = good;
    noise.content[0] = 7;
    assert!(matches!(damage(noise), ReadError::Damaged { .. }));
}

#[test]
fn names_with_a_meaning_are_refused() {
    for (path, expected) in [
        ("a/.wh..wh..opq", "a name with a meaning"),
        ("a/.wh.x/y", "a name with a meaning"),
        ("a-1.data/data/bin/python3", "replace the interpreter"),
        ("a-1.data/else/x", "in no part"),
        ("a-1.data/scripts", "in no part"),
        ("b-1.data/data/x", "in no part"),
    ] {
        let bytes = wheel("a", &[(path, b"x")], vec![]);
        let message = refused(&[("a", &bytes)]).to_string();
        assert!(message.contains(expected), "{path}: {message}");
    }
    for path in ["../x", "/x", "a-1.data/data/../../x", "a\\..\\x", "a/./x"] {
        let bytes = wheel("a", &[(path, b"x")], vec![]);
        assert!(
            matches!(refused(&[("a", &bytes)]), LayerError::Zip(_)),
            "{path}"
        );
    }
    let deep = format!("{}x", "d/".repeat(64));
    let bytes = wheel("a", &[(&deep, b"x")], vec![]);
    assert!(matches!(fault(&[("a", &bytes)]), WheelFault::Deep(_)));
}

#[test]
fn names_that_differ_in_case_are_refused() {
    for (one, other) in [
        ("a/X.py", "a/x.py"),
        ("A/x.py", "a/y.py"),
        ("a/b/C/x", "a/b/c/y"),
    ] {
        let bytes = wheel("a", &[(one, b""), (other, b"")], vec![]);
        assert!(
            matches!(fault(&[("a", &bytes)]), WheelFault::Case(..)),
            "{one}"
        );
    }
}

#[test]
fn different_files_of_one_name_are_refused() {
    let a = wheel("a", &[("x/__init__.py", b"1")], vec![]);
    let b = wheel("b", &[("x/__init__.py", b"2")], vec![]);
    let message = refused(&[("a", &a), ("b", &b)]).to_string();
    for part in ["`a-1-py3", "`b-1-py3", "x/__init__.py"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(matches!(
        refused(&[("a", &a), ("a", &a)]),
        LayerError::Collision { .. }
    ));
    let twice = [("x.py", &b"1"[..]), ("a-1.data/platlib/x.py", b"2")];
    let twice = wheel("a", &twice, vec![]);
    assert!(matches!(fault(&[("a", &twice)]), WheelFault::Twice(..)));
    let file = wheel("a", &[("x", b"1")], vec![]);
    let folder = wheel("b", &[("x/y/z", b"1")], vec![]);
    let both = refused(&[("a", &file), ("b", &folder)]);
    assert!(matches!(both, LayerError::FileAndFolder { .. }));
}

/// Wheels in separate layers: a file of one would hide a file of the other.
#[test]
fn wheels_of_different_layers_are_held_against_each_other() {
    let check = |wheels: &[(&str, &[u8])]| {
        let wheels: Vec<_> = wheels.iter().map(|(n, b)| open(n, b).unwrap()).collect();
        let changed = BTreeMap::new();
        let install = |wheel| Install {
            wheel,
            requested: false,
            drop: &[],
            changed: &changed,
        };
        let installs: Vec<_> = wheels.iter().map(install).collect();
        disjoint(&spec(), &installs)
    };
    let same = [
        ("x/__init__.py", &b""[..]),
        ("tests/t.py", b"1"),
        ("LICENSE", b"1"),
        ("build_backend.py", b"1"),
    ];
    let a = wheel("a", &same, vec![]);
    let b = [
        same[0],
        ("tests/t.py", b"2"),
        ("LICENSE", b"2"),
        ("build_backend.py", b"2"),
    ];
    let b = wheel("b", &b, vec![]);
    check(&[("a", &a), ("b", &b)]).unwrap();
    let namespace = "__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n";
    let noted = format!("# A note.\n\n{namespace}");
    let e = wheel("e", &[("x/__init__.py", namespace.as_bytes())], vec![]);
    let f = wheel("f", &[("x/__init__.py", noted.as_bytes())], vec![]);
    check(&[("e", &e), ("f", &f)]).unwrap();
    let found = check(&[("a", &a), ("f", &f)]);
    assert!(matches!(found, Err(LayerError::Collision { .. })));
    let evil = wheel("c", &[("x/__init__.py", b"evil")], vec![]);
    let found = check(&[("a", &a), ("c", &evil)]);
    assert!(matches!(found, Err(LayerError::Collision { .. })));
    let folder = wheel("d", &[("x/__init__.py/x", b"")], vec![]);
    let found = check(&[("a", &a), ("d", &folder)]);
    assert!(matches!(found, Err(LayerError::FileAndFolder { .. })));
}

#[test]
fn nothing_takes_the_environments_own_place() {
    for member in [
        "a-1.data/data/bin/python3/x",
        "a-1.data/data/bin/python3.12/x",
        "a-1.data/data/pyvenv.cfg/x",
        "a-1.data/data/lib64/x",
        "a-1.data/data/bin",
        "a-1.data/data/lib",
        "a-1.data/scripts/python3",
    ] {
        let bytes = wheel("a", &[(member, b"")], vec![]);
        let found = fault(&[("a", &bytes)]);
        assert!(
            matches!(found, WheelFault::Interpreter(_)),
            "{member}: {found}"
        );
    }
    let others = "a-1.data/purelib/torch-9.0.dist-info/METADATA";
    let bytes = wheel("a", &[(others, b"Name: torch\n")], vec![]);
    assert!(matches!(fault(&[("a", &bytes)]), WheelFault::Foreign(_)));
}

#[test]
fn metadata_must_be_those_of_the_wheel() {
    let bytes = wheel("a", &[], vec![]);
    let other = open("b", &bytes).err().unwrap().to_string();
    assert!(other.contains("those of `a-1`"), "{other}");
    let two = wheel("a", &[("c-1.dist-info/METADATA", b"")], vec![]);
    assert!(matches!(fault(&[("a", &two)]), WheelFault::DistInfo(2)));
    let none = Build::of(vec![File::new("a.py", b"")]).bytes();
    assert!(matches!(fault(&[("a", &none)]), WheelFault::DistInfo(0)));
    for (file, content, expected) in [
        ("x", &b""[..], "lacks `a-1.dist-info/WHEEL`"),
        ("WHEEL", b"Wheel-Version: 2.0\n", "version `2.0`"),
        (
            "WHEEL",
            b"Wheel-Version: 1.9\n",
            "lacks `a-1.dist-info/RECORD`",
        ),
        ("WHEEL", b"\xff", "not UTF-8"),
    ] {
        let only = Build::of(vec![File::new(&format!("a-1.dist-info/{file}"), content)]).bytes();
        let message = refused(&[("a", &only)]).to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_disk_that_is_full_is_an_error() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = (self.0.checked_sub(bytes.len())).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let noise: Vec<u8> = (0..2_000_000u32)
        .map(|i| (i.wrapping_mul(i) >> 9) as u8)
        .collect();
    let bytes = wheel("a", &[], vec![File::new("a/x", &noise)]);
    let wheel = open("a", &bytes).unwrap();
    let install = Install {
        wheel: &wheel,
        requested: false,
        drop: &[],
        changed: &BTreeMap::new(),
    };
    for room in [0, 1000, 1 << 20] {
        let answer = write(&spec(), std::slice::from_ref(&install), Full(room));
        assert!(matches!(answer, Err(LayerError::Write(_))));
    }
}

proptest! {
    #[test]
    fn a_damaged_wheel_is_an_error_or_the_same(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let text = b"some text some text some text".repeat(40);
        let files: [(&str, &[u8]); 2] = [("a/x.py", &text), ("a-1.data/scripts/t", b"#!python\n")];
        let mut bytes = wheel("a", &files, vec![File::new("a/y.so", &text)]);
        let before = installed(&[("a", &bytes)]);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok((layer, out)) = layer_of(&spec(), &[("a", &bytes)], &[]) {
            // The change may be in a flag, a time or a mode, which no checksum covers.
            prop_assert!(layer.unlisted.is_empty());
            let found = files_but_modes(&out);
            prop_assert_eq!(found.len(), before.len());
            for (path, content) in found {
                if !path.ends_with("stargz.index.json") {
                    prop_assert!(content == before[&path].1, "{}", path);
                }
            }
        }
    }
}

fn files_but_modes(layer: &[u8]) -> Vec<(String, Vec<u8>)> {
    let files = super::files(layer).into_iter();
    files.map(|(path, (_, content))| (path, content)).collect()
}
