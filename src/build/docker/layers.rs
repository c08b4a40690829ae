//! Shares the layers of an engine's builds through a registry, as BuildKit's inline cache.
//!
//! In: `cache.registry`, as for compiled wheels. A finished image is pushed there under a tag of its
//! variant, with BuildKit's cache metadata in it; a later build on another machine reads the metadata and
//! pulls the layers of equal steps. A missing image or a registry that does not answer never fails a
//! build.

use super::super::Options;
use super::super::trusted::Keys;
use super::image_push::one;
use stackforge_distribute::evidence::EvidenceError;
use stackforge_engine::BuildRequest;
use stackforge_engine::docker::Docker;
use stackforge_plan::Plan;
use stackforge_stack::diag::chain;
use stackforge_transfer::registry::{
    Keychain, Options as Client, Reference, Registry, Tag, Target,
};
use stackforge_types::Cancel;
use stackforge_types::Digest;
use std::sync::Arc;

/// Build argument that makes BuildKit write its cache metadata into the image.
const INLINE: &str = "BUILDKIT_INLINE_CACHE";
/// Longest tag, in characters, by the OCI distribution specification.
const LONGEST_TAG: usize = 128;

pub(super) struct Layers {
    place: Reference,
    /// What builds read: `place`, or with `cache.verify` the digest of the signed image there.
    read: Option<Reference>,
    keys: Keys,
}

impl Layers {
    pub async fn of(plan: &Plan, docker: &Docker, options: &Options<'_>) -> Option<Self> {
        if options.offline || docker.is_podman() {
            return None;
        }
        let reference: Reference = options.shared()?.parse().ok()?;
        let mut name = format!("layers-{}", plan.variant);
        name.truncate(LONGEST_TAG);
        let tag: Tag = name.parse().ok()?;
        let (host, repository) = (reference.host(), reference.repository());
        let place = Reference::new(host, repository, Target::Tag(tag));
        // The cache of wheels has already warned of keys that cannot be read.
        let keys = Keys::of(options.config).ok()?;
        let mut layers = Self {
            read: Some(place.clone()),
            place,
            keys,
        };
        if layers.keys.verifies() {
            let signed = layers.signed().await;
            layers.read = signed.unwrap_or_else(|e| {
                tracing::warn!("the cache of layers is not used: {}", chain(&e));
                None
            });
        }
        Some(layers)
    }

    /// Returns the reference that builds read the cache from.
    pub fn read(&self) -> Option<String> {
        Some(self.read.as_ref()?.to_string())
    }

    /// Returns the image at `place` by digest, if the trusted key has signed it.
    async fn signed(&self) -> Result<Option<Reference>, EvidenceError> {
        let registry = connect(&self.place)?;
        let repository = self.place.repository();
        let found = registry.manifest(repository, &self.place.target()).await;
        let digest = match found {
            Ok(manifest) => manifest.digest,
            Err(e) if e.is_missing() => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        self.keys.check(&registry, &self.place, &digest).await?;
        let host = self.place.host();
        Ok(Some(Reference::new(
            host,
            repository,
            Target::Digest(digest),
        )))
    }

    /// Signs the digest that the engine pushed: by now the tag may point to somebody else's image.
    async fn sign(&self, digest: Option<Digest>) -> Result<(), EvidenceError> {
        if !self.keys.signs() {
            return Ok(());
        }
        let digest = digest.ok_or_else(|| EvidenceError::Malformed {
            what: self.place.to_string(),
            problem: "the engine does not say what it has pushed, so nothing is signed".to_owned(),
        })?;
        let registry = connect(&self.place)?;
        let target = Target::Digest(digest);
        let pushed = registry.manifest(self.place.repository(), &target);
        let pushed = pushed.await?.descriptor();
        self.keys.sign(&registry, &self.place, &pushed).await
    }

    /// Makes a build write cache metadata and, with `read`, use the cache.
    pub fn ask(&self, request: &mut BuildRequest, read: bool) {
        if read {
            request.cache_from = self.read().into_iter().collect();
        }
        (request.build_args).insert(INLINE.to_owned(), "1".to_owned());
    }

    /// Pushes the image `id` for builds on other machines.
    pub async fn push(&self, docker: &Docker, id: &str, cancel: &Cancel) {
        let failed = match one(docker, id, &self.place, cancel).await {
            Ok(digest) => self.sign(digest).await.err().map(|e| chain(&e)),
            Err(e) => Some(chain(&e)),
        };
        if let Some(why) = failed {
            tracing::warn!("the cache of layers does not take the image: {why}");
        }
    }
}

fn connect(place: &Reference) -> Result<Registry, EvidenceError> {
    let keychain = Arc::new(Keychain::of_user());
    let client = Client::default();
    Ok(Registry::connect(place.host(), keychain, &client)?)
}
