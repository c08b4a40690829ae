//! Puts manifests into a registry, and deletes them.
//!
//! The specification has no conditional PUT, and neither has registry:2. [`Registry::replace`] checks before
//! and after, which leaves a moment in which another writer's work can be overwritten. So a document that
//! many write must not hold the only copy of anything: each writer first pushes its own part under a name
//! that no other uses (a digest that something refers to, a tag of its own), then collects all parts, writes
//! the whole document, and reads it again until it has every existing part. The last writer then always
//! finds what it left out.

use bytes::Bytes;
use reqwest::header::CONTENT_TYPE;

use stackforge_types::Digest;

use super::manifest::{self, Manifest};
use super::{Registry, RegistryError};
use crate::header;
use stackforge_types::reference::{Repository, Tag, Target};

/// The result of putting a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Digest of the manifest.
    pub digest: Digest,
    /// The subject, if the registry lists the manifest under it by itself. Otherwise a manifest with a
    /// subject must be added to the index of the fallback tag.
    pub subject: Option<Digest>,
}

impl Registry {
    /// Puts a manifest under a tag or its digest; everything that it refers to must exist.
    ///
    /// # Errors
    /// If the registry refuses it, for instance because a blob is missing, or answers with another digest.
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

    /// Moves a tag from the manifest that was read there to a new one. [`RegistryError::Changed`] if the tag
    /// has changed by now, or after it was written. The module's documentation says what this cannot detect.
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

    /// Reads the registry's current manifest, without asking a mirror.
    ///
    /// # Errors
    /// If the registry does not answer, or the manifest is damaged. A missing manifest is `Ok(None)`.
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

    /// Deletes a manifest, or only a tag if the registry supports that.
    ///
    /// # Errors
    /// If it is missing, or the registry does not allow deleting, as is common.
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
