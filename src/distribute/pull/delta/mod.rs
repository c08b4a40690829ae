//! Reuses parts of older layers in the store for a changed layer.
//!
//! In: a layer of a registry and older layers in the store, all with eStargz's table of contents. Out: the
//! new blob as pieces, most of them local. stackforge's layers are deterministic: the same file between the
//! same neighbours gives the same gzip members. So the bytes from one file's content to the next are taken
//! from an older layer if digest, neighbours and length are equal; if only the content is equal, its gzip
//! member is taken and the bytes after it are fetched. A wrong guess is harmless: the digest of the whole
//! blob is verified, and if it is wrong the blob is fetched as a whole.

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

use plan::Index;
use toc::{FOOTER, Toc};

/// Smallest layer, in bytes, for which this is worth the additional requests.
const LEAST: u64 = 1 << 20;
/// Bytes of the layer's end that are fetched first; usually they hold the whole table of contents.
const TAIL: u64 = 256 << 10;
/// At least this fraction (one in so many) of a layer's bytes has to be local.
const LEAST_SHARE: u64 = 50;
/// Bytes that each request has to save.
const LEAST_SAVED: u64 = 128 << 10;
/// Older layers that are compared at most.
const MOST: usize = 256;
/// Bytes of inflated tables of older layers that are read at most. A layer of torch's environment has some 5 MB.
const MOST_TABLES: u64 = 256 << 20;

/// Layers of the store that have a table of contents, each once.
#[derive(Default)]
pub(super) struct Olders(Index);

impl Olders {
    /// Returns the layers of the store's images, without those that are about to be fetched.
    pub fn of(settings: &Settings<'_>, resolved: &Resolved) -> Self {
        let store = settings.store;
        let wanted: BTreeSet<&Digest> = resolved.blobs.iter().map(|blob| &blob.digest).collect();
        let mut seen = BTreeSet::new();
        let mut olders = Index::default();
        let (mut compared, mut left) = (0, MOST_TABLES);
        for named in store.refs().unwrap_or_default().into_iter().rev() {
            let size = std::fs::metadata(store.blob_path(&named.digest));
            let image = size.map(|file| oci::of_manifest(store.root(), &named.digest, file.len()));
            let Ok(Ok(image)) = image else { continue };
            for layer in &image.layers {
                let digest = &layer.digest;
                let new = !wanted.contains(digest) && seen.insert(digest.clone());
                if !new || layer.size < LEAST || compared == MOST {
                    continue;
                }
                if let Some(path) = store.blob(digest)
                    && let Some(toc) = table(&path, &mut left)
                {
                    compared += 1;
                    olders.add(&path, &toc);
                }
            }
        }
        Self(olders)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the layer as pieces. `None` if it has to be fetched as a whole.
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
        // A single request is faster than many that fetch nearly as much.
        let remote = |piece: &&Piece| matches!(piece, Piece::Remote { .. });
        let requests = pieces.iter().filter(remote).count() as u64;
        let worth = (layer.size / LEAST_SHARE).max(requests * LEAST_SAVED);
        Ok((layer.size - fetched > worth).then_some(pieces))
    }
}

/// Reads the table of a local layer, which may take `left` bytes. `None` if it has none.
fn table(path: &Path, left: &mut u64) -> Option<Toc> {
    let file = File::open(path).ok()?;
    let size = file.metadata().ok()?.len();
    let mut footer = [0; FOOTER];
    file.read_exact_at(&mut footer, size.checked_sub(FOOTER as u64)?)
        .ok()?;
    let at = toc::place(&footer)?;
    let allowed = |length: &u64| *length <= toc::LONGEST && *left > 0;
    let length = size.checked_sub(at).filter(allowed)?;
    let mut tail = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut tail, at).ok()?;
    Toc::read_within(&tail, at, left)
}
