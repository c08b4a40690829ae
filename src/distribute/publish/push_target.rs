//! Enters a variant into an index when an engine pushes the image itself.
//!
//! In: an index of variants and a variant's name. Out: the tag under which the engine has to push the
//! image and, after the push, the image's entry in the index.

use super::index::{Place, tag_of};
use super::{Facts, Listed, PublishError, Settings, Variant, connect};
use stackforge_image::oci::parse;
use stackforge_stack::spec::Platform;
use stackforge_transfer::registry::{Reference, Registry, Tag, Target};
use stackforge_types::Digest;

pub struct PushTarget {
    registry: Registry,
    index: Reference,
    tag: Tag,
    own: Tag,
    name: String,
}

impl PushTarget {
    /// Opens the index at the tag of `index`. Fails, before anything is pushed, if that tag is something else
    /// than an index.
    pub async fn open(
        index: &Reference,
        name: &str,
        settings: &Settings<'_>,
    ) -> Result<Self, PublishError> {
        let Target::Tag(tag) = index.target() else {
            return Err(PublishError::NoTag);
        };
        let target = Self {
            own: tag_of(&tag, name)?,
            registry: connect(index, settings)?,
            index: index.clone(),
            name: name.to_owned(),
            tag,
        };
        target.place().read().await?;
        Ok(target)
    }

    fn place(&self) -> Place<'_> {
        Place {
            registry: &self.registry,
            repository: self.index.repository(),
            tag: &self.tag,
        }
    }

    /// Returns the reference to push the image to.
    pub fn reference(&self) -> Reference {
        let target = Target::Tag(self.own.clone());
        Reference::new(self.index.host(), self.index.repository(), target)
    }

    /// Enters the pushed image into the index. The image has to be the one with that ID, which is the digest
    /// of its configuration or of its manifest, depending on the engine.
    pub async fn enter(
        self,
        id: &str,
        platform: Platform,
        facts: Facts,
    ) -> Result<(Digest, Listed), PublishError> {
        let repository = self.index.repository();
        let target = Target::Tag(self.own.clone());
        let another = || PublishError::Another(self.reference().to_string());
        let pushed = self.registry.current(repository, &target).await?;
        let pushed = pushed.ok_or_else(another)?;
        let manifest = parse::manifest("the manifest", &pushed.bytes).map_err(|_| another())?;
        let config = manifest.config().digest().to_string();
        if id != config && id != pushed.digest.to_string() {
            return Err(another());
        }
        let variant = Variant {
            name: Some(self.name.clone()),
            platform: Some(platform),
            digest: pushed.digest.clone(),
            size: pushed.bytes.len() as u64,
            media_type: pushed.media_type,
            facts: Ok(facts),
        };
        // The index entry takes over the tag, and keeps the image referenced.
        let listed = self.place().add(&self.own, &variant).await?;
        Ok((pushed.digest, listed))
    }
}
