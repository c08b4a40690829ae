//! Inside a changed layer: what of it older layers of the store have.
//!
//! In: a layer of a registry, and older ones in the store; both with eStargz's table of contents.
//! Out: the new blob as pieces, of which most lie here. stackforge's layers are made without a choice:
//! the same file with the same neighbours is the same gzip members. So a stretch from one content to
//! the next is taken from an older layer where digest, neighbours and length are the same; where only
//! the content is, its gzip member is, and what is behind it is fetched. All of this is a guess that
//! costs nothing: the blob is verified as a whole, and fetched as a whole where the guess was wrong.

mod member;
mod plan;
#[cfg(test)]
mod tests;
pub mod toc;

use super::Settings;
use super::resolve::Resolved;
use stackforge_image::oci;
use stackforge_transfer::registry::{Descriptor, Piece, RegistryError};
use stackforge_types::Digest;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use plan::Older;
use toc::{FOOTER, Toc};

/// Below this a layer is fetched as a whole: it comes before the questions are answered.
const LEAST: u64 = 1 << 20;
/// Of what is fetched first: with luck the whole table of contents.
const TAIL: u64 = 256 << 10;
/// The part of a layer that has to be here.
const LEAST_SHARE: u64 = 50;
/// What each request has to spare, in bytes.
const LEAST_SAVED: u64 = 128 << 10;
/// Older layers that are looked at.
const MOST: usize = 256;

/// Layers of the store that have a table of contents, each once.
#[derive(Default)]
pub(super) struct Olders(Vec<Older>);

impl Olders {
    /// Those of the store's images, but for the layers that are wanted themselves.
    pub fn of(settings: &Settings<'_>, resolved: &Resolved) -> Self {
        let store = settings.store;
        let wanted: BTreeSet<&Digest> = resolved.blobs.iter().map(|blob| &blob.digest).collect();
        let mut seen = BTreeSet::new();
        let mut olders = Vec::new();
        for named in store.refs().unwrap_or_default().into_iter().rev() {
            let size = std::fs::metadata(store.blob_path(&named.digest));
            let image = size.map(|file| oci::of_manifest(store.root(), &named.digest, file.len()));
            let Ok(Ok(image)) = image else { continue };
            for layer in &image.layers {
                let digest = layer.digest();
                let new = !wanted.contains(digest) && seen.insert(digest.clone());
                if !new || layer.size() < LEAST || olders.len() == MOST {
                    continue;
                }
                if let Some(path) = store.blob(digest) {
                    olders.extend(older(&path));
                }
            }
        }
        Self(olders)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The layer as pieces; none where it has to be fetched as a whole.
    pub async fn pieces(
        &self,
        resolved: &Resolved,
        layer: &Descriptor,
    ) -> Result<Option<Vec<Piece>>, RegistryError> {
        if self.is_empty() || layer.size < LEAST {
            return Ok(None);
        }
        let (registry, repository) = (&resolved.registry, &resolved.repository);
        let start = layer.size.saturating_sub(TAIL);
        let range = start..layer.size;
        let Some(mut tail) = registry.range(repository, layer, range).await? else {
            return Ok(None);
        };
        let footer = &tail[tail.len().saturating_sub(FOOTER)..];
        let Some(at) = toc::place(footer).filter(|at| *at < layer.size) else {
            return Ok(None);
        };
        if at < start {
            if layer.size - at > toc::LONGEST {
                return Ok(None);
            }
            let Some(before) = registry.range(repository, layer, at..start).await? else {
                return Ok(None);
            };
            tail = [before, tail].concat().into();
        } else {
            tail = tail.slice((at - start) as usize..);
        }
        let Some(toc) = Toc::read(&tail, at) else {
            return Ok(None);
        };
        let pieces = tokio::task::block_in_place(|| plan::pieces(&toc, tail, &self.0));
        let fetched: u64 = (pieces.iter())
            .filter(|piece| matches!(piece, Piece::Remote { .. }))
            .map(Piece::len)
            .sum();
        // One request in order is faster than many that bring nearly as much.
        let remote = |piece: &&Piece| matches!(piece, Piece::Remote { .. });
        let requests = pieces.iter().filter(remote).count() as u64;
        let worth = (layer.size / LEAST_SHARE).max(requests * LEAST_SAVED);
        Ok((layer.size - fetched > worth).then_some(pieces))
    }
}

/// A layer here, if it has a table of contents.
fn older(path: &Path) -> Option<Older> {
    let file = File::open(path).ok()?;
    let size = file.metadata().ok()?.len();
    let mut footer = [0; FOOTER];
    file.read_exact_at(&mut footer, size.checked_sub(FOOTER as u64)?)
        .ok()?;
    let at = toc::place(&footer)?;
    let length = size.checked_sub(at).filter(|l| *l <= toc::LONGEST)?;
    let mut tail = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut tail, at).ok()?;
    Some(Older::new(path, Toc::read(&tail, at)?))
}
