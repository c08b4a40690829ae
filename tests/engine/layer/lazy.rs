//! A layer read as a snapshotter does: footer, table of contents, single files by ranges.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::*;

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    format!("sha256:{hex}")
}

fn range(file: &File, offset: u64, end: u64) -> Vec<u8> {
    let mut bytes = vec![0; (end - offset) as usize];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

/// What one gzip member at the start of these bytes inflates to.
fn member(bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    let mut decoder = flate2::bufread::GzDecoder::new(bytes);
    decoder.read_to_end(&mut content).unwrap();
    content
}

/// Writes a layer and reads each of its files alone; how many chunks there are of files with more
/// than one.
pub fn check(wheels: &[PathBuf], to: &Path) -> usize {
    let stitched = layer(&plain_spec(), wheels, to);
    let layer = &stitched.layer;
    let whole = files(&std::fs::read(to).unwrap());
    let file = File::open(to).unwrap();

    let footer = range(&file, layer.size - 51, layer.size);
    assert_eq!(&footer[..4], [0x1f, 0x8b, 8, 4]);
    assert_eq!(&footer[10..16], [26, 0, b'S', b'G', 22, 0]);
    assert_eq!(&footer[32..38], b"STARGZ");
    assert_eq!(member(&footer), b"");
    let at = std::str::from_utf8(&footer[16..32]).unwrap();
    let at = u64::from_str_radix(at, 16).unwrap();

    let contents = member(&range(&file, at, layer.size - 51));
    let mut contents = tar::Archive::new(&contents[..]);
    let mut entries = contents.entries().unwrap();
    let mut entry = entries.next().unwrap().unwrap();
    assert_eq!(entry.path_bytes(), &b"stargz.index.json"[..]);
    let mut json = Vec::new();
    entry.read_to_end(&mut json).unwrap();
    assert_eq!(digest(&json), stitched.toc_digest.to_string());
    drop(entry);
    assert!(entries.next().is_none());

    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["version"], 1);
    let entries = json["entries"].as_array().unwrap();
    assert_eq!(entries[0]["name"], ".no.prefetch.landmark");
    let number = |entry: &serde_json::Value, key: &str| entry[key].as_u64().unwrap_or(0);
    let mut offsets: BTreeSet<u64> = entries.iter().map(|e| number(e, "offset")).collect();
    offsets.remove(&0);
    offsets.insert(at);
    let mut found: BTreeMap<String, (u32, Vec<u8>)> = BTreeMap::new();
    let mut stated = BTreeMap::new();
    let (mut with_offset, mut chunks) = (0, 0);
    for entry in entries {
        let name = entry["name"].as_str().unwrap().to_owned();
        let kind = entry["type"].as_str().unwrap();
        if kind != "chunk" {
            let mode = number(entry, "mode") as u32;
            assert!(found.insert(name.clone(), (mode, Vec::new())).is_none());
            assert_eq!(entry["modtime"], "2023-11-14T22:13:20Z");
            assert_eq!((number(entry, "uid"), number(entry, "gid")), (0, 0));
        }
        if kind == "dir" {
            assert!(name.ends_with('/') && entry.get("offset").is_none());
            continue;
        }
        if kind == "reg" {
            let digest = entry["digest"].as_str().unwrap().to_owned();
            stated.insert(name.clone(), (number(entry, "size"), digest));
            if number(entry, "size") == 0 {
                continue;
            }
        }
        let offset = number(entry, "offset");
        let next = *offsets.range(offset + 1..).next().unwrap();
        let content = member(&range(&file, offset, next));
        assert_eq!(
            digest(&content),
            entry["chunkDigest"].as_str().unwrap(),
            "{name}"
        );
        let all = &mut found.get_mut(&name).unwrap().1;
        assert_eq!(number(entry, "chunkOffset"), all.len() as u64, "{name}");
        all.extend_from_slice(&content);
        let left = stated[&name].0 - all.len() as u64;
        let size = if left == 0 { 0 } else { content.len() as u64 };
        assert_eq!(number(entry, "chunkSize"), size, "{name}");
        with_offset += 1;
        chunks += usize::from(kind == "chunk");
    }
    // One more is that of the contents themselves.
    assert_eq!(offsets.len(), with_offset + 1);
    for (name, (size, sha256)) in stated {
        let content = &found[&name].1;
        assert_eq!(
            (content.len() as u64, digest(content)),
            (size, sha256),
            "{name}"
        );
    }
    let contents = whole
        .iter()
        .filter(|(path, _)| *path != "stargz.index.json");
    assert!(found.iter().eq(contents));
    chunks
}
