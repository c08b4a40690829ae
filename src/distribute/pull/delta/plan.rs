//! Finds the parts of a new layer in older ones.

use super::member;
use super::toc::{Chunk, Key, Toc};
use bytes::Bytes;
use stackforge_transfer::registry::Piece;
use stackforge_types::{Digest, Sha256};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Shortest local piece between two remote ones, in bytes. A shorter one is fetched, since one more request
/// costs more.
const LEAST_LOCAL: u64 = 32 << 10;
/// Shortest member, in bytes, that is worth inflating the older member to measure it.
const LEAST_MEMBER: u64 = 64 << 10;

/// Most chunks of older layers that are kept, for some 50 MB of memory.
const MOST_CHUNKS: usize = 500_000;

/// What a chunk is recognised by: a part of a SHA-256. A wrong guess is found by the blob's digest.
type Fingerprint = [u8; 16];

/// A chunk of an older layer.
#[derive(Clone, Copy)]
struct Place {
    /// Number of the layer in [`Index::layers`].
    layer: u32,
    offset: u64,
    /// Offset of the next chunk.
    until: u64,
}

/// The chunks of the store's layers. Of equal ones, the first that was added counts.
#[derive(Default)]
pub struct Index {
    layers: Vec<PathBuf>,
    /// Layers by the bytes before their first chunk, and their number.
    heads: HashMap<(Key, u64), u32>,
    /// Chunks by their content and everything up to the next chunk.
    with_gap: HashMap<Fingerprint, Place>,
    /// Chunks by their content.
    by_content: HashMap<Fingerprint, Place>,
    chunks: usize,
}

impl Index {
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Adds a layer, unless the index would become too large.
    pub fn add(&mut self, path: &Path, toc: &Toc) {
        let chunks = self.chunks + toc.chunks.len();
        let layer = u32::try_from(self.layers.len()).ok();
        let Some(layer) = layer.filter(|_| chunks <= MOST_CHUNKS) else {
            return;
        };
        self.chunks = chunks;
        self.layers.push(path.to_owned());
        let first = toc.chunks.first().map_or(toc.end, |chunk| chunk.offset);
        self.heads.entry((toc.head, first)).or_insert(layer);
        for (at, chunk) in toc.chunks.iter().enumerate() {
            let Some(digest) = &chunk.digest else {
                continue;
            };
            let place = Place {
                layer,
                offset: chunk.offset,
                until: toc.until(at),
            };
            let gap = with_gap(digest, chunk, place.until - place.offset);
            self.with_gap.entry(gap).or_insert(place);
            let content = content(digest, chunk);
            self.by_content.entry(content).or_insert(place);
        }
    }

    fn local(&self, layer: u32, offset: u64, length: u64) -> Piece {
        Piece::Local {
            path: self.layers[layer as usize].clone(),
            offset,
            length,
        }
    }
}

fn content(digest: &Digest, chunk: &Chunk) -> Fingerprint {
    let length = chunk.length.to_le_bytes();
    fingerprint(&[digest.hex().as_bytes(), &length])
}

/// `span` is the number of bytes from the chunk's start to the next one's.
fn with_gap(digest: &Digest, chunk: &Chunk, span: u64) -> Fingerprint {
    let numbers = [chunk.length.to_le_bytes(), span.to_le_bytes()].concat();
    fingerprint(&[digest.hex().as_bytes(), &numbers, &chunk.behind])
}

fn fingerprint(parts: &[&[u8]]) -> Fingerprint {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    let mut out = Fingerprint::default();
    out.copy_from_slice(&hash.finalize()[..16]);
    out
}

/// Returns the new layer as pieces. `tail` is the layer's end, from its table of contents.
pub fn pieces(toc: &Toc, tail: Bytes, olders: &Index) -> Vec<Piece> {
    let mut all = vec![head(toc, olders)];
    let mut measured = Measured::new();
    for (place, chunk) in toc.chunks.iter().enumerate() {
        append_pieces(toc, place, chunk, olders, &mut measured, &mut all);
    }
    all.push(Piece::Memory(tail));
    joined(few(joined(all)))
}

fn head(toc: &Toc, olders: &Index) -> Piece {
    let length = toc.chunks.first().map_or(toc.end, |chunk| chunk.offset);
    match olders.heads.get(&(toc.head, length)) {
        Some(layer) => olders.local(*layer, 0, length),
        None => Piece::Remote { length },
    }
}

/// Lengths of members by layer and offset: each is inflated once, however often a table names it.
type Measured = HashMap<(u32, u64), Option<u64>>;

/// Adds the pieces from one chunk's start to the next one's.
fn append_pieces(
    toc: &Toc,
    place: usize,
    chunk: &Chunk,
    olders: &Index,
    measured: &mut Measured,
    all: &mut Vec<Piece>,
) {
    let span = toc.until(place) - chunk.offset;
    let digest = chunk.digest.as_ref();
    let same = digest.and_then(|digest| olders.with_gap.get(&with_gap(digest, chunk, span)));
    if let Some(found) = same {
        all.push(olders.local(found.layer, found.offset, span));
        return;
    }
    let alike = digest.filter(|_| span >= LEAST_MEMBER);
    let alike = alike.and_then(|digest| olders.by_content.get(&content(digest, chunk)));
    let own = alike.and_then(|found| {
        let key = (found.layer, found.offset);
        let path = &olders.layers[found.layer as usize];
        let measure = || member::length(path, found.offset, found.until, chunk.length);
        let own = (*measured.entry(key).or_insert_with(measure))?;
        (own <= span).then(|| (olders.local(found.layer, found.offset, own), span - own))
    });
    match own {
        Some((piece, behind)) => {
            all.push(piece);
            all.push(Piece::Remote { length: behind });
        }
        None => all.push(Piece::Remote { length: span }),
    }
}

/// Joins adjacent pieces of one source.
fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::new();
    for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
        match (all.last_mut(), &piece) {
            (Some(Piece::Remote { length }), Piece::Remote { length: more }) => *length += more,
            (
                Some(Piece::Local {
                    path,
                    offset,
                    length,
                }),
                Piece::Local {
                    path: other,
                    offset: next,
                    length: more,
                },
            ) if path == other && *offset + *length == *next => *length += more,
            _ => all.push(piece),
        }
    }
    all
}

/// Turns short local pieces between remote ones into remote ones, for fewer requests.
fn few(mut pieces: Vec<Piece>) -> Vec<Piece> {
    let remote = |piece: Option<&Piece>| matches!(piece, Some(Piece::Remote { .. }));
    for at in 1..pieces.len() {
        let between = remote(pieces.get(at - 1)) && remote(pieces.get(at + 1));
        if let Piece::Local { length, .. } = pieces[at]
            && between
            && length < LEAST_LOCAL
        {
            pieces[at] = Piece::Remote { length };
        }
    }
    pieces
}
