//! Reads the eStargz footer and table of contents of an untrusted layer.
//!
//! In: the end of a layer. Out: where the contents of its files begin, and a hash of what is between them;
//! `None` if the table is not consistent. Size and number of entries are bounded. The format is
//! `docs/estargz.md` of containerd's stargz-snapshotter.

use flate2::bufread::GzDecoder;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use stackforge_types::{Digest, Sha256};
use std::fmt;
use std::io::{BufReader, Read};

pub const FOOTER: usize = 51;
/// Longest table that is fetched, in bytes, and the most that it may inflate to.
pub const LONGEST: u64 = 64 << 20;
const PLAIN: u64 = 32 << 20;
/// Most entries of a table. A layer of torch's environment has some 30,000; one with more is fetched whole.
const MOST_ENTRIES: usize = 200_000;
const NAME: &str = "stargz.index.json";
/// Block size of a tar, in bytes.
const BLOCK: u64 = 512;

/// Returns the table's offset from the layer's footer.
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

/// The chunks of a layer, in the layer's order.
pub struct Toc {
    pub chunks: Vec<Chunk>,
    /// Key of the bytes before the first chunk.
    pub head: Key,
    /// Offset at which the table begins and the bytes after the last chunk end.
    pub end: u64,
}

/// Hash of everything that decides the bytes between two chunks.
pub type Key = [u8; 32];

/// A gzip member with the content of a file, or a part of it.
pub struct Chunk {
    /// Offset of the member in the layer.
    pub offset: u64,
    /// Digest of the uncompressed content. `None` if the table has no sha256 digest of it.
    pub digest: Option<Digest>,
    /// Length of the uncompressed content, in bytes.
    pub length: u64,
    /// Key of the bytes between this chunk and the next.
    pub behind: Key,
}

/// The relevant fields of an entry of the table.
#[derive(Default)]
struct Entry {
    name: String,
    kind: String,
    size: u64,
    offset: u64,
    chunk_offset: u64,
    chunk_size: u64,
    digest: String,
    chunk_digest: String,
    /// Greater than 0 if several contents share a member; such a table is refused.
    inner_offset: u64,
    /// Hash of the other fields, which decide the tar header.
    rest: Key,
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntryVisitor)
    }
}

/// Reads an entry and keeps only a hash of unknown fields: there may be many of them.
struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an entry of a table of contents")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry, A::Error> {
        let mut entry = Entry::default();
        let mut rest = Sha256::new();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "name" => entry.name = map.next_value()?,
                "type" => entry.kind = map.next_value()?,
                "size" => entry.size = map.next_value()?,
                "offset" => entry.offset = map.next_value()?,
                "chunkOffset" => entry.chunk_offset = map.next_value()?,
                "chunkSize" => entry.chunk_size = map.next_value()?,
                "digest" => entry.digest = map.next_value()?,
                "chunkDigest" => entry.chunk_digest = map.next_value()?,
                "innerOffset" => entry.inner_offset = map.next_value()?,
                _ => {
                    let value: Box<RawValue> = map.next_value()?;
                    rest.update(key.as_bytes());
                    rest.update([0]);
                    rest.update(value.get().as_bytes());
                    rest.update([0]);
                }
            }
        }
        entry.rest = rest.finalize();
        Ok(entry)
    }
}

/// Reads the list of entries one by one into a [`Builder`].
struct Entries<'a>(&'a mut Builder);

impl<'de> DeserializeSeed<'de> for Entries<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut left = MOST_ENTRIES;
        while let Some(entry) = list.next_element::<Entry>()? {
            if left == 0 || self.0.add(entry).is_none() {
                return Err(A::Error::custom("the table does not hold together"));
            }
            left -= 1;
        }
        Ok(())
    }
}

/// Reads the document around the list.
struct Document<'a>(&'a mut Builder);

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of contents")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "entries" {
                map.next_value_seed(Entries(self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// Builds a table of contents entry by entry.
struct Builder {
    chunks: Vec<Chunk>,
    head: Option<Key>,
    between: Sha256,
    /// Size of the file whose chunks follow, in bytes.
    size: u64,
    end: u64,
}

impl Builder {
    fn new(end: u64) -> Self {
        Self {
            chunks: Vec::new(),
            head: None,
            between: Sha256::new(),
            size: 0,
            end,
        }
    }

    /// Adds an entry. `None` if it is not consistent with those before.
    fn add(&mut self, entry: Entry) -> Option<()> {
        if entry.inner_offset > 0 {
            return None;
        }
        let content = match entry.kind.as_str() {
            "reg" => {
                self.size = entry.size;
                self.size > 0
            }
            "chunk" => true,
            _ => false,
        };
        if entry.kind != "chunk" {
            self.between.update(entry.name.as_bytes());
            self.between.update([0]);
            self.between.update(entry.kind.as_bytes());
            self.between.update(entry.size.to_le_bytes());
            self.between.update(entry.rest);
        }
        if !content {
            return Some(());
        }
        let key = self.between.finalize_reset();
        match self.chunks.last_mut() {
            Some(before) => before.behind = key,
            None => self.head = Some(key),
        }
        let length = match entry.chunk_size {
            0 => self.size.checked_sub(entry.chunk_offset)?,
            length => length,
        };
        let follows = (self.chunks.last()).is_none_or(|c| c.offset < entry.offset);
        if !follows || entry.offset >= self.end || length == 0 {
            return None;
        }
        // A tar pads the end of a file to a full block.
        let ends = entry.chunk_offset.checked_add(length)? == self.size;
        let filled = if ends { self.size % BLOCK } else { 0 };
        self.between.update([u8::from(ends)]);
        self.between.update(filled.to_le_bytes());
        let digest = if entry.chunk_digest.is_empty() {
            entry.digest
        } else {
            entry.chunk_digest
        };
        self.chunks.push(Chunk {
            offset: entry.offset,
            digest: digest.parse().ok(),
            length,
            behind: Key::default(),
        });
        Some(())
    }

    fn finish(mut self) -> Option<Toc> {
        let last: Key = self.between.finalize();
        self.chunks.last_mut()?.behind = last;
        Some(Toc {
            chunks: self.chunks,
            head: self.head?,
            end: self.end,
        })
    }
}

impl Toc {
    /// Reads the table from the layer's bytes that begin at offset `at`.
    pub fn read(tail: &[u8], at: u64) -> Option<Self> {
        Self::read_within(tail, at, &mut { PLAIN })
    }

    /// As [`Toc::read`], with at most `left` bytes to inflate, which become fewer.
    pub(super) fn read_within(tail: &[u8], at: u64, left: &mut u64) -> Option<Self> {
        let mut inflated = GzDecoder::new(tail).take(PLAIN.min(*left));
        let allowed = inflated.limit();
        let toc = Self::inflated(&mut inflated, at);
        *left -= allowed - inflated.limit();
        toc
    }

    fn inflated(inflated: impl Read, at: u64) -> Option<Self> {
        let mut tar = stackforge_binary::tar::Reader::new(inflated);
        let mut entry = tar.next().ok()??;
        if entry.header.path != NAME {
            return None;
        }
        let mut toc = Builder::new(at);
        let mut json = serde_json::Deserializer::from_reader(BufReader::new(&mut entry));
        Document(&mut toc).deserialize(&mut json).ok()?;
        json.end().ok()?;
        toc.finish()
    }

    /// Returns the offset at which the bytes after a chunk end.
    pub fn until(&self, chunk: usize) -> u64 {
        self.chunks.get(chunk + 1).map_or(self.end, |c| c.offset)
    }
}
