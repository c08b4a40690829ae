//! An image of a registry as blobs of the store.
//!
//! In: a reference and a platform. Out: an [`Image`] at rest whose blobs lie in the store as in an
//! OCI layout. What is there already is not fetched; what broke off is taken up where it ended.

use crate::config::Config;
use crate::oci::{self, Image, OciError, parse};
use crate::registry::{
    Descriptor, Keychain, Manifest, Observer, Options, Reference, Registry, RegistryError, Target,
};
use crate::spec::Platform;
use crate::store::{Store, StoreError, write_atomically};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use std::path::Path;
use std::sync::Arc;

/// Layers that are fetched at a time.
const AT_ONCE: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Image(#[from] OciError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Fetches the image that `reference` is for `platform`. What names a single manifest names an image
/// for one platform, which is refused where it is another one and `only` this one will do.
pub async fn pull(
    reference: &Reference,
    platform: Platform,
    only: bool,
    store: &Store,
    config: &Config,
    observer: Option<Observer>,
) -> Result<Image, PullError> {
    let mirror = config.registries.get(reference.host());
    let options = Options {
        mirrors: mirror.cloned().into_iter().collect(),
        observer,
        ..Options::default()
    };
    let registry = Registry::connect(reference.host(), Arc::new(Keychain::of_user()), &options)?;
    let blobs = store.dir("blobs/sha256")?;
    let root = store.root();

    let repository = reference.repository();
    let mut manifest = registry.manifest(repository, &reference.target()).await?;
    if is_index(&manifest) {
        let chosen = oci::choose(root, &manifest.bytes, Some(platform))?;
        manifest = registry
            .manifest(repository, &Target::Digest(chosen))
            .await?;
    }
    keep(&blobs, &manifest)?;
    let parsed = parse::manifest("the manifest", &manifest.bytes)?;
    let parts = [parsed.config()].into_iter().chain(parsed.layers());
    let mut wanted = Vec::new();
    for part in parts {
        wanted.push(Descriptor::of_blob(parse::digest(part)?, part.size()));
    }
    stream::iter(&wanted)
        .map(|blob| registry.fetch_blob(repository, blob, &blobs))
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<_>>()
        .await?;
    let size = manifest.bytes.len() as u64;
    let image = oci::of_manifest(root, &manifest.digest, size)?;
    image.is_for(platform).or_else(|e| match only {
        true => Err(e),
        false => Ok(()),
    })?;
    Ok(image)
}

fn is_index(manifest: &Manifest) -> bool {
    manifest.media_type.ends_with("image.index.v1+json")
        || manifest.media_type.ends_with("manifest.list.v2+json")
}

/// A manifest is a blob like the others.
fn keep(blobs: &Path, manifest: &Manifest) -> Result<(), StoreError> {
    let path = blobs.join(manifest.digest.hex());
    write_atomically(&path, &manifest.bytes).map_err(|source| StoreError::Io {
        doing: "write",
        path,
        source,
    })
}
