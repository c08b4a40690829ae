//! Compares objects of wheels that are read as streams with the same objects in memory.

use super::*;
use stackforge_binary::samples::archive::{Build, File};
use stackforge_binary::samples::compiled::Built;
use std::path::Path;

const MIB: u64 = 1 << 20;

fn built(between: u64, after: u64) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.so");
    let built = Built {
        soname: Some("libx.so.1"),
        needs: &["libcudart.so.13", "libc10.so"],
        asks: &["_ZN2at3catEv"],
        exports: &["_ZN5torch4thisEv"],
        code: &[(&[80, 90], &[90]), (&[110], &[])],
        glibc: Some("GLIBC_2.31"),
        between,
        after,
        ..Built::default()
    };
    built.write(&path);
    std::fs::read(path).unwrap()
}

/// Writes and opens a wheel with these members.
fn wheel(files: Vec<File>, dir: &Path) -> (Tree, Contents) {
    let path = dir.join("x-1.0-cp312-cp312-manylinux_2_28_x86_64.whl");
    std::fs::write(&path, Build::of(files).bytes()).unwrap();
    Tree::open(&path).unwrap()
}

fn inventory(files: Vec<File>) -> Inventory {
    let dir = tempfile::tempdir().unwrap();
    let (tree, contents) = wheel(files, dir.path());
    Inventory::of(&tree, &contents)
}

#[test]
fn a_large_object_in_a_wheel_reads_as_from_memory() {
    let usual = built(0, 60 * MIB);
    let odd = built(60 * MIB, 0);
    let small = built(0, 0);
    let objects = [("odd.so", odd), ("small.so", small), ("usual.so", usual)];
    let mut files: Vec<File> = objects
        .iter()
        .map(|(name, bytes)| File::deflated(name, bytes))
        .collect();
    files.push(File::new("a/stored.so", &objects[1].1));
    files.push(File::deflated("a/text.py", b"import torch\n"));
    files.push(File::deflated("a/empty", b""));
    let found = inventory(files);
    assert_eq!(found.damaged, []);
    let paths: Vec<&str> = found.items.iter().map(|i| i.path.as_str()).collect();
    assert_eq!(paths, ["a/stored.so", "odd.so", "small.so", "usual.so"]);
    for (name, bytes) in &objects {
        let item = found.items.iter().find(|i| i.path == *name).unwrap();
        let expected = read(name, &mut &bytes[..]).unwrap().unwrap();
        assert!(!expected.code.is_empty());
        assert_eq!(format!("{item:?}"), format!("{expected:?}"), "{name}");
    }
}

/// Returns what is reported about a damaged member, and what the reader with random access reports.
fn damaged(file: File) -> (String, Option<String>) {
    let dir = tempfile::tempdir().unwrap();
    let (tree, contents) = wheel(vec![file], dir.path());
    let mut source = contents.open(0).unwrap();
    let expected = read(&tree.paths[0], &mut *source).err();
    let found = Inventory::of(&tree, &contents);
    assert!(found.items.is_empty());
    let [(_, why)] = &found.damaged[..] else {
        panic!("one member is damaged: {found:?}");
    };
    (why.clone(), expected.map(|e| e.to_string()))
}

#[test]
fn damaged_members_are_named_as_by_the_reader_that_goes_back() {
    let whole = File::deflated("x.so", &built(0, 0));
    let middle = whole.content.len() / 2;
    let change = |change: &dyn Fn(&mut File)| {
        let mut file = whole.clone();
        change(&mut file);
        damaged(file)
    };
    type Lie<'a> = (&'a str, &'a dyn Fn(&mut File));
    let lies: [Lie<'_>; 6] = [
        ("CRC-32", &|f| f.crc32 ^= 1),
        ("directory says", &|f| f.size += 9),
        ("", &|f| f.size -= 1),
        ("damaged", &|f| f.content.truncate(middle)),
        ("ends 3 bytes before", &|f| f.content.extend(b"xyz")),
        ("", &|f| f.content[middle] ^= 0x55),
    ];
    for (message, lie) in lies {
        let (found, expected) = change(lie);
        assert_eq!(Some(&found), expected.as_ref());
        assert!(found.contains(message), "{found}");
    }
}

#[test]
fn damage_where_nothing_is_read_is_damage() {
    let mut file = File::deflated("x.so", &built(60 * MIB, 0));
    file.crc32 ^= 1;
    let (found, _) = damaged(file);
    assert!(found.contains("CRC-32"), "{found}");
}

#[test]
fn wheels_in_a_directory_are_opened_and_not_those_in_wheels() {
    let odd = built(60 * MIB, 0);
    let small = built(0, 0);
    let inner = Build::of(vec![File::new("inner.so", &small)]).bytes();
    let mut torn = File::deflated("x/torn.so", &small);
    torn.crc32 ^= 1;
    let wheel = Build::of(vec![
        File::deflated("x/odd.so", &odd),
        File::new("x/stored.so", &small),
        File::new("x/inner.whl", &inner),
        File::deflated("x/a.py", b"import torch"),
        torn,
    ])
    .bytes();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("x.whl"), &wheel).unwrap();
    std::fs::write(dir.path().join("cut.whl"), &wheel[..wheel.len() / 2]).unwrap();
    std::fs::write(dir.path().join("own.so"), &small).unwrap();
    let (tree, contents) = Tree::open(dir.path()).unwrap();
    let found = Inventory::of(&tree, &contents);
    let paths = |items: &[Item]| items.iter().map(|i| i.path.clone()).collect::<Vec<_>>();
    assert_eq!(paths(&found.items), ["own.so"]);
    assert_eq!(
        paths(&found.packed.items),
        ["x.whl/x/odd.so", "x.whl/x/stored.so"]
    );
    for (item, bytes) in found.packed.items.iter().zip([&odd, &small]) {
        let mut expected = read("x.so", &mut &bytes[..]).unwrap().unwrap();
        expected.path.clone_from(&item.path);
        let of = |item: &Item| format!("{:?} {:?}", item.object.needed, item.code);
        assert_eq!(of(item), of(&expected));
    }
    assert_eq!(found.damaged, []);
    let damaged: Vec<&str> = found.packed.damaged.iter().map(|d| d.0.as_str()).collect();
    assert_eq!(damaged, ["cut.whl", "cut.whl/x/odd.so", "x.whl/x/torn.so"]);
    assert!(found.findings().iter().all(|f| !f.is_error()));
}
