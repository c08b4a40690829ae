//! eStargz's footer and table of contents, of anyone's layer.
//!
//! In: the end of a layer. Out: where the contents of its files begin, and what stands between them;
//! or nothing for what does not hold together. Bounded in size and entries. The format is
//! `docs/estargz.md` of containerd's stargz-snapshotter.

use flate2::bufread::GzDecoder;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::io::{BufReader, Read as _};

pub const FOOTER: usize = 51;
/// Most bytes that are fetched for a table, and that it inflates to.
pub const LONGEST: u64 = 64 << 20;
const PLAIN: u64 = 32 << 20;
/// A layer of torch's environment has some 30,000. A layer with more is fetched whole.
const MOST_ENTRIES: usize = 200_000;
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

/// One entry of the table, as far as it matters here.
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
    /// Several contents in one member: nothing that is taken apart here.
    inner_offset: u64,
    /// Of everything else: what headers are made from.
    rest: Key,
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntryVisitor)
    }
}

/// Keeps nothing of fields that it does not know but their hash: there may be many of them.
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
        entry.rest = rest.finalize().into();
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

/// The document around the list.
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

/// A table of contents on its way.
struct Builder {
    chunks: Vec<Chunk>,
    head: Option<Key>,
    between: Sha256,
    /// Of the file whose chunks follow.
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

    /// `None` for an entry that does not fit those before.
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
        let key = std::mem::take(&mut self.between).finalize().into();
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
        // The end of a file is filled up to a block.
        let ends = entry.chunk_offset.checked_add(length)? == self.size;
        let filled = if ends { self.size % BLOCK } else { 0 };
        self.between.update([u8::from(ends)]);
        self.between.update(filled.to_le_bytes());
        let digest = match entry.chunk_digest.is_empty() {
            true => entry.digest,
            false => entry.chunk_digest,
        };
        self.chunks.push(Chunk {
            offset: entry.offset,
            digest,
            length,
            behind: Key::default(),
        });
        Some(())
    }

    fn finish(mut self) -> Option<Toc> {
        let last: Key = self.between.finalize().into();
        self.chunks.last_mut()?.behind = last;
        Some(Toc {
            chunks: self.chunks,
            head: self.head?,
            end: self.end,
        })
    }
}

impl Toc {
    /// From the bytes of a layer from `at` on.
    pub fn read(tail: &[u8], at: u64) -> Option<Self> {
        let inflated = GzDecoder::new(tail).take(PLAIN);
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

    /// Where the surroundings of a chunk end.
    pub fn until(&self, chunk: usize) -> u64 {
        self.chunks.get(chunk + 1).map_or(self.end, |c| c.offset)
    }
}
