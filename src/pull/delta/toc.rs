//! eStargz's footer and table of contents, of anyone's layer.
//!
//! In: the end of a layer. Out: where the contents of its files begin, and what stands between them;
//! or nothing for what does not hold together. Bounded in size and entries. The format is
//! `docs/estargz.md` of containerd's stargz-snapshotter.

use flate2::bufread::GzDecoder;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::io::Read as _;

pub const FOOTER: usize = 51;
/// Of what is fetched for it, and of what that inflates to.
pub const LONGEST: u64 = 64 << 20;
const PLAIN: u64 = 256 << 20;
const MOST_ENTRIES: usize = 2_000_000;
const NAME: &str = "stargz.index.json";
/// Of a tar.
const BLOCK: u64 = 512;

/// Where the table begins, by the last bytes of a layer.
pub fn place(footer: &[u8]) -> Option<u64> {
    let extra = footer.get(10..38)?;
    let right = footer.len() == FOOTER
        && footer.starts_with(&[0x1f, 0x8b, 8, 4])
        && extra.starts_with(&[26, 0, b'S', b'G', 22, 0])
        && extra.ends_with(b"STARGZ");
    let hex = std::str::from_utf8(extra.get(6..22)?).ok()?;
    let plain = hex.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(hex, 16).ok().filter(|_| right && plain)
}

/// The contents of a layer, in its order.
pub struct Toc {
    pub chunks: Vec<Chunk>,
    /// What stands before the first chunk, by its hash.
    pub head: Key,
    /// Where the table begins, and the last chunk's surroundings end.
    pub end: u64,
}

/// A hash of what decides the bytes that stand between two contents.
pub type Key = [u8; 32];

/// A gzip member with a file's content, or a part of it.
pub struct Chunk {
    /// Of the member, in the layer.
    pub offset: u64,
    /// Of the content, uncompressed, and its length.
    pub digest: String,
    pub length: u64,
    /// What stands behind it, up to the next.
    pub behind: Key,
}

#[derive(Deserialize)]
struct Document {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    chunk_offset: u64,
    #[serde(default)]
    chunk_size: u64,
    #[serde(default)]
    digest: String,
    #[serde(default)]
    chunk_digest: String,
    /// Several contents in one member: nothing that is taken apart here.
    #[serde(default)]
    inner_offset: u64,
    /// Everything else: what headers are made from.
    #[serde(flatten)]
    rest: serde_json::Map<String, serde_json::Value>,
}

impl Toc {
    /// From the bytes of a layer from `at` on.
    pub fn read(tail: &[u8], at: u64) -> Option<Self> {
        let inflated = GzDecoder::new(tail).take(PLAIN);
        let mut tar = crate::tar::Reader::new(inflated);
        let mut entry = tar.next().ok()??;
        if entry.header.path != NAME {
            return None;
        }
        let mut json = Vec::new();
        entry.read_to_end(&mut json).ok()?;
        let document: Document = serde_json::from_slice(&json).ok()?;
        if document.entries.len() > MOST_ENTRIES {
            return None;
        }
        Self::of(&document.entries, at)
    }

    fn of(entries: &[Entry], end: u64) -> Option<Self> {
        let mut chunks: Vec<Chunk> = Vec::new();
        let mut head = None;
        let mut between = Sha256::new();
        let mut size = 0;
        for entry in entries {
            if entry.inner_offset > 0 {
                return None;
            }
            let content = match entry.kind.as_str() {
                "reg" => {
                    size = entry.size;
                    size > 0
                }
                "chunk" => true,
                _ => false,
            };
            if entry.kind != "chunk" {
                between.update(entry.name.as_bytes());
                between.update([0]);
                between.update(entry.kind.as_bytes());
                between.update(entry.size.to_le_bytes());
                between.update(serde_json::to_vec(&entry.rest).ok()?);
            }
            if !content {
                continue;
            }
            let key = std::mem::take(&mut between).finalize().into();
            match chunks.last_mut() {
                Some(before) => before.behind = key,
                None => head = Some(key),
            }
            let length = match entry.chunk_size {
                0 => size.checked_sub(entry.chunk_offset)?,
                length => length,
            };
            let follows = chunks.last().is_none_or(|c| c.offset < entry.offset);
            if !follows || entry.offset >= end || length == 0 {
                return None;
            }
            let digest = match entry.chunk_digest.is_empty() {
                true => &entry.digest,
                false => &entry.chunk_digest,
            };
            chunks.push(Chunk {
                offset: entry.offset,
                digest: digest.clone(),
                length,
                behind: Key::default(),
            });
            // The end of a file is filled up to a block.
            let ends = entry.chunk_offset.checked_add(length)? == size;
            let filled = if ends { size % BLOCK } else { 0 };
            between.update([u8::from(ends)]);
            between.update(filled.to_le_bytes());
        }
        let last: Key = between.finalize().into();
        chunks.last_mut()?.behind = last;
        Some(Self {
            chunks,
            head: head?,
            end,
        })
    }

    /// Where the surroundings of a chunk end.
    pub fn until(&self, chunk: usize) -> u64 {
        self.chunks.get(chunk + 1).map_or(self.end, |c| c.offset)
    }
}
