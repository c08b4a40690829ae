//! Finds the parts of a new layer in older ones.

use super::member;
use super::toc::{Chunk, Key, Toc};
use bytes::Bytes;
use stackforge_transfer::registry::Piece;
use stackforge_types::Digest;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Shortest local piece between two remote ones, in bytes. A shorter one is fetched, since one more request
/// costs more.
const LEAST_LOCAL: u64 = 32 << 10;
/// Shortest member, in bytes, that is worth inflating the older member to measure it.
const LEAST_MEMBER: u64 = 64 << 10;

/// A layer of the store.
pub struct Older {
    path: PathBuf,
    toc: Toc,
    /// Chunks by the digest of their content.
    places: HashMap<Digest, Vec<usize>>,
}

impl Older {
    pub fn new(path: &Path, toc: Toc) -> Self {
        let mut places: HashMap<Digest, Vec<usize>> = HashMap::new();
        for (place, chunk) in toc.chunks.iter().enumerate() {
            if let Some(digest) = &chunk.digest {
                places.entry(digest.clone()).or_default().push(place);
            }
        }
        Self {
            path: path.to_owned(),
            toc,
            places,
        }
    }

    fn local(&self, offset: u64, length: u64) -> Piece {
        Piece::Local {
            path: self.path.clone(),
            offset,
            length,
        }
    }

    /// Returns the chunks with the same content.
    fn like<'a>(&'a self, chunk: &'a Chunk) -> impl Iterator<Item = usize> + 'a {
        let same = |place: &usize| self.toc.chunks[*place].length == chunk.length;
        let places = chunk.digest.as_ref().and_then(|d| self.places.get(d));
        let places = places.into_iter().flatten().copied();
        places.filter(move |place| same(place))
    }
}

/// Returns the new layer as pieces. `tail` is the layer's end, from its table of contents.
pub fn pieces(toc: &Toc, tail: Bytes, olders: &[Older]) -> Vec<Piece> {
    let mut all = vec![head(toc, olders)];
    for (place, chunk) in toc.chunks.iter().enumerate() {
        append_pieces(toc, place, chunk, olders, &mut all);
    }
    all.push(Piece::Memory(tail));
    joined(few(joined(all)))
}

fn head(toc: &Toc, olders: &[Older]) -> Piece {
    let length = toc.chunks.first().map_or(toc.end, |chunk| chunk.offset);
    let first = |older: &Older| older.toc.chunks.first().map(|chunk| chunk.offset);
    let same: Option<(&Older, &Key)> = (olders.iter())
        .map(|older| (older, &older.toc.head))
        .find(|(older, key)| **key == toc.head && first(older) == Some(length));
    match same {
        Some((older, _)) => older.local(0, length),
        None => Piece::Remote { length },
    }
}

/// Adds the pieces from one chunk's start to the next one's.
fn append_pieces(toc: &Toc, place: usize, chunk: &Chunk, olders: &[Older], all: &mut Vec<Piece>) {
    let length = toc.until(place) - chunk.offset;
    let mut content = None;
    for older in olders {
        for other in older.like(chunk) {
            let found = &older.toc.chunks[other];
            let until = older.toc.until(other);
            if found.behind == chunk.behind && until - found.offset == length {
                all.push(older.local(found.offset, length));
                return;
            }
            content = content.or(Some((older, found.offset, until)));
        }
    }
    let own = content.filter(|_| length >= LEAST_MEMBER);
    let own = own.and_then(|(older, offset, until)| {
        let own = member::length(&older.path, offset, until, chunk.length)?;
        (own <= length).then(|| (older.local(offset, own), length - own))
    });
    match own {
        Some((piece, behind)) => {
            all.push(piece);
            all.push(Piece::Remote { length: behind });
        }
        None => all.push(Piece::Remote { length }),
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
