//! eStargz's table of contents: which gzip member holds which file.
//!
//! In: entries in the order of the tar. Out: the JSON that is the tar's last member. A snapshotter reads the
//! footer, then this, and then single files by ranges. The format is `docs/estargz.md` of containerd's
//! stargz-snapshotter.

use serde::Serialize;

use super::layout;
use super::record::Sha256;
use stackforge_types::Digest;
use stackforge_types::date::rfc3339;

pub(super) const NAME: &str = "stargz.index.json";

#[derive(Debug, Serialize)]
pub(super) struct Toc {
    version: u32,
    entries: Vec<Entry>,
    #[serde(skip)]
    modtime: String,
}

/// A gzip member with a file's content, or a part of it.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Offset of the gzip member in the layer, in bytes.
    pub offset: u64,
    /// Range of the chunk in the file. `None` if it is the whole file.
    pub range: Option<std::ops::Range<u64>>,
    /// Digest of the chunk. `None` if it is the whole file's digest.
    pub digest: Option<Sha256>,
}

#[derive(Debug, Default, Clone, Serialize)]
struct Entry {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "is_zero")]
    size: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    modtime: String,
    mode: u32,
    uid: u32,
    gid: u32,
    /// Offset in the layer of the gzip member that begins with the content.
    #[serde(skip_serializing_if = "is_zero")]
    offset: u64,
    #[serde(rename = "chunkOffset", skip_serializing_if = "is_zero")]
    chunk_offset: u64,
    /// Zero, and so left out, for the last chunk.
    #[serde(rename = "chunkSize", skip_serializing_if = "is_zero")]
    chunk_size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<Digest>,
    #[serde(rename = "chunkDigest", skip_serializing_if = "Option::is_none")]
    chunk_digest: Option<Digest>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Toc {
    /// `chunks` and `digests` are those of the entries with content, in the same order.
    pub(super) fn of(
        entries: &[layout::Entry<'_>],
        chunks: &[Chunk],
        digests: &[Sha256],
        epoch: u32,
    ) -> Self {
        let mut toc = Self {
            version: 1,
            entries: Vec::with_capacity(entries.len()),
            modtime: time(epoch),
        };
        let mut chunks = chunks.iter();
        let mut digests = digests.iter();
        for entry in entries {
            let first = toc.entry(entry.name(), entry.mode());
            match entry {
                layout::Entry::Folder(_) => toc.entries.push(Entry {
                    kind: "dir",
                    ..first
                }),
                layout::Entry::File(_, file) if file.size == 0 => toc.entries.push(Entry {
                    digest: Some(Digest::of(b"")),
                    ..first
                }),
                layout::Entry::File(_, file) => {
                    let digest = digests.next().map(|hash| Digest::from_hash(hash));
                    let whole = Entry {
                        size: file.size,
                        digest,
                        ..first
                    };
                    toc.add_chunks(whole, &mut chunks);
                }
            }
        }
        toc
    }

    pub(super) fn add_file(
        &mut self,
        path: &str,
        mode: u32,
        size: u64,
        offset: u64,
        digest: &Sha256,
    ) {
        let digest = Some(Digest::from_hash(digest));
        let entry = Entry {
            size,
            offset,
            chunk_digest: digest.clone(),
            digest,
            ..self.entry(path.to_owned(), mode)
        };
        self.entries.push(entry);
    }

    pub(super) fn json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }

    fn entry(&self, name: String, mode: u32) -> Entry {
        Entry {
            name,
            kind: "reg",
            modtime: self.modtime.clone(),
            mode,
            ..Entry::default()
        }
    }

    fn add_chunks<'a>(&mut self, whole: Entry, chunks: &mut impl Iterator<Item = &'a Chunk>) {
        for chunk in chunks {
            let range = chunk.range.clone().unwrap_or(0..whole.size);
            let last = range.end == whole.size;
            let place = Entry {
                offset: chunk.offset,
                chunk_offset: range.start,
                chunk_size: if last { 0 } else { range.end - range.start },
                chunk_digest: match &chunk.digest {
                    Some(digest) => Some(Digest::from_hash(digest)),
                    None => whole.digest.clone(),
                },
                ..Entry::default()
            };
            self.entries.push(if range.start == 0 {
                Entry {
                    offset: place.offset,
                    chunk_size: place.chunk_size,
                    chunk_digest: place.chunk_digest,
                    ..whole.clone()
                }
            } else {
                Entry {
                    name: whole.name.clone(),
                    kind: "chunk",
                    ..place
                }
            });
            if last {
                break;
            }
        }
    }
}

/// Formats a time as RFC 3339 in UTC. Empty for 0, as the format takes 1970 for unknown.
pub(super) fn time(seconds: u32) -> String {
    match seconds {
        0 => String::new(),
        _ => rfc3339(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date() {
        // As `date -u -d @SECONDS +%FT%TZ` prints them.
        for (seconds, text) in [
            (0, ""),
            (1, "1970-01-01T00:00:01Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (u32::MAX, "2106-02-07T06:28:15Z"),
        ] {
            assert_eq!(time(seconds), text);
        }
    }
}
