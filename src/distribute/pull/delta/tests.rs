//! Tests layers of wheels of which the next version differs in some files.

use super::plan::{Index, pieces};
use super::toc::{self, FOOTER, Toc};
use bytes::Bytes;
use proptest::prelude::*;
use stackforge_transfer::registry::Piece;
use std::io::{Read as _, Write as _};
use std::path::Path;

/// Returns a layer as the `image` crate writes it: gzip members, contents between headers, table, footer.
fn layer(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    cut(files, usize::MAX)
}

/// As `layer`, with contents in chunks of `chunk` bytes.
fn cut(files: &[(&str, Vec<u8>)], chunk: usize) -> Vec<u8> {
    let member = |plain: &[u8]| {
        let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
        let mut deflate =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::new(6));
        deflate.write_all(plain).unwrap();
        gzip.extend(deflate.finish().unwrap());
        let mut crc = flate2::Crc::new();
        crc.update(plain);
        gzip.extend(crc.sum().to_le_bytes());
        gzip.extend((plain.len() as u32).to_le_bytes());
        gzip
    };
    let header = |name: &str, size: usize| {
        let mut header = tar::Header::new_ustar();
        header.set_path(name).unwrap();
        header.set_size(size as u64);
        header.set_mode(0o644);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let padding = |size: usize| vec![0; (512 - size % 512) % 512];
    let (mut out, mut entries, mut before) = (Vec::new(), Vec::new(), 0);
    for (name, content) in files {
        out.extend(member(
            &[padding(before), header(name, content.len())].concat(),
        ));
        let digest = stackforge_types::Digest::of(content);
        for (n, part) in content.chunks(chunk).enumerate() {
            let own = stackforge_types::Digest::of(part);
            let last = n == (content.len() - 1) / chunk;
            entries.push(
                serde_json::json!({ "name": name, "type": if n == 0 { "reg" } else { "chunk" },
                "size": if n == 0 { content.len() } else { 0 }, "mode": 420, "offset": out.len(),
                "digest": if n == 0 { digest.to_string() } else { String::new() },
                "chunkOffset": n.saturating_mul(chunk), "chunkDigest": own,
                "chunkSize": if last { 0 } else { part.len() } }),
            );
            out.extend(member(part));
        }
        before = content.len();
    }
    out.extend(member(&padding(before)));
    let at = out.len();
    let json = serde_json::json!({ "version": 1, "entries": entries }).to_string();
    let table = [
        header("stargz.index.json", json.len()),
        json.clone().into_bytes(),
        padding(json.len()),
        vec![0; 1024],
    ];
    out.extend(member(&table.concat()));
    let mut footer = [0; FOOTER];
    footer[..10].copy_from_slice(&[0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff]);
    footer[10..16].copy_from_slice(&[26, 0, b'S', b'G', 22, 0]);
    footer[16..38].copy_from_slice(format!("{at:016x}STARGZ").as_bytes());
    footer[38..43].copy_from_slice(&[1, 0, 0, 0xff, 0xff]);
    out.extend(footer);
    out
}

fn table(layer: &[u8]) -> (Toc, Bytes) {
    let at = toc::place(&layer[layer.len() - FOOTER..]).unwrap();
    let tail = Bytes::copy_from_slice(&layer[at as usize..]);
    (Toc::read(&tail, at).unwrap(), tail)
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(len).collect()
}

/// Applies the pieces and returns the blob and the bytes that were fetched.
fn made(pieces: &[Piece], new: &[u8]) -> (Vec<u8>, u64) {
    let (mut out, mut fetched) = (Vec::new(), 0);
    for piece in pieces {
        match piece {
            Piece::Local {
                path,
                offset,
                length,
            } => {
                let old = std::fs::read(path).unwrap();
                out.extend_from_slice(&old[*offset as usize..(offset + length) as usize]);
            }
            Piece::Memory(bytes) => out.extend_from_slice(bytes),
            Piece::Remote { length } => {
                out.extend_from_slice(&new[out.len()..out.len() + *length as usize]);
                fetched += length;
            }
        }
    }
    (out, fetched)
}

/// An index of one older layer.
fn older(dir: &Path, layer: &[u8]) -> Index {
    let path = dir.join("old");
    std::fs::write(&path, layer).unwrap();
    let mut index = Index::default();
    index.add(&path, &table(layer).0);
    index
}

/// Also holds for chunks whose compressed size is below the shortest member that is measured.
#[test]
fn chunks_of_a_file_that_has_another_length_are_not_fetched_again() {
    let dir = tempfile::tempdir().unwrap();
    let text = |seed, len| noise(seed, len).iter().map(|b| b % 4).collect::<Vec<u8>>();
    let content = text(1, 2_000_000);
    let longer = [&content[..], &text(2, 70_000 + 77)].concat();
    let old = cut(&[("x.so", content), ("y", noise(3, 900))], 100_000);
    let new = cut(&[("x.so", longer), ("y", noise(3, 900))], 100_000);
    let (toc, tail) = table(&new);
    let (blob, fetched) = made(&pieces(&toc, tail, &older(dir.path(), &old)), &new);
    assert!(blob == new);
    assert!(fetched < 60_000, "{fetched} of {}", new.len());
}

#[test]
fn only_what_changed_is_fetched_and_every_byte_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b, c) = (noise(1, 300_000), noise(2, 200_001), noise(3, 150_000));
    let old = layer(&[
        ("lib/a.so", a.clone()),
        ("lib/b.so", b.clone()),
        ("lib/c.so", c.clone()),
        ("vllm-0.32.0.dist-info/METADATA", noise(4, 900)),
    ]);
    let changed = noise(5, 70_000);
    let new = layer(&[
        ("lib/a.so", a),
        ("lib/a2.so", changed),
        ("lib/b.so", b),
        ("lib/c.so", c),
        ("vllm-0.33.0.dist-info/METADATA", noise(6, 950)),
    ]);
    let (toc, tail) = table(&new);
    let pieces = pieces(&toc, tail, &older(dir.path(), &old));
    let (bytes, fetched) = made(&pieces, &new);
    assert!(bytes == new);
    assert!((70_000..75_000).contains(&fetched), "{fetched}");
}

/// A table of `count` chunks of 64 KiB with one content and other neighbours each.
fn alike(count: u64, neighbours: u8) -> Toc {
    let digest = stackforge_types::Digest::of(b"one");
    let chunk = |n: u64| {
        let mut behind = [neighbours; 32];
        behind[..8].copy_from_slice(&n.to_le_bytes());
        toc::Chunk {
            offset: n * 70_000,
            digest: Some(digest.clone()),
            length: 100_000,
            behind,
        }
    };
    Toc {
        chunks: (0..count).map(chunk).collect(),
        head: [neighbours; 32],
        end: count * 70_000,
    }
}

/// The time would be some hours if each chunk were compared with each, or inflated the other again.
#[test]
fn many_chunks_with_one_content_cost_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old");
    std::fs::write(&path, layer(&[("a", noise(1, 100_000))])).unwrap();
    let mut olders = Index::default();
    olders.add(&path, &alike(150_000, 1));
    let all = pieces(&alike(150_000, 2), Bytes::new(), &olders);
    assert!(matches!(all[..], [Piece::Remote { length }] if length == 150_000 * 70_000));
}

#[test]
fn no_more_chunks_are_kept_than_memory_is_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut olders = Index::default();
    for n in 0..4 {
        olders.add(&dir.path().join(n.to_string()), &alike(200_000, n));
    }
    let pieces = |n| pieces(&alike(10, n), Bytes::new(), &olders);
    assert!(matches!(pieces(1)[0], Piece::Local { .. }));
    assert!(
        matches!(pieces(3)[0], Piece::Remote { .. }),
        "there was no room"
    );
}

#[test]
fn tables_are_read_within_a_bound() {
    let files: Vec<(String, Vec<u8>)> = (0..50).map(|n| (format!("f{n}"), noise(n, 10))).collect();
    let files: Vec<(&str, Vec<u8>)> = files.iter().map(|(n, c)| (&n[..], c.clone())).collect();
    let layer = layer(&files);
    let at = toc::place(&layer[layer.len() - FOOTER..]).unwrap();
    let tail = &layer[at as usize..];
    let mut left = 1 << 20;
    assert!(Toc::read_within(tail, at, &mut left).is_some());
    let taken = (1 << 20) - left;
    assert!(taken > 5_000, "{taken}");
    let mut left = taken / 2;
    assert!(Toc::read_within(tail, at, &mut left).is_none());
    assert_eq!(left, 0, "it was used up");
}

#[test]
fn a_tail_that_is_no_table_is_none() {
    let right = layer(&[("a", noise(1, 1000))]);
    let footer = &right[right.len() - FOOTER..];
    assert!(toc::place(footer).is_some());
    assert_eq!(toc::place(&footer[1..]), None);
    let mut other = footer.to_vec();
    other[20] = b'+';
    assert_eq!(toc::place(&other), None);
    assert!(Toc::read(b"", 0).is_none());
    let at = toc::place(footer).unwrap();
    // The offsets in this table point behind it.
    assert!(Toc::read(&right[at as usize..], 5).is_none());
}

proptest! {
    #[test]
    fn any_two_layers_give_the_new_one(
        old in proptest::collection::vec((0u64..6, 1usize..90_000), 1..6),
        new in proptest::collection::vec((0u64..6, 1usize..90_000), 1..6),
        shared in proptest::collection::vec(any::<bool>(), 6),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..6).map(|n| format!("f{n}")).collect();
        let files = |list: &[(u64, usize)]| -> Vec<(String, Vec<u8>)> {
            list.iter().enumerate().map(|(n, (seed, len))| (names[n].clone(), noise(*seed, *len))).collect()
        };
        let (old, mut new) = (files(&old), files(&new));
        for (n, file) in new.iter_mut().enumerate() {
            if shared[n] && n < old.len() {
                *file = old[n].clone();
            }
        }
        let plain = |files: &[(String, Vec<u8>)]| {
            let files: Vec<(&str, Vec<u8>)> = files.iter().map(|(n, c)| (n.as_str(), c.clone())).collect();
            layer(&files)
        };
        let (old, new) = (plain(&old), plain(&new));
        let (toc, tail) = table(&new);
        let pieces = pieces(&toc, tail, &older(dir.path(), &old));
        let (bytes, _) = made(&pieces, &new);
        prop_assert!(bytes == new);
    }

    #[test]
    fn foreign_bytes_are_no_table_or_one_that_holds_together(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        json in "\\{\"entries\":\\[(\\{\"name\":\"a\",\"type\":\"(reg|chunk|dir)\",\"size\":[0-9]{1,20},\"offset\":[0-9]{1,20},\"chunkOffset\":[0-9]{1,20}\\},?){0,3}\\]\\}",
    ) {
        toc::place(&bytes);
        prop_assert!(Toc::read(&bytes, 1000).is_none());
        let mut header = tar::Header::new_ustar();
        header.set_path("stargz.index.json").unwrap();
        header.set_size(json.len() as u64);
        header.set_cksum();
        let mut gzip = flate2::read::GzEncoder::new(
            std::io::Cursor::new([header.as_bytes(), json.as_bytes(), &[0; 2048]].concat()),
            flate2::Compression::fast(),
        );
        let mut tail = Vec::new();
        gzip.read_to_end(&mut tail).unwrap();
        if let Some(toc) = Toc::read(&tail, 1000) {
            for (place, chunk) in toc.chunks.iter().enumerate() {
                prop_assert!(chunk.offset < toc.until(place) && toc.until(place) <= 1000);
            }
        }
    }
}
