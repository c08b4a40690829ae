//! Fetches an image's blobs into the store, several in parallel.

use super::delta::Olders;
use super::resolve::Resolved;
use super::room::{RESERVE, runs_out};
use super::{PullError, Settings};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use stackforge_device as device;
use stackforge_image::oci::{self, Image};
use stackforge_transfer::registry::Descriptor;
use stackforge_types::Digest;

/// Blobs that are downloaded, verified or written at the same time.
const AT_ONCE: usize = 6;

/// Called with the digest of every complete blob, including the configuration.
pub type OnBlob<'a> = &'a (dyn Fn(&Digest) + Sync);

#[derive(Debug)]
pub struct Fetched {
    pub image: Image,
    /// Bytes that were downloaded.
    pub bytes: u64,
    /// Bytes that were already local: whole blobs, parts of blobs, files of older layers.
    pub kept: u64,
}

/// Fetches the blobs that the store lacks.
pub async fn fetch(
    resolved: &Resolved,
    settings: &Settings<'_>,
    on_blob: Option<OnBlob<'_>>,
) -> Result<Fetched, PullError> {
    let store = settings.store;
    let folder = store.dir("blobs/sha256")?;
    let root = store.root();
    let needed = resolved.bytes_left(store);
    if let Some(free) =
        device::free(&folder).filter(|free| *free < needed.saturating_add(RESERVE) && needed > 0)
    {
        return Err(PullError::Space {
            path: folder,
            free,
            needed,
        });
    }
    let manifest = &resolved.manifest;
    store.put(&manifest.bytes[..], Some(&manifest.digest))?;
    store.lease(resolved.blobs.iter().map(|blob| &blob.digest))?;
    store.put(
        &resolved.config[..],
        resolved.blobs.first().map(|b| &b.digest),
    )?;
    let olders = tokio::task::block_in_place(|| match needed {
        0 => Olders::default(),
        _ => Olders::of(settings, resolved),
    });
    let (config, layers) = resolved.blobs.split_at(1.min(resolved.blobs.len()));
    let mut bytes = Vec::new();
    for blob in config {
        bytes.push(one(resolved, blob, settings, &olders, on_blob).await?);
    }
    let all = stream::iter(layers)
        .map(|blob| one(resolved, blob, settings, &olders, on_blob))
        .buffer_unordered(AT_ONCE)
        .try_collect();
    let layers: Vec<(u64, u64)> = tokio::select! {
        all = all => all?,
        full = runs_out(&folder, needed), if needed > 0 => return Err(full),
    };
    bytes.extend(layers);
    let size = manifest.bytes.len() as u64;
    let image = oci::of_manifest(root, &manifest.digest, size)?;
    let (fetched, kept): (Vec<u64>, Vec<u64>) = bytes.into_iter().unzip();
    let before = resolved.fetched;
    Ok(Fetched {
        image,
        bytes: fetched.iter().sum::<u64>() + before,
        kept: kept.iter().sum::<u64>().saturating_sub(before),
    })
}

/// Fetches one blob. Returns the bytes that were downloaded and those that were local.
async fn one(
    resolved: &Resolved,
    blob: &Descriptor,
    settings: &Settings<'_>,
    olders: &Olders,
    on_blob: Option<OnBlob<'_>>,
) -> Result<(u64, u64), PullError> {
    let store = settings.store;
    let part = store.part(&blob.digest)?;
    let (registry, repository) = (&resolved.registry, &resolved.repository);
    let pieces = if store.blob_path(&blob.digest).exists() {
        None
    } else {
        olders.pieces(resolved, blob).await?
    };
    let pieces = pieces.unwrap_or_default();
    let folder = store.dir("blobs/sha256")?;
    let fetched = registry.fetch_blob_from(repository, blob, &folder, part, &pieces);
    let fetched = fetched.await?;
    store.verified(&blob.digest);
    if let Some(on_blob) = on_blob {
        on_blob(&blob.digest);
    }
    Ok((fetched.bytes, blob.size.saturating_sub(fetched.bytes)))
}
