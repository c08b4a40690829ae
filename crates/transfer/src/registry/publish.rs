//! Manifests on their way into a registry, and out of it.
//!
//! The specification has no conditional PUT, and registry:2 none of its own. [`Registry::replace`]
//! looks before and after, which leaves a moment in between in which another writer's work is
//! overwritten. So what many write must not hold the only copy of anything: each writer first pushes
//! its own part under a name that no other uses (a digest that something refers to, a tag of its
//! own), then collects all parts, writes the whole, and reads it again until it has every part that
//! there is. The last to write then always finds what it left out.

use bytes::Bytes;
use reqwest::header::CONTENT_TYPE;

use stackforge_types::Digest;

use super::manifest::{self, Manifest};
use super::{Registry, RegistryError, header};
use stackforge_types::reference::{Repository, Tag, Target};

/// What a registry did with a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Of the manifest that was put.
    pub digest: Digest,
    /// The registry lists it under this subject by itself. A manifest with a subject for which this
    /// is none has to be entered in the list of the fallback tag.
    pub subject: Option<Digest>,
}

impl Registry {
    /// Puts a manifest under a tag or its digest; what it refers to has to be there.
    ///
    /// # Errors
    /// If the registry refuses it, for instance because a blob is missing, or answers another
    /// digest.
    pub async fn put_manifest(
        &self,
        repository: &Repository,
        target: &Target,
        media_type: &str,
        bytes: &Bytes,
    ) -> Result<Published, RegistryError> {
        let ask = self.about_manifest("pushing", repository, target, "pull,push");
        let own = Digest::of(bytes);
        self.write(|endpoint| {
            let (ask, own) = (&ask, &own);
            async move {
                let url = endpoint.url(repository, &["manifests", &target.to_string()]);
                let response = endpoint
                    .send(ask, |client| {
                        client
                            .put(url.clone())
                            .header(CONTENT_TYPE, media_type)
                            .body(bytes.clone())
                    })
                    .await?;
                let digest = |name| {
                    header::text(response.headers(), name).and_then(|t| t.parse::<Digest>().ok())
                };
                match digest("docker-content-digest") {
                    Some(found) if found != *own => Err(RegistryError::Corrupt {
                        host: endpoint.host.clone(),
                        doing: ask.doing.clone(),
                        found: Box::new(found),
                    }),
                    _ => Ok(Published {
                        digest: own.clone(),
                        subject: digest("oci-subject"),
                    }),
                }
            }
        })
        .await
    }

    /// Moves a tag from what was read there to a new manifest. [`RegistryError::Changed`] when the
    /// tag is something else by now, or is after it was written. See above for what this cannot see.
    ///
    /// # Errors
    /// [`RegistryError::Changed`], and as [`Registry::put_manifest`].
    pub async fn replace(
        &self,
        repository: &Repository,
        tag: &Tag,
        expected: Option<&Digest>,
        media_type: &str,
        bytes: &Bytes,
    ) -> Result<Published, RegistryError> {
        let target = Target::Tag(tag.clone());
        self.expect(repository, &target, expected).await?;
        let published = self
            .put_manifest(repository, &target, media_type, bytes)
            .await?;
        self.expect(repository, &target, Some(&published.digest))
            .await?;
        Ok(published)
    }

    /// The manifest as the registry itself has it now: no mirror is asked.
    ///
    /// # Errors
    /// If the registry does not answer, or the manifest is damaged. A missing one is `Ok(None)`.
    pub async fn current(
        &self,
        repository: &Repository,
        target: &Target,
    ) -> Result<Option<Manifest>, RegistryError> {
        let ask = self.about_manifest("reading", repository, target, "pull,push");
        let found = self.write(|endpoint| {
            let ask = &ask;
            async move { manifest::get(&endpoint, ask, repository, target).await }
        });
        match found.await {
            Ok(manifest) => Ok(Some(manifest)),
            Err(RegistryError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn expect(
        &self,
        repository: &Repository,
        target: &Target,
        expected: Option<&Digest>,
    ) -> Result<(), RegistryError> {
        let ask = self.about_manifest("replacing", repository, target, "pull,push");
        let found = self.write(|endpoint| {
            let ask = &ask;
            async move { manifest::head(&endpoint, ask, repository, target).await }
        });
        let found = match found.await {
            Ok(descriptor) => Some(descriptor.digest),
            Err(RegistryError::Missing { .. }) => None,
            Err(error) => return Err(error),
        };
        if found.as_ref() == expected {
            return Ok(());
        }
        Err(RegistryError::Changed {
            doing: ask.doing,
            found: found.map(Box::new),
        })
    }

    /// Removes a manifest, or a tag alone where the registry can do that.
    ///
    /// # Errors
    /// If it is missing, or the registry does not delete: many are set up so.
    pub async fn delete_manifest(
        &self,
        repository: &Repository,
        target: &Target,
    ) -> Result<(), RegistryError> {
        let ask = self.about_manifest("deleting", repository, target, "pull,push,delete");
        self.write(|endpoint| {
            let ask = &ask;
            async move {
                let url = endpoint.url(repository, &["manifests", &target.to_string()]);
                endpoint
                    .send(ask, |client| client.delete(url.clone()))
                    .await?;
                Ok(())
            }
        })
        .await
    }
}
