//! Publishes images to registries.
//!
//! In: a [`PushRequest`] (an image whose blobs are files) and a reference. Out: the digest of the pushed
//! manifest. Blobs are pushed first, several in parallel, except those that the repository has or can mount
//! from another repository of the registry; then the manifest; a tag last. So the tag always points to a
//! complete image, whenever the push is interrupted. [`add_variant`] enters an image into an
//! [index](index) of variants.

mod error;
mod history;
pub mod index;
mod push_request;
mod push_target;
mod pushed;
pub mod variant;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::Serialize;
use stackforge_image::store::Store;
use stackforge_stack::labels;
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::registry::{
    Keychain, Observer, Options, PlainHttp, Pushed, Reference, Registry, RegistryError, Repository,
    Target,
};
use stackforge_types::Digest;
use std::collections::BTreeMap;
use std::sync::Arc;

pub use error::PublishError;
pub use index::Listed;
pub use push_request::PushRequest;
pub use push_target::PushTarget;
pub use pushed::PushedImage;
pub use variant::{Facts, Variant};

/// Blobs that are pushed in parallel.
const AT_ONCE: usize = 4;

/// Options of publishing.
#[derive(Clone, Default)]
pub struct Settings<'a> {
    /// Remembers which repositories of a registry blobs may be mounted from.
    pub store: Option<&'a Store>,
    pub plain_http: PlainHttp,
    pub patience: RetryPolicy,
    pub observer: Option<Observer>,
}

/// The result of a push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Done {
    /// Digest of the image's manifest.
    pub digest: Digest,
    pub blobs: Blobs,
}

/// Number of an image's blobs by how they came to the repository.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Blobs {
    pub sent: u64,
    /// Blobs mounted from another repository of the registry.
    pub mounted: u64,
    pub existing: u64,
    /// Bytes of the blobs that were sent.
    pub bytes: u64,
}

/// Pushes an image to the tag or digest of `reference`.
pub async fn push(
    request: &PushRequest,
    reference: &Reference,
    settings: &Settings<'_>,
) -> Result<Done, PublishError> {
    if let Some(asked) = reference.digest()
        && *asked != request.digest
    {
        return Err(PublishError::OtherDigest {
            asked: Box::new(asked.clone()),
            own: Box::new(request.digest.clone()),
        });
    }
    let registry = connect(reference, settings)?;
    let repository = reference.repository();
    let done = send(&registry, repository, request, settings).await?;
    if let Target::Tag(tag) = reference.target() {
        let tag = Target::Tag(tag);
        let (kind, manifest) = (&request.media_type, &request.manifest);
        registry
            .put_manifest(repository, &tag, kind, manifest)
            .await?;
    }
    remember(request, reference, &BTreeMap::new(), settings);
    Ok(done)
}

/// Pushes an image and enters it into the index of variants at the tag of `reference`.
pub async fn add_variant(
    request: &PushRequest,
    reference: &Reference,
    name: &str,
    facts: &Facts,
    settings: &Settings<'_>,
) -> Result<(Done, Listed), PublishError> {
    let Target::Tag(tag) = reference.target() else {
        return Err(PublishError::NoTag);
    };
    let registry = connect(reference, settings)?;
    let repository = reference.repository();
    let place = index::Place {
        registry: &registry,
        repository,
        tag: &tag,
    };
    // Check the name first: do not push an image that cannot be entered.
    let own = index::tag_of(&tag, name)?;
    place.read().await?;
    let done = send(&registry, repository, request, settings).await?;
    let variant = Variant {
        name: Some(name.to_owned()),
        platform: Some(request.platform),
        digest: request.digest.clone(),
        size: request.manifest.len() as u64,
        media_type: request.media_type.clone(),
        facts: Ok(facts.clone()),
    };
    let listed = place.add(&own, &variant).await?;
    let mut of_index = facts.annotations();
    of_index.insert(labels::VARIANT.to_owned(), name.to_owned());
    remember(request, reference, &of_index, settings);
    Ok((done, listed))
}

/// Remembers what was pushed. `facts` win over the labels.
fn remember(
    request: &PushRequest,
    reference: &Reference,
    facts: &BTreeMap<String, String>,
    settings: &Settings<'_>,
) {
    let Some(store) = settings.store else {
        return;
    };
    let mut labels = request.labels.clone();
    labels.extend(facts.clone());
    let pushed = PushedImage {
        repository: PushedImage::repository_of(reference),
        digest: request.digest.clone(),
        platform: request.platform,
        labels,
        user: request.user.clone(),
    };
    pushed.record(store);
}

fn connect(reference: &Reference, settings: &Settings<'_>) -> Result<Registry, RegistryError> {
    let options = Options {
        observer: settings.observer.clone(),
        plain_http: settings.plain_http,
        retry: settings.patience.clone(),
        ..Options::default()
    };
    Registry::connect(reference.host(), Arc::new(Keychain::of_user()), &options)
}

/// Pushes everything but the tag.
async fn send(
    registry: &Registry,
    repository: &Repository,
    request: &PushRequest,
    settings: &Settings<'_>,
) -> Result<Done, PublishError> {
    let host = registry.host();
    let lenders = settings.store.map(|store| history::read(store, host));
    let lenders = lenders.unwrap_or_default();
    let pushes: Vec<(Pushed, u64)> = stream::iter(&request.blobs)
        .map(|blob| async {
            let mut sources = blob.sources(host);
            sources.extend(lenders.iter().cloned());
            sources.retain(|source| source != repository);
            sources.truncate(history::MOST);
            let (digest, payload) = (&blob.digest, &blob.payload);
            let push = registry.push_blob(repository, digest, blob.size, payload, &sources);
            Ok::<_, RegistryError>((push.await?, blob.size))
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    let mut blobs = Blobs::default();
    for (push, size) in pushes {
        match push {
            Pushed::Existing => blobs.existing += 1,
            Pushed::Mounted => blobs.mounted += 1,
            Pushed::Sent => {
                blobs.sent += 1;
                blobs.bytes += size;
            }
        }
    }
    let own = Target::Digest(request.digest.clone());
    let manifest: &Bytes = &request.manifest;
    registry
        .put_manifest(repository, &own, &request.media_type, manifest)
        .await?;
    if let Some(store) = settings.store {
        history::add(store, host, repository);
    }
    Ok(Done {
        digest: request.digest.clone(),
        blobs,
    })
}
