//! Wheels made byte by byte: what is installed, and what is refused.

mod hostile;

use std::collections::BTreeMap;
use std::io::Read as _;

use super::*;
use stackforge_binary::samples::archive::{Build, File};
use stackforge_types::Digest;

const WHEEL: &[u8] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n";
const SITE: &str = "opt/lib/python3.12/site-packages";

fn spec() -> Spec {
    Spec {
        scheme: Scheme::posix_prefix("/opt", "3.12"),
        python: "/opt/bin/python3".to_owned(),
        epoch: 1_700_000_000,
        level: 6,
        threads: 2,
    }
}

/// RECORD of `files` with the right digests.
fn record(files: &[File], contents: &[(&str, &[u8])]) -> String {
    let mut text = String::new();
    for file in files {
        let content = contents.iter().find(|(name, _)| *name == file.name);
        let content = content.map_or(&file.content[..], |(_, content)| content);
        let digest = record::sha256(content);
        record::line(&mut text, &file.name, Some((&digest, 0)));
    }
    text
}

/// A wheel `NAME-1` of deflated files, which RECORD lists, and of other files.
fn wheel(name: &str, deflated: &[(&str, &[u8])], others: Vec<File>) -> Vec<u8> {
    let mut files: Vec<File> = (deflated.iter())
        .map(|(name, content)| File::deflated(name, content))
        .chain(others)
        .collect();
    let own = |file: &str| format!("{name}-1.dist-info/{file}");
    files.push(File::new(&own("WHEEL"), WHEEL));
    let rows = record(&files, deflated);
    files.push(File::deflated(&own("RECORD"), rows.as_bytes()));
    Build::of(files).bytes()
}

fn open<'a>(name: &str, bytes: &'a [u8]) -> Result<Wheel<&'a [u8]>, LayerError> {
    Wheel::open(&format!("{name}-1-py3-none-any.whl"), bytes)
}

/// The layer of these wheels.
fn layer_of(
    spec: &Spec,
    wheels: &[(&str, &[u8])],
    drop: &[String],
) -> Result<(Stitched, Vec<u8>), LayerError> {
    let wheels = wheels.iter().map(|(name, bytes)| open(name, bytes));
    let wheels: Vec<_> = wheels.collect::<Result<_, _>>()?;
    let requested = true;
    let changed = BTreeMap::new();
    let install = |wheel| Install {
        wheel,
        requested,
        drop,
        changed: &changed,
    };
    let installs: Vec<_> = wheels.iter().map(install).collect();
    let (mut out, mut plain) = (Vec::new(), Vec::new());
    let layer = write_watched(spec, &installs, &mut out, |piece| {
        plain.extend_from_slice(piece);
    })?;
    let mut inflated = Vec::new();
    let mut inflate = flate2::read::MultiGzDecoder::new(&out[..]);
    inflate.read_to_end(&mut inflated).unwrap();
    assert!(plain == inflated, "its tar is what was passed on");
    Ok((layer, out))
}

type Files = BTreeMap<String, (u32, Vec<u8>)>;

fn files(layer: &[u8]) -> Files {
    let mut archive = ::tar::Archive::new(flate2::read::MultiGzDecoder::new(layer));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (path, (entry.header().mode().unwrap(), content))
    });
    entries.collect()
}

fn installed(wheels: &[(&str, &[u8])]) -> Files {
    files(&layer_of(&spec(), wheels, &[]).unwrap().1)
}

#[test]
fn every_part_goes_to_its_folder() {
    let bytes = wheel(
        "a",
        &[
            ("a/__init__.py", b"x"),
            ("a/empty.py", b""),
            ("a-1.data/purelib/pure.py", b"pure"),
            ("a-1.data/scripts/tool", b"#!python\nprint()\n"),
            ("a-1.data/scripts/native", b"\x7fELF"),
            ("a-1.data/headers/a.h", b"h"),
            ("a-1.data/data/share/a/e f.txt", b"d"),
            (
                "a-1.dist-info/entry_points.txt",
                b"[console_scripts]\nrun = a:main\n",
            ),
            ("a-1.dist-info/direct_url.json", b"{}"),
            ("a-1.dist-info/INSTALLER", b"other"),
        ],
        vec![],
    );
    let files = installed(&[("a", &bytes)]);
    let content = |path: &str| files[path].1.as_slice();
    let mode = |path: &str| files[path].0;
    assert_eq!(content(&format!("{SITE}/pure.py")), b"pure");
    assert_eq!(content("opt/include/python3.12/a/a.h"), b"h");
    assert_eq!(content("opt/share/a/e f.txt"), b"d");
    assert_eq!(content("opt/bin/tool"), b"#!/opt/bin/python3\nprint()\n");
    assert_eq!(
        (mode("opt/bin/tool"), mode("opt/bin/native")),
        (0o755, 0o755)
    );
    assert!(content("opt/bin/run").starts_with(b"#!/opt/bin/python3\n"));
    assert_eq!(mode("opt/bin/run"), 0o755);
    assert_eq!(mode(&format!("{SITE}/a/__init__.py")), 0o644);
    let info = |file: &str| format!("{SITE}/a-1.dist-info/{file}");
    assert_eq!(content(&info("INSTALLER")), b"stackforge\n");
    assert_eq!(content(&info("REQUESTED")), b"");
    assert!(!files.contains_key(&info("direct_url.json")));
    assert_eq!(files["opt/lib/"].0, 0o755);

    let text = String::from_utf8(content(&info("RECORD")).to_vec()).unwrap();
    let rows = record::parse(&text).unwrap();
    assert_eq!(rows["a-1.dist-info/RECORD"], None);
    let listed = rows
        .iter()
        .filter_map(|(path, digest)| Some((path, digest.as_ref()?)));
    for (path, digest) in listed.clone() {
        let path = match path.strip_prefix("../../../") {
            Some(path) => format!("opt/{path}"),
            None => format!("{SITE}/{path}"),
        };
        let found = record::sha256(content(&path));
        assert_eq!(*digest, record::digest("sha256", &found), "{path}");
    }
    // All files except RECORD, the landmark, the table of contents and directories.
    let plain = files.keys().filter(|path| !path.ends_with('/')).count();
    assert_eq!(listed.count(), plain - 3);
}

#[test]
fn a_pattern_drops_files_and_their_lines() {
    let bytes = wheel(
        "a",
        &[
            ("a/include/x/y.h", b"h"),
            ("a/lib/libz.a", b"static"),
            ("a/lib/libz.so", b"shared"),
            ("top.a", b"static"),
        ],
        vec![],
    );
    let drop = ["a/include/**", "**/*.a", "a-1.dist-info/**"].map(str::to_owned);
    let files = files(&layer_of(&spec(), &[("a", &bytes)], &drop).unwrap().1);
    let record = &files[&format!("{SITE}/a-1.dist-info/RECORD")].1;
    let record = String::from_utf8(record.clone()).unwrap();
    let paths: Vec<&str> = record
        .lines()
        .map(|l| l.split(',').next().unwrap())
        .collect();
    let info = ["INSTALLER", "RECORD", "REQUESTED", "WHEEL"].map(|f| format!("a-1.dist-info/{f}"));
    let mut expected: Vec<&str> = info.iter().map(String::as_str).collect();
    expected.push("a/lib/libz.so");
    assert_eq!(paths, expected);
    assert!(!files.contains_key(&format!("{SITE}/a/include/")));
    let bad = layer_of(&spec(), &[("a", &bytes)], &["a/***".to_owned()]);
    assert!(matches!(bad, Err(LayerError::Pattern { .. })));
}

#[test]
fn another_content_takes_a_members_place() {
    let old = vec![7; 3 << 20];
    let bytes = wheel("a", &[("a/x.so", &old), ("a/y.so", &old)], vec![]);
    let wheel = open("a", &bytes).unwrap();
    let new: Vec<u8> = (0..3u32 << 20)
        .map(|n| (n.wrapping_mul(n) >> 13) as u8)
        .collect();
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, &new).unwrap();
    let changed = Changed::new(file.into(), 0, new.len() as u64).unwrap();
    let chunks = changed.chunks().count();
    assert!(chunks > 2);
    let install = Install {
        wheel: &wheel,
        requested: false,
        drop: &[],
        changed: &BTreeMap::from([("a/x.so".to_owned(), changed)]),
    };
    let mut layer = Vec::new();
    let written = write(&spec(), &[install], &mut layer).unwrap();
    // The content was replaced on purpose, so this is not a misstated digest.
    assert!(written.misstated.is_empty() && written.unlisted.is_empty());
    let files = files(&layer);
    assert_eq!(files[&format!("{SITE}/a/x.so")].1, new);
    assert_eq!(files[&format!("{SITE}/a/y.so")].1, old);
    let listed = String::from_utf8(files[&format!("{SITE}/a-1.dist-info/RECORD")].1.clone());
    let row = record::digest("sha256", &record::sha256(&new));
    assert!(
        listed
            .unwrap()
            .contains(&format!("a/x.so,{row},{}\n", new.len()))
    );
    // Each of its chunks is a gzip member.
    let toc: serde_json::Value = serde_json::from_slice(&files["stargz.index.json"].1).unwrap();
    let entries = toc["entries"].as_array().unwrap();
    let own = entries
        .iter()
        .filter(|e| e["name"].as_str().unwrap().ends_with("a/x.so"));
    let mut at = 0;
    for (n, entry) in own.enumerate() {
        let number = |key: &str| entry[key].as_u64().unwrap_or(0);
        assert_eq!(number("chunkOffset"), at as u64);
        let end = match number("chunkSize") {
            0 => new.len(),
            size => at + size as usize,
        };
        let mut content = Vec::new();
        flate2::read::GzDecoder::new(&layer[number("offset") as usize..])
            .read_to_end(&mut content)
            .unwrap();
        assert_eq!(content, new[at..end], "chunk {n}");
        assert_eq!(entry["chunkDigest"], Digest::of(&content).to_string());
        at = end;
    }
    assert_eq!(at, new.len());
}

#[test]
fn a_namespace_is_of_both_wheels() {
    let a = wheel(
        "a",
        &[("ns/__init__.py", b"# both"), ("ns/a.py", b"")],
        vec![],
    );
    let b = wheel(
        "b",
        &[("ns/__init__.py", b"# both"), ("ns/b.py", b"")],
        vec![],
    );
    let files = installed(&[("a", &a), ("b", &b)]);
    for name in ["a", "b"] {
        let record = &files[&format!("{SITE}/{name}-1.dist-info/RECORD")].1;
        assert!(String::from_utf8_lossy(record).contains("ns/__init__.py,sha256="));
    }
}

#[test]
fn threads_and_the_order_of_wheels_change_no_byte() {
    let noise: Vec<u8> = (0..3_500_000u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let a = wheel(
        "a",
        &[("a/x.so", &noise)],
        vec![File::new("a/stored.so", &noise)],
    );
    let b = wheel("b", &[("b/x.py", b"x")], vec![]);
    let (first, bytes) = layer_of(&spec(), &[("a", &a), ("b", &b)], &[]).unwrap();
    for threads in [0, 1, 7, 500] {
        let spec = Spec { threads, ..spec() };
        let (layer, other) = layer_of(&spec, &[("b", &b), ("a", &a)], &[]).unwrap();
        let stated = |made: &Stitched| serde_json::to_value(&made.layer).unwrap();
        assert_eq!(stated(&layer), stated(&first));
        assert_eq!(layer.toc_digest, first.toc_digest);
        assert!(other == bytes);
    }
    let first = first.layer;
    let found = files(&bytes);
    assert!(found[&format!("{SITE}/a/x.so")].1 == noise);
    assert!(found[&format!("{SITE}/a/stored.so")].1 == noise);
    let mut plain = Vec::new();
    flate2::read::MultiGzDecoder::new(&bytes[..])
        .read_to_end(&mut plain)
        .unwrap();
    assert_eq!(first.diff_id, Digest::of(&plain));
    assert_eq!(first.digest, Digest::of(&bytes));
    assert_eq!(
        (first.plain_size, first.size),
        (plain.len() as u64, bytes.len() as u64)
    );
}

/// Many distributions install one by mistake; whichever wheel comes first by name keeps its own.
#[test]
fn files_that_belong_to_nobody_may_differ() {
    let one = [
        ("a/x.py", &b"a"[..]),
        ("tests/t.py", b"1"),
        ("setup.py", b"1"),
    ];
    let a = wheel("a", &one, vec![]);
    let other = [
        ("b/x.py", &b"b"[..]),
        ("tests/t.py", b"2"),
        ("setup.py", b"2"),
    ];
    let b = wheel("b", &other, vec![]);
    let (_, bytes) = layer_of(&spec(), &[("a", &a), ("b", &b)], &[]).unwrap();
    let (_, turned) = layer_of(&spec(), &[("b", &b), ("a", &a)], &[]).unwrap();
    assert!(bytes == turned);
    let found = files(&bytes);
    for name in ["tests/t.py", "setup.py"] {
        assert_eq!(found[&format!("{SITE}/{name}")].1, b"1");
        let listed = |wheel: &str| {
            let record = &found[&format!("{SITE}/{wheel}-1.dist-info/RECORD")].1;
            String::from_utf8_lossy(record).contains(&format!("{name},sha256="))
        };
        assert!(listed("a") && !listed("b"));
    }
}

#[test]
fn any_number_of_empty_files_is_installed() {
    let names: Vec<String> = (0..1000).map(|i| format!("a/{i}/x.py")).collect();
    let empty: Vec<(&str, &[u8])> = names.iter().map(|n| (n.as_str(), &b""[..])).collect();
    let bytes = wheel("a", &empty, vec![]);
    let files = installed(&[("a", &bytes)]);
    let found = names
        .iter()
        .filter(|n| files.contains_key(&format!("{SITE}/{n}")));
    assert_eq!(found.count(), 1000);
}

#[test]
fn a_layer_of_no_wheel_is_one() {
    let (layer, bytes) = layer_of(&spec(), &[], &[]).unwrap();
    assert_eq!(layer.files, 0);
    assert_eq!(files(&bytes).len(), 2);
}
