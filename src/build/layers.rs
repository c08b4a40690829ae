//! The layers of an engine's builds, shared through a registry as BuildKit's own inline cache.
//!
//! In: `cache.registry`, as for compiled wheels. The image of a finished build goes there under a tag of
//! its variant, with what BuildKit needs to find its steps in it; a later build on another machine reads
//! that and pulls the layers of the steps that are the same. Neither its absence nor a registry that
//! does not answer fails a build.

use super::image_push::one;
use super::{Options, chain};
use crate::engine::docker::Docker;
use crate::engine::{BuildRequest, Cancel};
use crate::plan::Plan;
use crate::registry::{Reference, Tag, Target};

/// Tells BuildKit to write its cache into the image.
const INLINE: &str = "BUILDKIT_INLINE_CACHE";
/// The specification's bound on tags.
const LONGEST_TAG: usize = 128;

pub(super) struct Layers(Reference);

impl Layers {
    pub fn of(plan: &Plan, docker: &Docker, options: &Options<'_>) -> Option<Self> {
        if options.offline || docker.is_podman() {
            return None;
        }
        let reference: Reference = options.shared()?.parse().ok()?;
        let mut name = format!("layers-{}", plan.variant);
        name.truncate(LONGEST_TAG);
        let tag: Tag = name.parse().ok()?;
        let (host, repository) = (reference.host(), reference.repository());
        Some(Self(Reference::new(host, repository, Target::Tag(tag))))
    }

    pub fn reference(&self) -> String {
        self.0.to_string()
    }

    /// Has a build be fit to be taken from and, with `read`, take its own steps from there.
    pub fn ask(&self, request: &mut BuildRequest, read: bool) {
        if read {
            request.cache_from = vec![self.reference()];
        }
        (request.build_args).insert(INLINE.to_owned(), "1".to_owned());
    }

    /// Pushes the image with that id for the builds of others.
    pub async fn push(&self, docker: &Docker, id: &str, cancel: &Cancel) {
        if let Err(e) = one(docker, id, &self.0, cancel).await {
            let why = chain(&e);
            tracing::warn!("the cache of layers does not take the image: {why}");
        }
    }
}
